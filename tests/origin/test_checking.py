"""When an origin server is checked, and what passes: no event loop, no waiting."""

import pytest

from univocal.http.errors import RefusedError
from univocal.http.messages import Response
from univocal.origin.upkeep import Check, HealthRule


class Checked:
    """An origin server that answers a check with its `status`, with a failure (0), or not at all (None)."""

    def __init__(self, clock):
        self.clock, self.status, self.asked, self.cancelled = clock, 200, [], 0

    def ask(self, request, answer):
        asked = request.method, request.target, request.fields, request.content
        self.asked.append((self.clock.now, *asked))
        self.answer = answer
        if self.status == 0:
            answer.fail(RefusedError("origin-unreachable"))
        elif self.status is not None:
            answer.start(Response(self.status, []))
            answer.write(b"well")
            answer.finish()
        return self

    def pause(self): ...
    def resume(self): ...

    def cancel(self):
        self.cancelled += 1

    @property
    def times(self):
        return [asked[0] for asked in self.asked]


@pytest.fixture
def checked(clock):
    return Checked(clock)


@pytest.fixture
def told():
    return []


@pytest.fixture
def reasons():
    return []


@pytest.fixture
def begin(clock, checked, told, reasons):
    def heard(passed, reason):
        told.append(passed)
        reasons.append(reason)

    def begin(share=1.0, **settings):
        check = Check(checked.ask, HealthRule(b"/healthz?a", **settings), b"en.example", heard, clock, share)
        check.begin()
        return check

    return begin


def test_checks_are_spread_in_time(begin, checked, clock):
    begin(share=0.25)
    clock.pass_to(12)
    assert checked.times == [0, 1.25, 6.25, 11.25]


def test_late_responses_fail_and_are_given_up(begin, checked, clock, told, reasons):
    checked.status = None
    begin()
    clock.pass_to(1.9)
    assert (told, checked.cancelled) == ([], 0)
    clock.pass_to(4)
    assert (told, checked.cancelled) == ([False], 1)
    clock.pass_to(7)
    assert (told, checked.times) == ([False] * 2, [0, 5])
    assert reasons == ["timeout"] * 2


def test_content_without_end_is_given_up_and_the_head_counts(begin, checked, clock, told):
    checked.status = None
    begin()
    checked.answer.start(Response(200, []))
    assert told == [True]
    checked.answer.write(bytes(40_000))
    assert checked.cancelled == 0
    checked.answer.write(bytes(40_000))
    assert (told, checked.cancelled) == ([True], 1)
    clock.pass_to(6)
    assert checked.times == [0, 5]


def test_content_that_never_ends_is_given_up_in_time(begin, checked, clock, told):
    checked.status = None
    begin()
    checked.answer.start(Response(503, []))
    clock.pass_to(6)
    assert (told, checked.cancelled, checked.times) == ([False], 1, [0, 5])


def test_a_check_is_cancelled_at_the_end_and_none_follows(begin, checked, clock, told):
    checked.status = None
    check = begin()
    check.close()
    clock.pass_to(100)
    assert (told, checked.cancelled, checked.times, clock.timers) == ([], 1, [0], [])


def test_who_is_told_may_end_it(checked, clock):
    def told(passed, reason):
        check.close()

    check = Check(checked.ask, HealthRule(b"/"), b"a", told, clock)
    check.begin()
    clock.pass_to(100)
    assert (checked.times, clock.timers) == ([0], [])
