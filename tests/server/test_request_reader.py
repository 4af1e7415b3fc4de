"""Requests are taken apart to the octet, however they are cut, and no content costs more than any other."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from univocal.http.content import ChunksInSteps
from univocal.http.errors import RefusedError
from univocal.server.clients import ReadLimits
from univocal.server.http1.messages import END, IncomingHead, RequestReader, RequestState, version_of
from univocal.server.listener import Bounds

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


@pytest.fixture(scope="module", autouse=True)
def compiled_patterns():
    """The first small chunks of a process compile their patterns, which tests that count steps leave out."""
    requests(CHUNKED + chunks(b"small", 1) + b"0\r\n\r\n", 1000)


LINES = b"\r\n\r\n0\r\n\r\na: b\r\n\r\nGET /none HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
@cases(
    "first",
    counted(LINES),
    CHUNKED + chunks(LINES, 1000) + b"0\r\n\r\n",
    CHUNKED + chunks(LINES, 1) + b"0\r\n\r\n",
    CHUNKED + chunks(LINES, 4) + b'000;a=b;c="d;\\"e\r";f\r\nA: b\r\nC:\r\n\r\n'.replace(b'\r"', b'"'),
    CHUNKED + b"00027;x\r\n" + LINES + b"\r\n0\r\n\r\n",
    b"\r\n\r\n" + counted(LINES) + b"\r\n\n",
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
    any_of(b"0\r\n\r\n", b"00\r\nA: b\r\n\r\n"),
)
def test_chunks_are_put_together_however_they_are_cut(pieces, step, last):
    data = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + last
    assert requests(data + GET, step) == [(b"/", b"".join(pieces), True), (b"/next", b"", True)]


SIZE_LINES = st.tuples(
    any_of(b"", b"", b"0", b"000"),
    any_of(b"%x", b"%X"),
    any_of(b"", b"", b";a", b";a=b;c", b';a="\\"\r;\xe4"'.replace(b"\r", b"\t"), b";" + b"a" * 300),
)
OF_LINE_ENDS = st.text("\r\n01;a", min_size=1, max_size=70).map(str.encode)


@given(
    st.lists(st.tuples(SIZE_LINES, OF_LINE_ENDS, st.integers(1, 10)), max_size=4),
    st.integers(1, 3),
    any_of(7, 1000, 100_000),
)
def test_chunks_of_every_spelling_mix(kinds, times, step):
    wire = content = b""
    for _ in range(times):
        for (zeros, form, extension), piece, count in kinds:
            wire += (zeros + form % len(piece) + extension + b"\r\n" + piece + b"\r\n") * count
            content += piece * count
    assert requests(CHUNKED + wire + b"0\r\n\r\n" + GET, step) == [
        (b"/", content, True),
        (b"/next", b"", True),
    ]


def as_if_alone(wire):
    """The content of chunks that come octet by octet, or the reasons for which they are refused."""
    try:
        return requests(CHUNKED + wire, 1)
    except RefusedError as refused:
        return refused.reasons


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=30),
    any_of(b"\r\n", b"\n", b"1\r\n", b"0\r\n\r\n", b"text;"),
    st.integers(0, 5000),
    any_of(b"", b"\r", b"\n", b" ", b"1", b"g", b";", b"\x00", b"\r\n"),
    st.booleans(),
)
def test_a_wrong_byte_in_a_run_changes_nothing_before_it(sizes, unit, place, wrong, replaces):
    wire = b"".join(b"%x\r\n%b\r\n" % (size, (unit * size)[:size]) for size in sizes) + b"0\r\n\r\n"
    place %= len(wire)
    wire = wire[:place] + wrong + wire[place + replaces :]
    try:
        whole = requests(CHUNKED + wire, len(wire) + 1000)
    except RefusedError as refused:
        whole = refused.reasons
    assert whole == as_if_alone(wire)


@cases(
    "content",
    *(b"\r\n", b" 1\r\n", b"1 \r\n", b"+1\r\n", b"0x1\r\n", b"1_0\r\n", b"-0\r\n", b"1\na\r\n", b"g\r\n"),
    *(b"1;\r\n", b"1; a\r\n", b"1;a=\r\n", b"1;a b\r\n", b'1;a="b\r\n', b"1;a\x00\r\n", b"1\r\naa\r\n"),
    *(
        b"1\r\na\r1\r\n",
        b"1\r\na\n1\r\n",
        b"1" + b"0" * 16 + b"\r\n",
        b"0\r\n a: b\r\n\r\n",
        b"0\r\na\r\n\r\n",
    ),
)
@pytest.mark.parametrize("step", [1, 1000])
def test_an_invalid_chunk_is_refused(content, step):
    with pytest.raises(RefusedError) as refused:
        requests(CHUNKED + content, step)
    assert refused.value.reasons == ("bad-framing",)


@pytest.mark.parametrize("begin", [b"1;", b"0" * 20_000, b"0\r\na: "])
def test_chunk_framing_without_content_is_bounded(begin):
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
    assert (made.next(), made.state) == (None, RequestState.STOPPED)


# Bounds of steps in Python: `make bench` measures the time

MEGABYTE = 1 << 20


def steps_for(wire):
    """The lines and calls of Python with which these octets are read."""
    made, steps = reader(), 0
    made.push(wire)

    def count(_frame, _event, _argument):
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        while (event := made.next()) is not None:
            if isinstance(event, IncomingHead):
                made.accept()
    finally:
        sys.settrace(before)
    return steps


def of(pattern):
    return (pattern * MEGABYTE)[:MEGABYTE]


KINDS = {
    "blank lines": CHUNKED + chunks(of(b"\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "last chunks": CHUNKED + chunks(of(b"0\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "trailers": CHUNKED + chunks(of(b"a: b\r\n\r\n"), 65_536) + b"0\r\n\r\n",
    "empty lines": of(b"\r\n") + GET,
    "blank lines, counted": counted(of(b"\r\n\r\n")),
}
EMPTY_LINES = [b"\n", b"\r\n", b"\n\r\n", b"\r\n\n\n"]
MIXED = [(1, 2), (3, 5, 7), (15, 16), (31, 32)]
PAST_A_RUN = (1, 65)  # a run of small chunks has none of more than 64 octets
SMALL = {"small chunks": b"text ", "small chunks of blank lines": b"\r\n\r\n"}


def mixed(sizes, extension):
    """Chunks of these sizes by turns, of line ends, and their number."""
    of_line_ends = b"".join(b"%x%b\r\n%b\r\n" % (size, extension, of(b"\r\n")[:size]) for size in sizes)
    return CHUNKED + of(of_line_ends)[:200_000], 200_000 // len(of_line_ends) * len(sizes)


@pytest.mark.pure("Python's steps are counted")
@pytest.mark.parametrize("kind", KINDS)
def test_no_content_costs_more_than_a_plain_one(kind):
    plain = CHUNKED + chunks(of(b"a plain text, in words "), 65_536) + b"0\r\n\r\n"
    assert steps_for(KINDS[kind]) < 2 * steps_for(plain)


@pytest.mark.pure("Python's steps are counted")
@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("size", [1, 4, 8])
def test_small_chunks_cost_no_python_step_each(kind, size):
    wire = CHUNKED + chunks(of(SMALL[kind])[:200_000], size) + b"0\r\n\r\n"
    assert steps_for(wire) < 200_000 // size


@pytest.mark.pure("Python's steps are counted")
@pytest.mark.parametrize("sizes", MIXED)
@pytest.mark.parametrize("extension", [b"", b";a"])
def test_small_chunks_of_several_sizes_cost_no_step_each(sizes, extension):
    wire, number = mixed(sizes, extension)
    assert steps_for(wire) < number


@pytest.mark.pure("Python's steps are counted")
@pytest.mark.parametrize("extension", [b"", b";a"])
def test_a_chunk_outside_of_a_run_costs_few_steps(extension):
    wire, number = mixed(PAST_A_RUN, extension)
    assert steps_for(wire) < 40 * number


@pytest.mark.parametrize("lines", EMPTY_LINES)
def test_empty_lines_between_requests_are_passed_over_by_blocks(lines):
    octets = of(lines)
    assert requests(octets + GET, 100_000) == [(b"/next", b"", True)]
    assert requests(octets[:9000] + b"\n" + GET, 4097) == [(b"/next", b"", True)]
    assert steps_for(octets + GET) < 4000  # of a million octets
    with pytest.raises(RefusedError):
        requests(octets[:9000] + b"\r" + GET, 4097)


@pytest.mark.parametrize("sizes", [*MIXED, PAST_A_RUN, (1,), (64,), (64, 65)])
def test_one_step_takes_a_bounded_number_of_chunks(sizes):
    """A microsecond a chunk, or for 32 octets of a run: others wait for a fraction of a millisecond."""
    wire = b"".join(b"%x\r\n%b\r\n" % (size, of(b"\r\n")[:size]) for size in sizes) * 50_000
    chunks_read, at = ChunksInSteps(), 0
    for _ in range(20):
        before = at
        _, at = chunks_read.read(wire, at)
        assert 0 < at - before <= 128 * 70 + 4096


# llhttp does not tell the version by which it reads a message


@cases(
    "line, version",
    (b"GET / HTTP/1.1\r\n", "1.1"),
    (b" HTTP/1.0\r\n", "1.0"),
    (b" HTTP/1.2\r\n", "1.1"),
    (b" HTTP/1.9\r\n", "1.1"),
    *((each, "") for each in (b" HTTP/2.0\r\n", b" HTTP/0.9\r\n", b" HTTP/1.12\r\n", b" RTSP/1.1\r\n")),
    *((each, "") for each in (b"XHTTP/1.1\r\n", b" http/1.1\r\n", b" HTTP/1.1\n", b"")),
)
def test_the_version_by_which_a_message_is_read(line, version):
    assert version_of(line) == version
