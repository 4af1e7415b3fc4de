"""A request's head on the wire: exact octets, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.origin.failures import InvalidRequestError
from univocal.origin.request_head import request_head


def head_of(method=b"GET", target=b"/", fields=((b"host", b"a"),)):
    return request_head(method, target, list(fields))


def test_a_head_is_spelled_octet_for_octet():
    head = head_of(fields=[(b"Host", b"a"), (b"B", b""), (b"b", b"1 \xff\t2")])
    assert head.wire == b"GET / HTTP/1.1\r\nHost: a\r\nB: \r\nb: 1 \xff\t2\r\n\r\n"
    assert (head.length, head.expects_continue, head.upgrades) == (0, False, False)
    assert head.idempotent
    assert not head.is_head


def test_fields_that_change_after_they_were_spelled_are_spelled_anew():
    fields = [(b"host", b"a"), (b"b", b"1")]
    assert request_head(b"GET", b"/", fields).wire == b"GET / HTTP/1.1\r\nhost: a\r\nb: 1\r\n\r\n"
    fields[1] = (b"b", b"2")
    assert request_head(b"GET", b"/c", fields).wire == b"GET /c HTTP/1.1\r\nhost: a\r\nb: 2\r\n\r\n"
    fields.append((b"content-length", b"3"))
    assert request_head(b"POST", b"/c", fields).length == 3
    assert request_head(b"POST", b"/c", fields[:2]).length == 0


@pytest.mark.parametrize(
    "fields", [[(b"host", b"a\r\nb: 1"), (b"c", b"d")], [(b"host", b"a"), (b"b: 1\r\nc", b"d")]]
)
def test_a_section_that_was_sent_makes_no_other_fields_valid(fields):
    head_of(fields=[(b"host", b"a"), (b"b", b"1"), (b"c", b"d")])
    with pytest.raises(InvalidRequestError):
        head_of(fields=fields)


def test_a_request_without_host_is_none():
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"a", b"b")])


@pytest.mark.parametrize(
    "target", [b"", b"/a b", b"/\r\n", b"/\n", b"/\r", b"/\t", b"/\0", b"/\x7f", b"/ HTTP/1.1\r\nx: y"]
)
def test_targets_that_would_end_the_request_line(target):
    with pytest.raises(InvalidRequestError):
        head_of(target=target)


@pytest.mark.parametrize("octet", [octet for octet in range(256) if octet > 0x20 and octet != 0x7F])
def test_every_other_octet_of_a_target_passes(octet):
    target = b"/%c" % octet
    assert head_of(target=target).wire.startswith(b"GET %b HTTP/1.1\r\n" % target)


@pytest.mark.parametrize(
    "field",
    [
        (b"a", b"b\r\nc: d"), (b"a", b"b\nc: d"), (b"a", b"b\rc"), (b"a", b"b\0c"), (b"a", b"\r\n"),
        (b"a\r\nb", b"c"), (b"a\0", b"c"), (b"a: b", b"c"), (b"a ", b"c"), (b"", b"c"), (b"a\xff", b"c"),
        (b"a:", b""),
        (b"host", b"b"), (b"HOST", b"a"),
    ],
)  # fmt: skip
def test_fields_that_would_be_others(field):
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"host", b"a"), field])


@pytest.mark.parametrize("method", [b"", b"GET ", b"GE T", b"GET\r\n", b"G\xc9T", b"CONNECT"])
def test_methods_that_are_none(method):
    with pytest.raises(InvalidRequestError):
        head_of(method=method)


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ([], 0),
        ([(b"content-length", b"0")], 0),
        ([(b"Content-Length", b" 12 ")], 12),
        ([(b"transfer-encoding", b"chunked")], None),
        ([(b"Transfer-Encoding", b"Chunked")], None),
    ],
)
def test_how_much_content_follows(fields, length):
    head = head_of(fields=[(b"host", b"a"), *fields])
    assert head.length == length


@pytest.mark.parametrize(
    "fields",
    [
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
    ],
)
def test_lengths_that_are_ambiguous(fields):
    with pytest.raises(InvalidRequestError):
        head_of(fields=[(b"host", b"a"), *fields])


@pytest.mark.parametrize(
    ("fields", "expects", "upgrades"),
    [
        ([(b"expect", b"100-Continue")], True, False),
        ([(b"expect", b"200-maybe")], False, False),
        ([(b"upgrade", b"a"), (b"expect", b"100-continue")], True, True),
    ],
)
def test_what_the_fields_ask_for(fields, expects, upgrades):
    head = head_of(fields=[(b"host", b"a"), *fields])
    assert (head.expects_continue, head.upgrades) == (expects, upgrades)


@pytest.mark.parametrize(
    "method", [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE", b"POST", b"PATCH", b"PURGE"]
)
def test_what_may_be_repeated(method):
    head = head_of(method=method)
    assert head.idempotent == (method not in (b"POST", b"PATCH", b"PURGE"))
    assert head.is_head == (method == b"HEAD")


OCTETS = st.binary(max_size=8) | st.sampled_from([b"a", b"\r\n", b"a: b", b"x\r\n\r\nGET / HTTP/1.1"])


@given(OCTETS, st.lists(st.tuples(OCTETS, OCTETS), max_size=3))
def test_whatever_goes_out_is_one_request(target, fields):
    sent = [(b"host", b"en.example:81"), *fields]
    try:
        wire = head_of(target=target, fields=sent).wire
    except InvalidRequestError:
        return
    assert wire.split(b"\r\n") == [b"GET %b HTTP/1.1" % target, *map(b": ".join, sent), b"", b""]
