"""An answer confirms, replaces, ends or leaves the stored responses that its request selects."""

from dataclasses import replace

import pytest

from examples import cases
from support import stored_response
from univocal.cache.rules import Rules
from univocal.cache.stored import Part
from univocal.cache.validation import (
    Effect,
    Findings,
    Likeness,
    Requester,
    changes_use,
    effect_of,
    foremost,
    likeness_of,
    requester_of,
    selected,
)
from univocal.http.messages import Request, Response

TAGGED = (b"etag", b'"1"')
DATED = (b"last-modified", b"Sat, 05 Sep 2026 10:00:00 GMT")
OURSELVES, ANYBODY, SOMEBODY = Requester
CONFIRMS, REPLACES, ENDS, AGES, LEAVES = Effect
SAME, UNKNOWN, OTHER = Likeness


@cases(
    "status, requester, findings, effect",
    # A response that may be stored is for all clients, whoever asked.
    (200, SOMEBODY, {}, REPLACES),
    (200, ANYBODY, {"likeness": SAME}, REPLACES),
    (404, ANYBODY, {}, REPLACES),
    (503, ANYBODY, {}, REPLACES),
    (200, SOMEBODY, {"unstorable": "too-large"}, ENDS),
    (200, SOMEBODY, {"unstorable": "no-room"}, ENDS),
    # A response that may not be stored ends the stored one only if no client can provoke it.
    (200, ANYBODY, {"unstorable": "no-store"}, ENDS),
    (200, SOMEBODY, {"unstorable": "no-store"}, LEAVES),
    (404, ANYBODY, {"unstorable": "no-freshness"}, ENDS),
    (404, SOMEBODY, {"unstorable": "no-freshness"}, LEAVES),
    (403, ANYBODY, {"unstorable": "error"}, LEAVES),
    *((status, OURSELVES, {"unstorable": "error"}, ENDS) for status in (301, 401, 403, 410, 451, 499)),
    # A failure says nothing.
    *((status, OURSELVES, {"unstorable": "error"}, LEAVES) for status in (429, 500, 503)),
    # A part of the same representation does not displace all of it.
    (206, SOMEBODY, {"likeness": SAME}, LEAVES),
    (206, SOMEBODY, {"likeness": OTHER}, REPLACES),
    (206, SOMEBODY, {"likeness": UNKNOWN}, REPLACES),
    (206, SOMEBODY, {"likeness": SAME, "whole": False}, REPLACES),
    (206, OURSELVES, {"unstorable": "partial"}, ENDS),
    # 304
    (206, ANYBODY, {"unstorable": "private", "likeness": OTHER}, ENDS),
    (206, ANYBODY, {"unstorable": "private", "likeness": SAME}, LEAVES),
    (206, ANYBODY, {"unstorable": "private", "likeness": UNKNOWN}, LEAVES),
    (206, SOMEBODY, {"unstorable": "private", "likeness": OTHER}, LEAVES),
    (304, SOMEBODY, {}, CONFIRMS),
    (304, SOMEBODY, {"unstorable": "renewed", "changes_use": True}, ENDS),
    (304, SOMEBODY, {"unstorable": "renewed"}, LEAVES),
    (304, SOMEBODY, {"unstorable": "renewed", "shortens": True}, AGES),
    (304, ANYBODY, {"unstorable": "renewed"}, ENDS),
    (304, OURSELVES, {"unstorable": "renewed"}, ENDS),
)
def test_an_answer_to_a_get_has_one_effect(status, requester, findings, effect):
    assert effect_of(Findings(b"GET", status, requester, **findings)) is effect


@cases(
    "status, requester, findings, effect",
    (200, ANYBODY, {"likeness": SAME}, CONFIRMS),
    (200, ANYBODY, {"likeness": SAME, "conditional": True}, CONFIRMS),
    (200, ANYBODY, {"likeness": SAME, "unstorable": "no-store"}, CONFIRMS),  # as far as it may be stored
    (200, ANYBODY, {"likeness": UNKNOWN}, CONFIRMS),
    (200, ANYBODY, {"likeness": OTHER}, AGES),
    (200, ANYBODY, {"likeness": UNKNOWN, "conditional": True}, REPLACES),
    (200, ANYBODY, {"likeness": OTHER, "conditional": True}, REPLACES),
    (200, ANYBODY, {"conditional": True, "unstorable": "no-store"}, ENDS),
    (200, ANYBODY, {"whole": False}, REPLACES),
    (200, SOMEBODY, {"conditional": True}, REPLACES),
    (200, SOMEBODY, {"likeness": SAME}, LEAVES),
    (200, SOMEBODY, {"conditional": True, "unstorable": "private"}, LEAVES),
    (404, ANYBODY, {}, REPLACES),
    (404, ANYBODY, {"likeness": OTHER}, REPLACES),
    (404, ANYBODY, {"likeness": SAME}, LEAVES),
    (404, SOMEBODY, {"likeness": SAME}, LEAVES),
    (404, ANYBODY, {"unstorable": "no-freshness"}, AGES),
    (404, SOMEBODY, {"unstorable": "no-freshness"}, LEAVES),
    (405, ANYBODY, {"unstorable": "error"}, LEAVES),
    (503, ANYBODY, {"unstorable": "error"}, LEAVES),
)
def test_an_answer_to_a_head_has_one_effect(status, requester, findings, effect):
    assert effect_of(Findings(b"HEAD", status, requester, **findings)) is effect


@pytest.mark.parametrize(("unstorable", "effect"), [("", REPLACES), ("method", LEAVES)])
def test_an_answer_to_a_post_ends_nothing_by_itself(unstorable, effect):
    assert effect_of(Findings(b"POST", 404, ANYBODY, unstorable=unstorable)) is effect


@cases(
    "old, new, status, likeness",
    ([TAGGED], [TAGGED], 200, SAME),
    ([TAGGED], [(b"etag", b'W/"1"')], 200, SAME),
    ([TAGGED], [(b"etag", b'"2"'), DATED], 200, OTHER),
    ([TAGGED, DATED], [DATED], 200, SAME),
    ([TAGGED], [DATED], 200, OTHER),
    ([], [TAGGED], 200, OTHER),
    ([TAGGED], [], 200, UNKNOWN),
    ([TAGGED], [], 404, OTHER),
    ([], [(b"content-length", b"10")], 200, UNKNOWN),
    ([], [(b"content-length", b"9")], 200, OTHER),
    ([TAGGED], [TAGGED, (b"content-length", b"9")], 200, OTHER),
    ([TAGGED], [TAGGED, (b"content-length", b"9")], 206, SAME),
)
def test_validators_and_length_say_how_like_two_responses_are(old, new, status, likeness):
    assert likeness_of(stored_response(*old), Response(status, new)) is likeness


@cases(
    "fields, status, requester",
    ([(b"accept", b"text/html"), (b"host", b"en.example")], 200, ANYBODY),
    ([(b"cookie", b"a=b")], 200, SOMEBODY),
    ([(b"authorization", b"x")], 200, SOMEBODY),
    ([(b"x-api-key", b"1")], 200, SOMEBODY),
    ([(b"range", b"bytes=0-1")], 206, ANYBODY),
    ([(b"range", b"bytes=0-1"), (b"cookie", b"a=b")], 206, SOMEBODY),
    ([(b"range", b"bytes=0-1")], 416, SOMEBODY),
    ([(b"range", b"bytes=0-1"), (b"if-range", b'"1"')], 200, ANYBODY),
    ([(b"range", b"bytes=0-1")], 404, ANYBODY),
    ([(b"accept", b"text/html")], 206, ANYBODY),
)
def test_a_request_with_fields_of_its_own_is_somebodys(fields, status, requester):
    assert requester_of(Request(b"GET", b"/a", fields), status, Rules(), [stored_response()]) is requester


VARIED = stored_response((b"vary", b"x-var"), request=[(b"x-var", b"a")])


@cases(
    "asked, older, requester",
    ([], [VARIED], ANYBODY),
    ([(b"cookie", b"a=b")], [VARIED], SOMEBODY),
    ([], [VARIED, stored_response()], SOMEBODY),
    # A response for requests without the field.
    ([], [replace(VARIED, vary=((b"x-var", None),))], SOMEBODY),
)
def test_a_field_that_selects_what_is_stored_is_everybodys(asked, older, requester):
    request = Request(b"GET", b"/a", [(b"x-var", b"a"), *asked])
    assert requester_of(request, 200, Rules(), older) is requester


def test_a_request_selects_responses_that_are_kept_for_others():
    plain = stored_response()
    varied = stored_response((b"vary", b"foo"), request=[(b"foo", b"1")])
    impersonal = replace(plain, vary=((b"authorization", None), (b"cookie", None)))
    held = [varied, impersonal, plain]
    asked = Request(b"GET", b"/a", [(b"cookie", b"a=b"), (b"foo", b"1")])
    assert selected(asked, held) == held
    assert selected(replace(asked, fields=[]), held) == [impersonal, plain]


def test_an_answer_is_compared_with_the_newest_whole_response():
    part = replace(stored_response(), part=Part(0, 1, 10))
    whole, older = stored_response(), stored_response()
    assert foremost([part, whole, older]) is whole
    assert foremost([part]) is part


@cases(
    "news, changes",
    ((b"cache-control", b"no-store"), True),
    ((b"cache-control", b"private"), True),
    ((b"cache-control", b"no-cache"), False),
    ((b"vary", b"*"), True),
    ((b"vary", b"bar"), True),
    ((b"vary", b"Foo"), False),
    ((b"set-cookie", b"a=b"), False),
)
def test_directives_and_vary_change_the_use_of_a_response(news, changes):
    old = stored_response((b"vary", b"foo"))
    kept = [field for field in old.fields if field[0] != news[0]]
    head = b"".join([b"HTTP/1.1 200 OK\r\n", *(b"%b: %b\r\n" % field for field in [*kept, news])])
    assert changes_use(old, replace(old, head=head), Rules()) is changes
