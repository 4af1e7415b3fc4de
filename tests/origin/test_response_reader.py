"""Responses read whole, octet by octet and with others behind them: the parts are the same."""

import contextlib
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin import http1
from univocal.origin.http1 import (
    FINAL,
    MAX_INTERIM,
    MOVES,
    Complete,
    ResponseReader,
    Stopped,
    spell,
    whole_head,
)

OK = b"HTTP/1.1 200 OK\r\n"


def test_a_response_can_be_stopped_at_any_time():
    assert all(Stopped in after for after in MOVES.values())


def asking(*, is_head=False, upgrades=False):
    """A request, as far as the reading of its response depends on it."""
    method, fields = b"HEAD" if is_head else b"GET", [(b"host", b"a"), *[(b"upgrade", b"x")] * upgrades]
    spell(request := OriginRequest(method, b"/", fields, Received(method, b"/")))
    return request


@dataclass
class Told:
    heads: list = field(default_factory=list)
    content: bytes = b""

    def interim(self, status, fields):
        self.heads.append((status, fields))

    def start(self, response):
        self.heads.append((response.status, response.fields))

    def write(self, content):
        assert content
        self.content += content
        return True


@dataclass
class Read:
    """A response as it is read; `ends` names its end: itself, the connection, or a fault."""

    heads: list
    content: bytes = b""
    trailers: list = field(default_factory=list)
    ends: str = "itself"
    reusable: bool = True
    is_head: bool = False
    upgrades: bool = False

    @property
    def parts(self):
        return self.heads, self.content, self.trailers


MAX_HEAD = 1000
RESPONSES = {
    OK + b"Content-Length: 5\r\n\r\nhello":
        Read([(200, [(b"content-length", b"5")])], b"hello"),
    b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n":
        Read([(200, [(b"content-length", b"0")])]),
    OK + b"A: \t b \t\r\na:\r\nContent-Length: 0\r\n\r\n":
        Read([(200, [(b"a", b"b"), (b"a", b""), (b"content-length", b"0")])]),
    b"HTTP/1.1 204 None\r\n\r\n": Read([(204, [])], reusable=False),
    b"HTTP/1.1 204 None\r\nTransfer-Encoding: chunked\r\n\r\n":
        Read([(204, [(b"transfer-encoding", b"chunked")])], reusable=False),
    b"HTTP/1.1 404 None\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":
        Read([(404, [(b"transfer-encoding", b"chunked")])]),
    OK + b"\r\n": Read([(200, [])], is_head=True, reusable=False),
    b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n":
        Read([(304, [(b"content-length", b"5")])], reusable=False),
    OK + b"Connection: Keep-Alive, CLOSE\r\nContent-Length: 2\r\n\r\nab":
        Read([(200, [(b"connection", b"Keep-Alive, CLOSE"), (b"content-length", b"2")])], b"ab",
             reusable=False),
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":
        Read([(200, [(b"transfer-encoding", b"chunked")])], b"hello"),
    OK + b"Transfer-Encoding: chunked\r\n\r\n00a;b=c\r\n0123456789\r\n1\r\n\n\r\n000\r\nX: y\r\nZ:\r\n\r\n":
        Read([(200, [(b"transfer-encoding", b"chunked")])], b"0123456789\n",
             [(b"x", b"y"), (b"z", b"")]),
    OK + b"\r\nhello": Read([(200, [])], b"hello", ends="connection", reusable=False),
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab":
        Read([(200, [(b"content-length", b"2")])], b"ab", reusable=False),
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab":
        Read([(200, [(b"connection", b"keep-alive"), (b"content-length", b"2")])], b"ab"),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nLink: b\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx":
        Read([(100, []), (103, [(b"link", b"b")]), (200, [(b"content-length", b"1")])], b"x"),
    OK + b"Content-Length: 5\r\n\r\n":
        Read([(200, [(b"content-length", b"5")])], is_head=True, reusable=False),
    OK + b"Transfer-Encoding: chunked\r\n\r\n":
        Read([(200, [(b"transfer-encoding", b"chunked")])], is_head=True, reusable=False),
    OK + b"X: y\r\n\r\n": Read([(200, [(b"x", b"y")])], is_head=True, reusable=False),
    b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n":
        Read([(200, [(b"x", b"y")])], is_head=True, reusable=False),
    b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n\0\1HTTP":
        Read([(101, [(b"connection", b"upgrade"), (b"upgrade", b"a")])], b"\0\1HTTP", ends="connection",
             reusable=False, upgrades=True),
    b"\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx":
        Read([(200, [(b"content-length", b"1")])], b"x"),
    # Responses of old origin servers, and others that can be read in one way alone.
    b"HTTP/1.1 200 OK\nContent-Length: 3\nA: b\n\n\r\n\n":
        Read([(200, [(b"content-length", b"3"), (b"a", b"b")])], b"\r\n\n"),
    b"HTTP/1.0 200 OK\n\nhello": Read([(200, [])], b"hello", ends="connection", reusable=False),
    b"HTTP/1.1 103 E\nLink: b\n\n" + OK + b"Content-Length: 1\r\n\r\nx":
        Read([(103, [(b"link", b"b")]), (200, [(b"content-length", b"1")])], b"x"),
    OK + b"Content-Length: 2\r\nA: b\r\ncontent-length:\t2 \r\n\r\nab":
        Read([(200, [(b"content-length", b"2"), (b"a", b"b")])], b"ab"),
    OK + b"A: b\r\nContent-Length: 2 , 2,2\r\n\r\nab":
        Read([(200, [(b"a", b"b"), (b"content-length", b"2")])], b"ab"),
    b"HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 2\n\nab":
        Read([(200, [(b"content-length", b"2")])], b"ab"),
    OK + b"Content-Length: 0002\r\n\r\nab": Read([(200, [(b"content-length", b"0002")])], b"ab"),
    OK + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n1\t ;a=b\r\n!\r\n0 \r\n\r\n":
        Read([(200, [(b"transfer-encoding", b"chunked")])], b"hello!"),
    OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nConnection: close, upgrade\r\nUpgrade: a\r\n\r\n":
        Read([(200, [(b"transfer-encoding", b"chunked")])], b"x",
             [(b"connection", b"close, upgrade"), (b"upgrade", b"a")]),
    b"HTTP/1.1 103 E\r\nConnection: close\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx":
        Read([(103, [(b"connection", b"close")]), (200, [(b"content-length", b"1")])], b"x", reusable=False),
    b"HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\nx": Read([(200, [(b"content-length", b"1")])], b"x"),
    b"HTTP/1.9 200 OK\n\nx": Read([(200, [])], b"x", ends="connection", reusable=False),
}  # fmt: skip

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FAULTS = [
    b"garbage\r\n\r\n",
    *(line + b"\r\n\r\n" for line in (b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 000 OK")),
    *(line + b"\r\n\r\n" for line in (b"HTTP/1.1 099 OK", b"HTTP/0.9 200 OK", b"HTTP/2.0 200 OK")),
    *(line + b"\r\n\r\n" for line in (b"HTTP/1.12 200 OK", b"RTSP/1.0 200 OK", b"ICE/1.1 200 OK")),
    b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n",
    b"HTTP/1.1 103 Early\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"\rHTTP/1.1 200 OK\r\n\r\n",
    # line ends of two kinds
    OK + b"A: b\nContent-Length: 1\r\n\r\na",
    *(OK + b"Content-Length: 1" + end + b"a" for end in (b"\n\n", b"\r\n\n")),
    b"HTTP/1.1 200 OK\nA: b\r\nContent-Length: 1\n\na",
    b"HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\na",
    *(b"HTTP/1.1 200 OK\nA: b" + end for end in (b"\rc\n\n", b"\n c\n\n")),
    # lengths that are not one
    *(
        OK + b"Content-Length: " + length + b"\r\n\r\na"
        for length in (
            *(b"1, 2", b"1,", b"-1", b"1" + b"0" * 18, b"9" * 20),
            *(b"1\r\nContent-Length: 2", b"1\r\nContent-Length: 01", b"1\r\nContent-Length : 1"),
            b"1\r\nContent-Length: 1\r\n 1",
        )
    ),
    *(OK + b"Content-Length: 1\r\n" * times + CHUNKED[len(OK) :] + b"0\r\n\r\n" for times in (1, 2)),
    # codings that are not known
    *(OK + b"Transfer-Encoding: %b\r\n\r\nhello" % coding for coding in (b"foo", b"identity")),
    OK + b"Transfer-Encoding: foo\r\nContent-Length: 1\r\n\r\na",
    *(
        OK + b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % coding
        for coding in (b"foo, chunked", b"chunked\r\nTransfer-Encoding: chunked", b"chunked;a=b")
    ),
    # chunks
    *(CHUNKED + size + b"\r\n" for size in (b"1 1", b" 1", b"-1\r\n", b"1\r\nab", b"1" + b"0" * 16)),
    CHUNKED + b"1\na\r\n0\r\n\r\n",
    # lines
    *(OK + line + b"\r\n\r\n" for line in (b" A: b", b"A: b\r\n c", b"A b", b": b", b"A: b\rc")),
    b"HTTP/1.1 103 Early\r\n\r\n" * (MAX_INTERIM + 1),
    OK + b"A: " + b"b" * MAX_HEAD + b"\r\n\r\n",
    OK + b"A: b\r\n" * (MAX_HEAD // 5) + b"\r\n",
    b"HTTP/1.1 103 Early\r\nA: " + b"b" * MAX_HEAD + b"\r\n\r\n",
]


def whole(data):
    return [data]


def octet_by_octet(data):
    return [data[place : place + 1] for place in range(len(data))]


def by_sevens(data):
    return [data[place : place + 7] for place in range(0, len(data), 7)]


def parts(told, reader):
    return told.heads, told.content, reader.reading.trailers


def is_complete(reader):
    return isinstance(reader.reading.state, Complete)


def is_reusable(reader):
    return is_complete(reader) and reader.reading.state.reusable


def read(reader, pieces, expected):
    told = Told()
    reader.expect(told, asking(is_head=expected.is_head, upgrades=expected.upgrades))
    assert not reader.reading.began
    for piece in pieces:
        assert not is_complete(reader)
        assert not reader.reading.fault
        reader.feed(piece)
    assert reader.reading.began
    return told


@pytest.mark.parametrize("cut", [whole, by_sevens, octet_by_octet])
@pytest.mark.parametrize("data", RESPONSES)
def test_a_response_is_read_however_it_is_cut(data, cut):
    expected = RESPONSES[data]
    reader = ResponseReader(MAX_HEAD)
    for _ in range(3 if expected.reusable else 1):
        told = read(reader, cut(data), expected)
        assert parts(told, reader) == expected.parts
        assert reader.reading.fault == ""
        assert is_complete(reader) == (expected.ends == "itself")
        assert is_reusable(reader) == expected.reusable
    if expected.ends == "connection":
        assert reader.close()


@pytest.mark.parametrize("surplus", [b"x", OK + b"Content-Length: 1\r\n\r\nx", b"\r\n", b"\0"])
@pytest.mark.parametrize("data", [data for data, expected in RESPONSES.items() if expected.ends == "itself"])
def test_bytes_behind_a_response_are_no_part_of_it(data, surplus):
    expected = RESPONSES[data]
    reader = ResponseReader(MAX_HEAD)
    told = read(reader, [data + surplus], expected)
    assert parts(told, reader) == expected.parts
    assert is_complete(reader)
    assert not is_reusable(reader)


@pytest.mark.parametrize("data", [data for data, expected in RESPONSES.items() if not expected.upgrades])
def test_a_response_cut_short_is_never_complete(data):
    expected = RESPONSES[data]
    blank = max(data.rfind(b"\r\n\r\n") + 4, data.rfind(b"\n\n") + 2)
    start = blank if expected.ends == "connection" else len(data)
    for length in range(1, start):
        reader = ResponseReader(MAX_HEAD)
        read(reader, [data[:length]], expected)
        assert not is_complete(reader)
        assert not reader.close()


@pytest.mark.parametrize("cut", [whole, by_sevens])
@pytest.mark.parametrize("data", FAULTS)
def test_invalid_responses_are_faults_however_they_are_cut(data, cut):
    reader, told = ResponseReader(MAX_HEAD), Told()
    reader.expect(told, asking())
    for piece in cut(data):
        reader.feed(piece)
        if reader.reading.fault:
            break
    assert reader.reading.fault
    assert not is_complete(reader)
    assert not reader.close()


@pytest.mark.pure("a function's calls are counted")
@pytest.mark.parametrize(
    "head",
    [
        OK + b"a: b\r\n" * 9000 + b"\r\n",
        b"HTTP/1.1 200 OK\n" + b"a: b\n" * 9000 + b"\n",
        b"\r\n" * 25_000 + OK + b"\r\n",
    ],
    ids=["CRLF", "LF", "empty lines before it"],
)
def test_a_head_in_pieces_is_parsed_a_few_times(monkeypatch, head):
    looked = []

    def counted(octets):
        looked.append(len(octets))
        return whole_head(octets)

    monkeypatch.setattr("univocal.origin.http1.whole_head", counted)
    reader, told = ResponseReader(1 << 16), Told()
    reader.expect(told, asking())
    for octets in by_sevens(head):
        reader.feed(octets)
    assert [status for status, _ in told.heads] == [200]
    assert sum(looked) < 4 * len(head)


@cases("endless", b"0\r\n" + b"A: b\r\n" * MAX_HEAD, b"1;" + b"x" * MAX_HEAD, b"0\r\nA: " + b"b" * MAX_HEAD)
def test_chunked_content_is_no_place_for_more(endless):
    reader, told = ResponseReader(MAX_HEAD), Told()
    reader.expect(told, asking())
    reader.feed(CHUNKED)
    for piece in range(0, len(endless), 100):
        reader.feed(endless[piece : piece + 100])
        if reader.reading.fault:
            break
    assert reader.reading.fault


def cut_at(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


@given(st.sampled_from(list(RESPONSES)), st.lists(st.integers(min_value=0), max_size=8))
def test_a_response_is_read_alike_however_it_is_cut(data, places):
    expected, reader = RESPONSES[data], ResponseReader(MAX_HEAD)
    told = read(reader, cut_at(data, places), expected)
    assert parts(told, reader) == expected.parts


@given(
    any_of(*RESPONSES, *FAULTS[:20]),
    st.lists(st.tuples(st.integers(min_value=0), st.binary(max_size=3)), max_size=3),
    st.lists(st.integers(min_value=0), max_size=3),
)
def test_damaged_responses_are_read_alike_however_they_are_cut(data, damage, places):
    for number, octets in damage:
        place = number % len(data)
        data = data[:place] + octets + data[place + 1 :]
    outcomes = []
    for pieces in ([data], cut_at(data, places)):
        reader, told = ResponseReader(MAX_HEAD), Told()
        reader.expect(told, asking(upgrades=True))
        for piece in pieces:
            if not (is_complete(reader) or reader.reading.fault):
                reader.feed(piece)
        is_fault = bool(reader.reading.fault) and not is_complete(reader)
        outcomes.append((told, is_complete(reader), is_fault))
    assert outcomes[0] == outcomes[1]


LENGTHS = [
    OK + b"Content-Length: %d\r\n\r\n%b" % (len(content), content) for content in (b"ab", b"cd", b"e", b"")
]


@contextlib.contextmanager
def nothing_known():
    """Have readers parse every head: those that any of them remembers are put aside."""
    known = http1._known.copy()
    http1._known.clear()
    try:
        yield
    finally:
        http1._known.update(known)


def test_a_head_repeated_to_the_byte_is_not_parsed_again(monkeypatch):
    reader, responses = ResponseReader(MAX_HEAD), []
    monkeypatch.setattr(Told, "start", lambda _, response: responses.append(response))
    for content in (b"ab", b"cd", b"ef", b"gh"):
        told = read(reader, [OK + b"Content-Length: 2\r\n\r\n" + content], Read([]))
        assert told.content == content
        assert is_reusable(reader)
    assert responses[1] is responses[2] is responses[3] is not responses[0]
    read(reader, [OK + b"Content-Length: 3\r\n\r\nabc"], Read([]))
    assert responses[4].fields == [(b"content-length", b"3")]


def test_a_head_that_others_take_is_too_large_here():
    data = OK + b"X: %b\r\nContent-Length: 1\r\n\r\nx" % (b"a" * (MAX_HEAD + 100))
    generous, strict = ResponseReader(2 * MAX_HEAD), ResponseReader(MAX_HEAD)
    for _ in range(3):
        read(generous, [data], Read([]))
    assert is_reusable(generous)
    strict.expect(told := Told(), asking())
    strict.feed(data)
    assert strict.reading.fault == http1.HEAD_TOO_LARGE
    assert told == Told()


def test_line_ends_behind_content_are_part_of_no_head():
    reader = ResponseReader(MAX_HEAD)
    for _ in range(3):
        read(reader, [OK + b"Content-Length: 2\r\n\r\n\n\n" + b"\n"], Read([]))
    told = read(reader, [OK + b"Content-Length: 2\r\n\r\n\na" + b"b"], Read([]))
    assert told.content == b"\na"
    assert not is_reusable(reader)


def test_a_repeated_head_answers_a_HEAD_without_content():
    reader = ResponseReader(MAX_HEAD)
    for _ in range(3):
        read(reader, [OK + b"Content-Length: 1\r\n\r\nx"], Read([]))
    told = read(reader, [OK + b"Content-Length: 1\r\n\r\nx"], Read([], is_head=True))
    assert told.content == b""
    assert is_complete(reader)
    assert not is_reusable(reader)


@pytest.mark.parametrize("fails", ["start", "write"])
def test_a_sink_may_fail_at_a_repeated_head(monkeypatch, fails):
    reader, error = ResponseReader(MAX_HEAD), ValueError("the sink")
    for _ in range(3):
        read(reader, [OK + b"Content-Length: 1\r\n\r\nx"], Read([]))

    def failing(*_):
        raise error

    monkeypatch.setattr(Told, fails, failing)
    read(reader, [OK + b"Content-Length: 1\r\n\r\nx"], Read([]))
    assert isinstance(reader.reading.state, Stopped)
    assert reader.reading.fault
    assert reader.reading.error is error
    assert not is_reusable(reader)


@given(
    st.lists(
        st.tuples(
            any_of(*LENGTHS, *(data for data, one in RESPONSES.items() if one.reusable)),
            st.lists(st.integers(min_value=0), max_size=1),
        ),
        max_size=12,
    )
)
def test_a_connection_remembers_nothing_that_changes_a_response(responses):
    reader = ResponseReader(MAX_HEAD)
    for data, places in responses:
        fresh = ResponseReader(MAX_HEAD)
        told = read(reader, cut_at(data, places), Read([]))
        with nothing_known():
            assert told == read(fresh, cut_at(data, places), Read([]))
        assert is_reusable(reader) is is_reusable(fresh) is True
        assert reader.reading.trailers == fresh.reading.trailers


@given(
    any_of(*LENGTHS, *(data for data, one in RESPONSES.items() if one.reusable)),
    st.lists(st.tuples(st.integers(min_value=0), st.binary(max_size=3)), max_size=2),
    st.lists(st.integers(min_value=0), max_size=1),
)
def test_a_remembered_head_makes_no_damaged_one_valid(data, damage, places):
    remembering, fresh = ResponseReader(MAX_HEAD), ResponseReader(MAX_HEAD)
    for _ in range(3):
        read(remembering, [data], Read([]))
    for number, octets in damage:
        place = number % len(data)
        data = data[:place] + octets + data[place + 1 :]
    outcomes = []
    for reader, known in ((remembering, contextlib.nullcontext()), (fresh, nothing_known())):
        told = Told()
        reader.expect(told, asking())
        with known:
            for piece in cut_at(data, places):
                if not (is_complete(reader) or reader.reading.fault):
                    reader.feed(piece)
        reading = reader.reading
        stage = type(reading.state), is_reusable(reader)
        outcomes.append((told, stage, bool(reading.fault), reading.trailers))
    assert outcomes[0] == outcomes[1]


# The end of a response's head, and its new spelling: whole, in pieces, and invalid


@cases(
    "octets",
    b"SSH-2.0-OpenSSH_9.6",
    b"\x16\x03\x01",
    b"<html>",
    b"HTTP/2",
    b"HTTP/0.9 200 OK\r\n\r\n",
    b"RTSP/1.0 200 OK\r\n\r\n",
    b"ICE/1.0 200 OK\r\n\r\n",
    b"http/1.1 200 OK\r\n\r\n",
    b" HTTP/1.1 200 OK\r\n\r\n",
    b"\rHTTP/1.1 200 OK\r\n\r\n",
    # a line's end for one, a part of a value for another
    OK + b"A: b\nC",
    OK + b"A: b\n\n",
    OK + b"\nContent",
    b"HTTP/1.1 200 OK\nA: b\r",
    b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
    b"HTTP/1.1 200 OK\nA: b\rc\n\n",
    b"HTTP/1.1 200 O\rK\nA: b\n\n",
)
def test_an_invalid_head_is_known_early(octets):
    with pytest.raises(ValueError, match=r"no head|two kinds"):
        whole_head(octets)


@cases(
    "octets, ordinary",
    (OK, True),
    (b"HTTP/1.0 503 No\r\n", True),
    (b"HTTP/1.1 103 Early\r\n", False),
    (b"HTTP/1.2 200 OK\r\n", False),
    (b"RTSP/1.0 200 OK\r\n", False),
)
def test_ordinary_status_lines_need_no_second_look(octets, ordinary):
    assert octets.startswith(FINAL) is ordinary
