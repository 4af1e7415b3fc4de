"""Failed refreshes are remembered, but not of more responses than there is room for."""

import pytest

from support import stored_response
from univocal.http.messages import NO_NAMES
from univocal.judge import failed_refreshes
from univocal.judge.failed_refreshes import Failures

NOW = 1_000_000.0


@pytest.mark.pure("a bound is replaced")
def test_the_oldest_of_too_many_failures_are_forgotten(monkeypatch):
    assert failed_refreshes._REMEMBERED == 10_000  # a smaller one is filled sooner
    monkeypatch.setattr(failed_refreshes, "_REMEMBERED", 100)
    failures, responses = Failures(), [stored_response(name=b"key %d" % number) for number in range(101)]
    for stored in responses:
        failures.note(stored, NO_NAMES, 503, NOW)
    assert failures.of(responses[0], NO_NAMES, NOW) is None
    assert failures.of(responses[1], NO_NAMES, NOW) is not None


def test_failures_of_one_moment_count_once():
    failures, stored = Failures(), stored_response()
    for _ in range(30):
        failures.note(stored, NO_NAMES, 0, NOW)
    assert failures.of(stored, NO_NAMES, NOW + 0.9) is not None
    assert failures.of(stored, NO_NAMES, NOW + 1) is None


def test_an_answer_for_another_variant_ends_a_failure():
    failures, stored, other = Failures(), stored_response(), stored_response(name=b"another key")
    for each in (stored, other):
        for moment in range(3):
            failures.note(each, NO_NAMES, 503, NOW + 10 * moment)
    failures.answered(stored.key)
    assert failures.of(stored, NO_NAMES, NOW + 20) is None
    assert failures.of(other, NO_NAMES, NOW + 20) is not None
    failures.note(stored, NO_NAMES, 503, NOW + 20)  # the first one again
    assert failures.of(stored, NO_NAMES, NOW + 20.9) is not None
    assert failures.of(stored, NO_NAMES, NOW + 21) is None
