"""The facts that are found out once, when a response comes (RFC 9111 §3.1)."""

from examples import cases
from support import KEY, NOW
from univocal.cache.rules import Rules
from univocal.cache.storing import Fetched, assess, describe, index_fields, storable_fields
from univocal.http.forward import HOP_BY_HOP
from univocal.http.messages import Request, Response, imf_fixdate

RULES = Rules()


def described(fields, request=None, **rules):
    fetched = Fetched(request or Request(b"GET", b"/a", []), Response(200, fields), NOW - 1, NOW)
    settings = Rules(**rules)
    return describe(
        KEY, fetched, assess(fetched, index_fields(fetched.response, settings), settings), settings
    )


@cases(
    "fields, stored",
    ([(b"a", b"1"), (b"a", b"2")], [(b"a", b"1"), (b"a", b"2")]),
    ([(name, b"x") for name in sorted(HOP_BY_HOP)], []),
    ([(b"age", b"1"), (b"a", b"1")], [(b"a", b"1")]),
    (
        [(b"connection", b"B, c"), (b"b", b"1"), (b"connection", b"d"), (b"d", b""), (b"e", b"")],
        [(b"e", b"")],
    ),
    (
        [(b"connection", b"vary, ETag, b"), (b"vary", b"a"), (b"etag", b'"1"'), (b"b", b"1")],
        [(b"vary", b"a"), (b"etag", b'"1"')],
    ),
    (
        [(b"cache-control", b'private="set-cookie"'), (b"set-cookie", b"a")],
        [(b"cache-control", b'private="set-cookie"')],
    ),
)
def test_fields_of_one_connection_or_one_client_are_not_stored(fields, stored):
    assert storable_fields(fields, index_fields(Response(200, fields), RULES)) == stored


def test_a_response_without_a_date_gets_that_of_its_receipt():
    assert described([]).fields == [(b"date", imf_fixdate(NOW))]
    assert described([(b"date", b"x")]).fields == [(b"date", b"x")]


def test_tags_are_those_of_the_response_and_of_its_target():
    request = Request(b"GET", b"/a", [], frozenset((b"t",)))
    assert described([], request).tags == {b"t"}
    assert described([(b"xkey", b"a")], request).tags == {b"a", b"t"}
    assert described([(b"xkey", b"a")]).tags == {b"a"}
