"""A request's head on the wire: exact octets, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin.failures import InvalidRequestError
from univocal.origin.http1 import spell


def head_of(method=b"GET", target=b"/", fields=((b"host", b"a"),)):
    request = OriginRequest(method, target, list(fields), Received(method, target))
    spell(request)
    return request


def test_a_request_without_host_is_none():
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"a", b"b")])


@cases("field",
        (b"a", b"b\r\nc: d"), (b"a", b"b\nc: d"), (b"a", b"b\rc"), (b"a", b"b\0c"), (b"a", b"\r\n"),
        (b"a\r\nb", b"c"), (b"a\0", b"c"), (b"a: b", b"c"), (b"a ", b"c"), (b"", b"c"), (b"a\xff", b"c"),
        (b"a:", b""),
        (b"host", b"b"), (b"HOST", b"a"),
    )  # fmt: skip
def test_fields_that_would_be_others(field):
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"host", b"a"), field])


@pytest.mark.parametrize("method", [b"", b"GET ", b"GE T", b"GET\r\n", b"G\xc9T", b"CONNECT"])
def test_methods_that_are_none(method):
    with pytest.raises(InvalidRequestError):
        head_of(method=method)


@cases(
    "fields, length",
    ([], 0),
    ([(b"content-length", b"0")], 0),
    ([(b"Content-Length", b" 12 ")], 12),
    ([(b"transfer-encoding", b"chunked")], None),
    ([(b"Transfer-Encoding", b"Chunked")], None),
)
def test_the_length_of_content_follows_from_the_fields(fields, length):
    head = head_of(fields=[(b"host", b"a"), *fields])
    assert head.length == length


@cases(
    "fields",
    [(b"content-length", b"1"), (b"content-length", b"1")],
    [(b"content-length", b"1"), (b"Content-Length", b"2")],
    [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
    [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
    [(b"transfer-encoding", b"gzip")],
    [(b"transfer-encoding", b"gzip, chunked")],
    [(b"content-length", b"+1")],
    [(b"content-length", b"-1")],
    [(b"content-length", b"1, 1")],
    [(b"content-length", b"")],
    [(b"content-length", b"0x1")],
    [(b"content-length", b"1_0")],
    [(b"content-length", b"9" * 5000)],
)
def test_lengths_that_are_ambiguous(fields):
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"host", b"a"), *fields])


@cases(
    "fields, expects, upgrades",
    ([(b"expect", b"100-Continue")], True, False),
    ([(b"expect", b"200-maybe")], False, False),
    ([(b"upgrade", b"a"), (b"expect", b"100-continue")], True, True),
)
def test_fields_ask_for_continue_and_upgrade(fields, expects, upgrades):
    head = head_of(fields=[(b"host", b"a"), *fields])
    assert (head.expects_continue, head.upgrades) == (expects, upgrades)


OCTETS = st.binary(max_size=8) | any_of(b"a", b"\r\n", b"a: b", b"x\r\n\r\nGET / HTTP/1.1")


@given(OCTETS, st.lists(st.tuples(OCTETS, OCTETS), max_size=3))
def test_every_head_that_is_sent_is_one_request(target, fields):
    sent = [(b"host", b"en.example:81"), *fields]
    try:
        wire = head_of(target=target, fields=sent).wire
    except InvalidRequestError:
        return
    assert wire.split(b"\r\n") == [b"GET %b HTTP/1.1" % target, *map(b": ".join, sent), b"", b""]
