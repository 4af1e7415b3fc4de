"""Requests are taken apart to the octet, however they are cut, and no content costs more than any other."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.errors import RefusedError
from univocal.http.framing import ReadLimits
from univocal.server.bounds import Bounds
from univocal.server.http1.head_reader import IncomingHead
from univocal.server.http1.request_reader import END, RequestPhase, RequestReader

HOST = b"Host: a.example\r\n"
GET = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


def counted(content):
    return b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(content) + content


def chunks(content, size):
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def reader(**limits):
    return RequestReader(Bounds(ReadLimits(**limits)))


def requests(data, step, made=None):
    """The targets and the contents of the requests in these octets, that come `step` at a time."""
    made, found = made or reader(), []
    for at in range(0, len(data), step):
        made.push(data[at : at + step])
        while (event := made.next()) is not None:
            if isinstance(event, IncomingHead):
                found.append([event.target, b"", not made.accept()])
            elif event is END:
                found[-1][2] = True
            else:
                found[-1][1] += event
        made.drop()
    return [tuple(each) for each in found]


LINES = b"\r\n\r\n0\r\n\r\na: b\r\n\r\nGET /none HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(
    "first",
    [
        counted(LINES),
        CHUNKED + chunks(LINES, 1000) + b"0\r\n\r\n",
        CHUNKED + chunks(LINES, 1) + b"0\r\n\r\n",
        CHUNKED + chunks(LINES, 4) + b'000;a=b;c="d;\\"e\r";f\r\nA: b\r\nC:\r\n\r\n'.replace(b'\r"', b'"'),
        CHUNKED + b"00027;x\r\n" + LINES + b"\r\n0\r\n\r\n",
        b"\r\n\r\n" + counted(LINES) + b"\r\n\n",
    ],
)
def test_each_message_ends_where_it_ends(first, step):
    assert len(LINES) == 0x27
    assert requests(first + GET + GET, step) == [
        (b"/", LINES, True),
        (b"/next", b"", True),
        (b"/next", b"", True),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 15, 16, 31, 32])
@pytest.mark.parametrize("step", [7, 1000, 100_000])
def test_runs_of_small_chunks_are_read_as_they_are(size, step):
    content = LINES * 50 + b"a plain text" * 50
    data = CHUNKED + chunks(content, size) + b"0\r\n\r\n" + GET
    assert requests(data, step) == [(b"/", content, True), (b"/next", b"", True)]
    wrong = data.replace(b"a plain text", b"a plain\r\ntext", 1)
    with pytest.raises((RefusedError, AssertionError)):
        assert requests(wrong, step) == []


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.integers(1, 60),
    st.sampled_from([b"0\r\n\r\n", b"00\r\nA: b\r\n\r\n"]),
)
def test_chunks_are_put_together_however_they_are_cut(pieces, step, last):
    data = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + last
    assert requests(data + GET, step) == [(b"/", b"".join(pieces), True), (b"/next", b"", True)]


@pytest.mark.parametrize(
    "content",
    [
        *(b"\r\n", b" 1\r\n", b"1 \r\n", b"+1\r\n", b"0x1\r\n", b"1_0\r\n", b"-0\r\n", b"1\na\r\n", b"g\r\n"),
        *(b"1;\r\n", b"1; a\r\n", b"1;a=\r\n", b"1;a b\r\n", b'1;a="b\r\n', b"1;a\x00\r\n", b"1\r\naa\r\n"),
        *(
            b"1\r\na\r1\r\n",
            b"1\r\na\n1\r\n",
            b"1" + b"0" * 16 + b"\r\n",
            b"0\r\n a: b\r\n\r\n",
            b"0\r\na\r\n\r\n",
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_what_is_no_chunk_is_refused(content, step):
    with pytest.raises(RefusedError) as refused:
        requests(CHUNKED + content, step)
    assert refused.value.reasons == ("bad-framing",)


@pytest.mark.parametrize("begin", [b"1;", b"0" * 20_000, b"0\r\na: "])
def test_what_takes_content_no_further_is_bounded(begin):
    with pytest.raises(RefusedError) as refused:
        requests(CHUNKED + begin + b"a" * 80_000, 1000, reader(max_field_bytes=30_000))
    assert refused.value.reasons in {("fields-too-large",), ("bad-framing",)}


def test_nothing_is_read_behind_a_refusal():
    made = reader()
    made.push(b"nonsense\r\n\r\n" + GET)
    with pytest.raises(RefusedError):
        made.next()
    made.stop()
    made.push(GET)
    assert (made.next(), made.phase) == (None, RequestPhase.STOPPED)


# What costs time

MEGABYTE = 1 << 20


def seconds_for(wire):
    """The CPU time in which a megabyte on the wire is read, the least of five."""
    best = []
    for _ in range(5):
        made = reader()
        made.push(wire)
        begun = time.process_time()
        while (event := made.next()) is not None:
            if isinstance(event, IncomingHead):
                made.accept()
        best.append(time.process_time() - begun)
    return min(best) / len(wire) * MEGABYTE


def of(pattern):
    return (pattern * MEGABYTE)[:MEGABYTE]


KINDS = {
    "blank lines": CHUNKED + chunks(of(b"\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "last chunks": CHUNKED + chunks(of(b"0\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "trailers": CHUNKED + chunks(of(b"a: b\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "empty lines": of(b"\r\n") + GET,
    "blank lines, counted": counted(of(b"\r\n\r\n")),
}
SMALL = {"small chunks": b"text ", "small chunks of blank lines": b"\r\n\r\n"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_content_costs_more_than_a_plain_one(kind):
    plain = CHUNKED + chunks(of(b"a plain text, in words "), 65_536) + b"0\r\n\r\n"
    limit = 2 * seconds_for(plain) + 0.002  # a copy or two of the octets, which take microseconds
    assert seconds_for(KINDS[kind]) < limit


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("size", [1, 4, 8])
def test_small_chunks_cost_no_python_step_each(kind, size):
    wire = CHUNKED + chunks(of(SMALL[kind])[:200_000], size) + b"0\r\n\r\n"
    assert seconds_for(wire) < 0.03  # step by step it takes 0.06 to 0.12
