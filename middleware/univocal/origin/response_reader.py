"""The reader of responses: it takes bytes and tells of parts. It has no socket.

llhttp parses heads when they are whole, in the spellings of old servers, too, and takes chunks apart. It is
strict: every recipient reads these bytes in the same way, if at all. Content of a known length is counted. A
head that is repeated to the byte is not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, cast

import httptools

from univocal.http.bonds import authenticates_connection
from univocal.http.fields import LENGTH_DIGITS
from univocal.http.framing import field_octets
from univocal.http.messages import Fields, Received, Response
from univocal.http.roles import Answer, OriginRequest
from univocal.http.tables import moves
from univocal.http.upgrade import Line, Switching

# The beginnings of a final response's head that needs no second look.
FINAL: Final = tuple(b"HTTP/1.%d %d" % (minor, hundreds) for minor in (1, 0) for hundreds in (2, 3, 4, 5))

_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*")
_BEGINNING: Final = b"HTTP/1."
_LATER_VERSION: Final = re.compile(rb"HTTP/1\.[2-9](?= )")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:([^\r\n]*)")


class PartialHead:
    """The bytes of a head that is not whole yet."""

    def __init__(self) -> None:
        self.held = bytearray()
        self._looked = 0  # bytes in which the head's end was looked for

    def joined(self, data: bytes) -> bytes | None:
        """All bytes so far, `data` being the latest; None while the head cannot be whole.

        All of them are looked at again only when they have doubled, or may be whole.
        """
        if not self.held:
            return data
        before = len(self.held)
        self.held += data
        if len(self.held) < 2 * self._looked and not _may_end(self.held, before):
            return None
        data = bytes(self.held)
        self.held.clear()
        return data

    def keep(self, data: bytes) -> None:
        """Hold the bytes of a head whose end was looked for in vain."""
        self.held += data[_empty_lines(data) :]
        self._looked = len(self.held)


def _empty_lines(octets: bytes) -> int:
    """The bytes of the empty lines with which `octets` begin."""
    return _EMPTY_LINES.match(octets).end()  # type: ignore[union-attr]


def _may_end(octets: bytearray, before: int) -> bool:
    """Tell whether what stands behind the first `before` bytes may make a head whole, or show a fault.

    That is the end of the first line, an empty line, or a line end of the other kind.
    """
    line_end = octets.find(b"\n")
    if line_end < 0 or line_end >= before:
        return line_end >= 0
    tail = octets[max(before - 3, line_end - 1) :]
    if tail[0] == 0x0A:
        del tail[0]  # without its CR
    if octets[line_end - 1] != 0x0D:
        return b"\n\n" in octets[before - 1 :] or b"\r" in tail
    return b"\n\r\n" in octets[before - 2 :] or tail.count(b"\n") != tail.count(b"\r\n")


def whole_head(octets: bytes) -> tuple[bytes, int] | None:
    """The head with which `octets` begin, as RFC 9112 has it, and how many bytes it took; None: not whole.

    Raises ValueError, with the reason, where these are no bytes of HTTP/1, or can be read in two ways.
    """
    start = _empty_lines(octets)
    begins = octets[start : start + len(_BEGINNING)]
    if not _BEGINNING.startswith(begins) and begins != b"\r":
        raise ValueError("no head of HTTP/1")
    line_end = octets.find(b"\n", start)
    if line_end < 0:
        return None
    bare = octets[line_end - 1] != 0x0D  # RFC 9112 §2.2: a single LF may be a line's end
    end = octets.find(b"\n\n" if bare else b"\r\n\r\n", start)
    end = len(octets) if end < 0 else end + (2 if bare else 4)
    head = octets[start:end]
    # If both kinds of line end occur, some read one of them as part of a value.
    if (b"\r" in head) if bare else (head.count(b"\n") != head.count(b"\r\n")):
        raise ValueError("line ends of two kinds")
    if bare:
        head = head.replace(b"\n", b"\r\n")
    return (_respelled(head), end) if head.endswith(b"\r\n\r\n") else None


def _respelled(head: bytes) -> bytes:
    """A head of HTTP/1.1 with one Content-Length, where several say the same (RFC 9110 §2.5, §8.6)."""
    if _LATER_VERSION.match(head):
        head = b"HTTP/1.1" + head[len(b"HTTP/1.1") :]
    lines = _LENGTH.findall(head)
    lengths = {member.strip(b" \t") for line in lines for member in line.split(b",")}
    if len(lengths) != 1:
        return head
    once = iter([b"\r\nContent-Length: " + lengths.pop()])
    return _LENGTH.sub(lambda _: next(once, b""), head)


HEAD_TOO_LARGE: Final = "the response's head is too large: more than max_head_bytes"

MAX_INTERIM: Final = 32
_BLANK_LINE: Final = b"\r\n\r\n"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2}[ \r]")
# llhttp is fed each head as if it were a 204's, behind which it waits for no content (RFC 9112 §6.3).
_BARE: Final = b"204"
_BEFORE_CHUNKS: Final = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"
# The lengths of content that are none.
_CHUNKED: Final = -1
_TO_THE_END: Final = -2
# Bytes of a head that is remembered: an idle connection may keep it.
_LONGEST: Final = 2048
# Origin servers say so since HTTP/1.0 (RFC 2068 §19.7.1.1).
_TIMEOUT: Final = re.compile(rb"(?i)(?:\A|[,; \t])timeout[ \t]*=[ \t]*([0-9]{1,6})(?![0-9])")
_NO_REQUEST: Final = OriginRequest(b"", b"", [], Received(b"", b""))
_OLD: Final = b"HTTP/1.0"
_CONNECTION: Final = (b"connection", b"proxy-connection")
_TELLING: Final = frozenset(
    (b"transfer-encoding", b"content-length", b"www-authenticate", b"keep-alive", *_CONNECTION)
)


class Progress(Enum):
    """The stages of a response that is being read."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    HEAD = "the final response's head is still to come"
    CONTENT = "the content is being read"
    TUNNEL = "101: every octet to come is another protocol's (RFC 9110 §7.8)"
    COMPLETE = "the response has ended"
    STOPPED = "the rest is not wanted"


# Looking up an enumeration's member costs a call in Python 3.11.
_HEAD: Final = Progress.HEAD
_CONTENT: Final = Progress.CONTENT
_COMPLETE: Final = Progress.COMPLETE
_STOPPED: Final = Progress.STOPPED

# The stages that may follow each. A response whose end has come is stopped where its content cannot be taken.
_NEXT: Final[Mapping[Progress, tuple[Progress, ...]]] = {
    Progress.HEAD: (Progress.CONTENT, Progress.TUNNEL, Progress.STOPPED),
    Progress.CONTENT: (Progress.COMPLETE, Progress.STOPPED),
    Progress.TUNNEL: (Progress.STOPPED,),
    Progress.COMPLETE: (Progress.STOPPED,),
    Progress.STOPPED: (Progress.STOPPED,),
}
_MOVES: Final = moves(_NEXT)


class ReadResponse:
    """One response as it is read: its stage, and everything that is known of it so far.

    - `fault` says why the bytes are no response; `error` is the sink's exception.
    - `began` is true once a byte was read.
    - `progress` is true if the last bytes were more than a part of a head or of a chunk's frame.
    - `continued` is true once the requested 100 (Continue) came.
    - `challenges` is true if it asks for credentials of the connection (NTLM, Negotiate).
    - `grants` are the seconds for which the origin server keeps an idle connection, -1 if it does not say.
    - `takes` is false while the sink takes none.
    - `reusable` is true once the response is complete and another may follow (RFC 9112 §9.3).
    """

    def __init__(self) -> None:
        self.stage = _HEAD
        self.began = self.progress = self.continued = self.reusable = self.challenges = False
        self.takes = True
        self.fault = ""
        self.error: BaseException | None = None
        self.version = b""
        self.trailers: Fields = []
        self.grants = -1
        self.interims = 0  # interim responses before it
        self.closes = False  # one of them said that the connection closes
        self.persists = False  # the final head lets the connection persist
        self.barren = 0  # bytes without progress

    def fail(self, fault: str) -> None:
        """Record a fault; the first one stays."""
        self.fault = self.fault or fault


def _names(options: bytes, option: bytes) -> bool:
    """Tell whether an option is among those that Connection names, in lower case (RFC 9110 §7.6.1)."""
    return option in [each.strip(b" \t") for each in options.split(b",")]


class Chunks:
    """Takes chunked content apart by llhttp, which calls nothing of Python's for a chunk.

    `begin` begins the content of a response, behind one that `is_over` and that nothing `follows`. It is over
    once the `trailers` are complete. The callbacks know nothing of this object: circles wait for the garbage
    collector.
    """

    def __init__(self) -> None:
        pieces, ends, rests, trailers = list[bytes](), list[int](), list[bool](), Fields()
        self._pieces, self._ends, self._rests, self.trailers = pieces, ends, rests, trailers
        self._tail = b""  # the last bytes that have come
        self.is_over = self.follows = False
        self.fault = ""

        def on_header(name: bytes, value: bytes) -> None:
            if not ends:
                trailers.append((name.lower(), value.rstrip(b" \t")))

        self.on_header: Callable[[bytes, bytes], None] = on_header
        self.on_body: Callable[[bytes], None] = pieces.append
        self.on_message_begin: Callable[[], None] = rests.clear
        self.on_message_complete: Callable[[], None] = lambda: ends.append(len(pieces))
        self._parser = httptools.HttpResponseParser(self)
        # RFC 9112 §7.1.1: blanks behind a chunk's size are bad, and have one meaning. A trailer named
        # Connection says nothing of the connection (RFC 9110 §6.5.1), so the parser reads on behind it.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True, lenient_keep_alive=True)

    def begin(self) -> None:
        """Begin the content of a response."""
        self._ends.clear()
        self._parser.feed_data(_BEFORE_CHUNKS)
        self.trailers.clear()
        self._rests.append(True)
        self._tail, self.is_over = b"", False

    def read(self, octets: bytes) -> bytes:
        """The content of these chunks, up to a `fault` or the end."""
        pieces, ends, fault = self._pieces, self._ends, ""
        try:
            self._parser.feed_data(octets)
        except httptools.HttpParserError as error:
            fault = str(error) or "malformed"
        if ends:
            del pieces[ends[0] :]
            # llhttp passes over line ends in silence.
            tail = self._tail + octets[-6:]
            is_exact = tail.endswith(_BLANK_LINE) and not tail.endswith(b"\r\n" + _BLANK_LINE)
            self.is_over, self.follows = True, bool(fault) or not (self._rests and is_exact)
        else:
            self.fault = fault
            self._tail = (self._tail + octets[-6:])[-6:]
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return content


class KnownHead:
    """A final response's head and what was read of it, of a response behind which another may follow."""

    __slots__ = ("grants", "length", "octets", "response", "version")

    def __init__(self, octets: bytes, response: Response, length: int, reading: ReadResponse) -> None:
        self.octets = octets
        self.response = response
        self.length = length  # of the content
        self.version = reading.version
        self.grants = reading.grants


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `expect` begins a response, whose state is `reading` from then on; `feed` takes bytes, `close` the end of
    the connection. `max_head` bounds the bytes of a head, of the trailers, and of chunk extensions in a row.
    `line` is the connection, of which a 101 tells.

    An origin server often repeats a head to the byte. The last one is remembered if the head before was as
    long. A head that is remembered is the same `Response` each time.
    """

    def __init__(self, max_head: int, line: Line | None = None) -> None:
        self._max_head = max_head
        self._line = line
        self._sink: Answer = cast("Any", None)  # until a response is expected
        self._request = _NO_REQUEST
        self._write: Callable[[bytes], bool] = cast("Any", None)
        self._partial = PartialHead()
        self._fields: Fields = []  # of the last section
        # Holds something until a head is complete: so the parser tells of that without a call into Python.
        self._unread: list[bool] = []
        self.on_message_complete: Callable[[], None] = self._unread.clear
        self._left = 0  # bytes of content that are to come, or `_TO_THE_END`
        self._chunks: Chunks | None = None
        self._known: KnownHead | None = None
        self._length = 0  # bytes of the last head
        self.reading = ReadResponse()
        self._parser = self._new_parser()

    def expect(self, sink: Answer, request: OriginRequest) -> None:
        """Tell `sink` of the next response, which answers `request`."""
        self._sink, self._request, self._write = sink, request, sink.write
        self._partial.held.clear()
        self.reading = ReadResponse()

    def feed(self, data: bytes) -> None:
        """Read `data`: moves `stage` forward, and sets `fault` where it is no response."""
        reading, known, begins = self.reading, self._known, not self.reading.began
        reading.began, reading.progress = True, False
        try:
            if reading.stage is not _HEAD:
                self._read_on(data, 0)
            elif (
                begins
                and known is not None
                and data.startswith(known.octets)
                and self._request.method != b"HEAD"
            ):
                reading.version, reading.grants, reading.persists = known.version, known.grants, True
                self._read_on(data, len(known.octets), known.response, known.length)
            else:
                self._read_heads(data)
        except Exception as error:  # the sink's
            reading.stage = _MOVES[reading.stage, _STOPPED]
            reading.fail("the sink failed")
            reading.error = error
        if reading.progress:
            reading.barren = 0
            return
        reading.barren += len(data)
        if reading.barren > self._max_head:
            reading.fail(HEAD_TOO_LARGE)

    def _read_heads(self, data: bytes) -> None:
        """Read the final response's head, interim ones before it, and what stands behind it."""
        reading, begins = self.reading, not self._partial.held
        joined = data if begins else self._partial.joined(data)
        if joined is None:
            return
        data = joined
        while data and reading.stage is _HEAD and not reading.fault:
            end = data.find(_BLANK_LINE) + 4 if data.startswith(FINAL) else 0
            if end < 4 or self._fault_of(head := data[:end]):
                try:
                    whole = whole_head(data)
                except ValueError as error:
                    reading.fail(str(error))
                    return
                if whole is None:
                    self._partial.keep(data)
                    return
                head, end = whole
                if fault := self._fault_of(head):
                    reading.fail(fault)
                    return
            reading.progress = True
            status, fields = int(head[9:12]), self._fields
            if end > self._max_head and field_octets(fields) > self._max_head:
                reading.fail(HEAD_TOO_LARGE)
            elif status < 200 and status != 101:
                self._pass_on(status, fields)
            elif status == 101 and not self._request.upgrades:
                reading.fail("a protocol that no request asked for")
            else:
                reading.version = head[:8]
                remembers, self._length = begins and end == self._length, end
                self._read_final(status, fields, data, end, remembers=remembers)
                return
            data, begins = data[end:], False

    def _fault_of(self, head: bytes) -> str:
        """Parse a whole head into `_fields`; the reason if it is none."""
        if _STATUS_LINE.match(head) is None:
            return "a version or status that no request asked for"
        self._fields, self._unread[:] = [], [True]
        try:
            self._parser.feed_data(head[:9] + _BARE + head[12:])
        except httptools.HttpParserError as error:
            self._parser = self._new_parser()
            return str(error) or "malformed"
        return "malformed" if self._unread else ""

    def _new_parser(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_keep_alive=True)  # it reads on behind Connection: close
        return parser

    def close(self) -> bool:
        """Handle the end of the connection; True: so the response ends (RFC 9112 §6.3, rule 8)."""
        stage = self.reading.stage
        if self.reading.fault:
            return False
        return stage is Progress.TUNNEL or (stage is _CONTENT and self._left == _TO_THE_END)

    def stop(self) -> None:
        """Tell the sink nothing more."""
        self.reading.stage = _MOVES[self.reading.stage, _STOPPED]

    def end(self) -> None:
        """Read no more, and let go of all that knows the reader: circles wait for the garbage collector."""
        self.reading.stage = _MOVES[self.reading.stage, _STOPPED]
        self._line = self._known = self._chunks = None
        self._request = _NO_REQUEST
        self._parser = self._sink = self._write = cast("Any", None)

    def divert(self, write: Callable[[bytes], bool]) -> None:
        """Pass the bytes of another protocol, which follow a 101, to `write`."""
        self._write = write

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; called by the parser."""
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def _read_final(self, status: int, fields: Fields, data: bytes, end: int, *, remembers: bool) -> None:
        """Tell of the final response's head, which ends at a place, and of what stands behind it."""
        reading, bodiless = self.reading, self._request.method == b"HEAD" or status in (204, 304)
        coded, length, options = False, _TO_THE_END, b""
        for name, value in fields:
            if name not in _TELLING:
                continue
            if name == b"transfer-encoding":
                # No request of ours has TE: what is coded otherwise would be passed on as what it is not.
                if coded or value.lower() != b"chunked":
                    reading.fail("a transfer coding that was not asked for")
                    return
                coded, length = True, _CHUNKED
            elif name == b"content-length":
                if len(value) > LENGTH_DIGITS:
                    reading.fail("a Content-Length that is none")
                    return
                length = int(value)
            elif name == b"www-authenticate":
                reading.challenges = reading.challenges or authenticates_connection(value)
            elif name == b"keep-alive":
                granted = _TIMEOUT.search(value)
                reading.grants = -1 if granted is None else int(granted[1])
            else:
                options += b"," + value.lower()
        # What an origin server sends behind a response that has no content would be read as the next one. It
        # may come late, when another request is under way: such a connection is not used again. Nor is one
        # with the framing of a coded HTTP/1.0 message, which is faulty (RFC 9112 §6.1).
        faulty = bodiless or status == 101 or length == _TO_THE_END or (coded and reading.version == _OLD)
        ends = b"close" in options and _names(options, b"close")
        ends = ends or (reading.version == _OLD and not _names(options, b"keep-alive"))
        reading.persists = not (faulty or ends or reading.closes)
        if status == 101 and self._line is not None:
            response: Response = Switching(status, fields, self._line)
        else:
            response = Response(status, fields)
        if remembers and end <= _LONGEST and reading.persists and not reading.challenges:
            self._known = KnownHead(data[:end], response, length, reading)
        self._read_on(data, end, response, 0 if bodiless else length)

    def _read_on(self, data: bytes, at: int, response: Response | None = None, length: int = 0) -> None:
        """Tell of a final `response`, with content of such a length, and of what stands behind `at`.

        That is content, or another protocol's.
        """
        reading, content, is_over, follows = self.reading, b"", False, False
        if response is not None:
            reading.stage = _MOVES[_HEAD, Progress.TUNNEL if response.status == 101 else _CONTENT]
            reading.progress = True
            self._left = length
            if length == _CHUNKED:
                self._chunks = self._chunks or Chunks()
                self._chunks.begin()
            self._sink.start(response)
        left, chunks = self._left, self._chunks
        if reading.stage is Progress.TUNNEL:
            content = data[at:]
        elif reading.stage is not _CONTENT:
            return
        elif left == _CHUNKED and chunks is not None:
            content = chunks.read(data[at:])
            is_over, follows = chunks.is_over, chunks.follows
            reading.fail(chunks.fault)
            if is_over:
                reading.trailers += chunks.trailers
        elif left == _TO_THE_END:
            content = data[at:]
        else:
            content = data[at : at + left]
            self._left = left - len(content)
            is_over, follows = not self._left, at + left < len(data)
        if content:
            reading.progress = True
            reading.takes = self._write(content)
        if is_over and reading.stage is _CONTENT:
            reading.stage, reading.progress = _MOVES[_CONTENT, _COMPLETE], True
            reading.reusable = reading.persists and not follows

    def _pass_on(self, status: int, fields: Fields) -> None:
        """Tell of an interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        reading = self.reading
        reading.interims += 1
        told = b",".join([value.lower() for name, value in fields if name in _CONNECTION])
        reading.closes = reading.closes or _names(told, b"close")
        if reading.interims > MAX_INTERIM:
            reading.fail("too many interim responses")
        elif status == 100 and self._request.expects_continue:
            reading.continued = True
        else:
            self._sink.interim(status, fields)
