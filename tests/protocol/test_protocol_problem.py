import json

import pytest

from univocal.http.errors import REASONS
from univocal.http.problem import problem


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_its_body(reason):
    answer = problem([reason])
    details = json.loads(answer.body)
    status, sentence = REASONS[reason]
    assert answer.status == status
    assert set(details) == {"type", "title", "status", "detail", "reason", "reasons"}
    assert (details["status"], details["reason"], details["reasons"]) == (status, reason, [reason])
    assert details["type"] == "about:blank"
    assert details["detail"] == sentence + "."
    assert dict(answer.fields)[b"content-length"] == b"%d" % len(answer.body)
    assert dict(answer.fields)[b"content-type"] == b"application/problem+json"


def test_the_first_reason_by_rank_gives_the_status():
    answer = problem(["unknown-host", "above-root", "bad-escape", "above-root"])
    details = json.loads(answer.body)
    assert answer.status == 400
    assert details["title"] == "Bad Request"
    assert details["reason"] == "bad-escape"
    assert details["reasons"] == ["bad-escape", "above-root", "unknown-host"]


def test_an_unknown_reason_is_a_mistake_of_the_caller():
    with pytest.raises(KeyError):
        problem(["no-such-reason"])
