"""The reader of responses: it takes bytes and tells of parts, by httptools' parser. It has no socket.

A head is parsed when it is whole, in the spellings of old servers, too. The parser is strict: every recipient
reads these bytes in the same way, if at all. A head that is repeated to the byte is not parsed again.
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
from univocal.http.messages import Fields, Response, values
from univocal.http.roles import Answer
from univocal.http.tables import moves
from univocal.http.upgrade import Line, Switching

# The beginnings of a final response's head that needs no second look.
ORDINARY: Final = tuple(b"HTTP/1.%d %d" % (minor, hundreds) for minor in (1, 0) for hundreds in (2, 3, 4, 5))

_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*")
_BEGINNING: Final = b"HTTP/1."
_LATER_VERSION: Final = re.compile(rb"HTTP/1\.[2-9](?= )")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:([^\r\n]*)")


class RequestHead:
    """The bytes of a head, the length of the content that follows, and the way to treat the request.

    The length is in bytes; None: the content is chunked. With `authenticates` it has credentials for all of
    its connection.
    """

    def __init__(
        self,
        wire: bytes,
        length: int | None,
        expects_continue: bool,
        upgrades: bool,
        idempotent: bool,
        is_head: bool,
        authenticates: bool = False,
    ) -> None:
        self.expects_continue = expects_continue  # RFC 9110 §10.1.1
        self.upgrades = upgrades
        self.is_head = is_head
        self.authenticates = authenticates
        self.wire = wire
        self.length = length
        self.idempotent = idempotent


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
_VERSIONS: Final = {"1.0": b"HTTP/1.0", "1.1": b"HTTP/1.1"}
# Bytes of a head that is remembered: an idle connection may keep it.
_LONGEST: Final = 2048
# Origin servers say so since HTTP/1.0 (RFC 2068 §19.7.1.1).
_TIMEOUT: Final = re.compile(rb"(?i)(?:\A|[,; \t])timeout[ \t]*=[ \t]*([0-9]{1,6})(?![0-9])")
_NO_REQUEST: Final = RequestHead(b"", 0, False, False, True, False)


class Progress(Enum):
    """The stages of a response that is being read."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    HEAD = "the final response's head is still to come"
    CONTENT = "the content is being read"
    TUNNEL = "101: every octet to come is another protocol's (RFC 9110 §7.8)"
    COMPLETE = "the response has ended"
    STOPPED = "nobody wants the rest"


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
        self.head: Fields = []
        self.trailers: Fields = []
        self.grants = -1
        self.interims = 0  # interim responses before it
        self.closes = False  # one of them said that the connection closes
        self.persists = False  # the final head lets the connection persist
        self.surplus = False  # there were bytes that belong to no response
        self.barren = 0  # bytes without progress

    def fail(self, fault: str) -> None:
        """Record a fault; the first one stays."""
        self.fault = self.fault or fault


class KnownHead:
    """A final response's head and what was read of it, of a response that came whole in `size` bytes."""

    __slots__ = ("grants", "length", "octets", "response", "size", "version")

    def __init__(self, octets: bytes, size: int, response: Response, reading: ReadResponse) -> None:
        self.octets = octets
        self.length = len(octets)
        self.size = size
        self.response = response
        self.version = reading.version
        self.grants = reading.grants


class LastHead:
    """The head of the last response of a connection: its length if all of its content came with it, or 0.

    `known` is the head itself, where the one before was as long. `response` is the one that is being read.
    """

    def __init__(self) -> None:
        self.known: KnownHead | None = None
        self.length = 0
        self.response: Response | None = None

    def remembered(self, data: bytes, length: int, reading: ReadResponse) -> KnownHead | None:
        """The head of so many bytes of a response that is all of `data`, if it may be remembered."""
        response = self.response
        if length > _LONGEST or response is None or values(reading.head, b"transfer-encoding"):
            return None
        if reading.challenges:
            return None
        if data.find(_BLANK_LINE) + len(_BLANK_LINE) != length:
            return None  # CRs and LFs behind the content, which the parser passed over, look like some of it
        return KnownHead(data[:length], len(data), response, reading)


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `expect` begins a response, whose state is `reading` from then on; `feed` takes bytes, `close` the end of
    the connection. `max_head` bounds the bytes of a head, of the trailers, and of chunk extensions in a row.
    `line` is the connection, of which a 101 tells.

    An origin server often repeats a head to the byte. The last one is remembered if it came in one read with
    all of its content, whose length it says. The head before has to be as long. A head that is remembered is
    the same `Response` each time.
    """

    def __init__(self, max_head: int, line: Line | None = None) -> None:
        self._max_head = max_head
        self._line = line
        self._sink: Answer = cast("Any", None)  # until a response is expected
        self._request = _NO_REQUEST
        self._write: Callable[[bytes], bool] = cast("Any", None)
        self._partial = PartialHead()
        self._fields: Fields = []  # of the section that is being read
        self._content = b""  # its last bytes
        self._ends: int | None = None  # the pieces before this one are of this response, which has ended
        self._last = LastHead()
        self.reading = ReadResponse()
        # Holds something between the end of a message and the beginning of the next: so the parser
        # tells of a beginning without a call into Python.
        self._ended: list[bool] = []
        # The content in the bytes that are being read: chunks may have one byte, and a call into Python for
        # each of them would keep others waiting.
        self._pieces: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self._pieces.append
        self.on_message_begin: Callable[[], None] = self._ended.clear
        self._parser = self._new_parser()

    def expect(self, sink: Answer, request: RequestHead) -> None:
        """Tell `sink` of the next response, which answers `request`."""
        self._sink, self._request, self._write = sink, request, sink.write
        self._content, self._ends, self._last.response = b"", None, None
        self._partial.held.clear()
        self.reading = reading = ReadResponse()
        self._fields = reading.trailers

    def feed(self, data: bytes) -> None:
        """Read `data`: moves `stage` forward, and sets `fault` where it is no response."""
        reading, last, begins = self.reading, self._last, not self.reading.began
        known = last.known
        reading.began, reading.progress = True, False
        if begins and known is not None and self._recall(known, data):
            return
        reading.barren += len(data)
        whole = data.startswith(ORDINARY) and data.find(_BLANK_LINE) >= 0
        if reading.stage is _HEAD and (self._partial.held or not whole):
            self._feed_heads(data)
            begins = False
        else:
            try:
                if reading.stage is Progress.TUNNEL:
                    self._pass_through(data)
                else:
                    self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                self._refused(data, error)
                begins = False
        if self._pieces:
            self._pass_on_content()
        if reading.stage is _COMPLETE:
            follows = not self._ended or (data[-1] in b"\r\n" and self._blank_lines_follow(data))
            reading.reusable = reading.persists and not (follows or reading.surplus)
            if begins and reading.reusable:
                length = len(data) - len(self._content)
                last.known = last.remembered(data, length, reading) if length == last.length else None
                last.length = length
            self._content = b""
        elif reading.progress:
            reading.barren = 0
        elif reading.barren > self._max_head:
            reading.fail(HEAD_TOO_LARGE)

    def _refused(self, data: bytes, error: httptools.HttpParserError) -> None:
        """Read a refused head once more, as `whole_head` gives it; else the response is malformed."""
        if self.reading.stage is _HEAD and not self.reading.fault:
            self._fields = []
            self._feed_heads(data)
        else:
            self._stopped(error)

    def _recall(self, known: KnownHead, data: bytes) -> bool:
        """Tell of a response whose head is the known one; False: it has another, or another content."""
        reading = self.reading
        if len(data) != known.size or not data.startswith(known.octets):
            return False
        if reading.stage is not _HEAD or self._request.is_head:
            return False
        reading.stage, reading.progress = _MOVES[_HEAD, _CONTENT], True
        reading.head, reading.version = known.response.fields, known.version
        reading.grants = known.grants
        try:
            self._sink.start(known.response)
            if reading.stage is _CONTENT:
                reading.stage = _MOVES[_CONTENT, _COMPLETE]
                if known.size > known.length:
                    reading.takes = self._write(data[known.length :])
                reading.reusable = reading.stage is _COMPLETE
        except Exception as error:
            self._fail_by_sink(error)
        return True

    def _feed_heads(self, data: bytes) -> None:
        """Read the final response's head, interim ones before it, and what stands behind it."""
        reading, joined = self.reading, self._partial.joined(data)
        if joined is None:
            return
        data = joined
        while data and reading.stage is _HEAD and not reading.fault:
            try:
                whole = whole_head(data)
            except ValueError as error:
                reading.fail(str(error))
                return
            if whole is None:
                self._partial.keep(data)
                return
            # A new one: behind an interim response nothing counts that it said of the connection.
            self._parser = self._new_parser()
            self._parse(whole[0])
            data = data[whole[1] :]
        if data and not reading.fault:
            self._parse(data)

    def _parse(self, octets: bytes) -> None:
        try:
            if self.reading.stage is Progress.TUNNEL:
                self._pass_through(octets)
            else:
                self._parser.feed_data(octets)
        except httptools.HttpParserUpgrade:
            pass  # 101: what follows is another protocol's, until the connection ends (RFC 9110 §7.8)
        except httptools.HttpParserError as error:
            self._stopped(error)

    def _stopped(self, error: httptools.HttpParserError) -> None:
        """Handle the parser's stop; after the response's end, within bytes of no response."""
        reading = self.reading
        reading.surplus = True
        reading.fail(str(error) or "malformed")
        if isinstance(error, httptools.HttpParserCallbackError):
            reading.error = error.__context__

    def _new_parser(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        # RFC 9112 §7.1.1: blanks behind a chunk's size are bad, and have one meaning.
        parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        return parser

    def close(self) -> bool:
        """Handle the end of the connection; True: so the response ends (RFC 9112 §6.3, rule 8)."""
        stage = self.reading.stage
        if self.reading.fault:
            return False
        return stage is Progress.TUNNEL or (stage is _CONTENT and self._ends_with_connection())

    def stop(self) -> None:
        """Tell the sink nothing more."""
        self.reading.stage = _MOVES[self.reading.stage, _STOPPED]

    def end(self) -> None:
        """Read no more, and let go of all that knows the reader: circles wait for the garbage collector."""
        self.reading.stage = _MOVES[self.reading.stage, _STOPPED]
        self._line = None
        self._last = LastHead()
        self._request = _NO_REQUEST
        self._parser = self._sink = self._write = self.on_body = cast("Any", None)

    def divert(self, write: Callable[[bytes], bool]) -> None:
        """Pass the bytes of another protocol, which follow a 101, to `write`."""
        self._write = write

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        reading = self.reading
        if reading.stage is not _HEAD or reading.fault:
            return
        fields, parser = self._fields, self._parser
        reading.progress = True
        if reading.barren > self._max_head and field_octets(fields) > self._max_head:
            reading.fail(HEAD_TOO_LARGE)
            return
        status = parser.get_status_code()
        version = _VERSIONS.get(parser.get_http_version())
        if version is None or not 100 <= status <= 599 or (status == 101 and not self._request.upgrades):
            reading.fail("a version or status that no request asked for")
        elif status < 200 and status != 101:
            self._pass_on(status)
        else:
            self._begin(status, version, fields)

    def _begin(self, status: int, version: bytes, fields: Fields) -> None:
        """Tell of the final response's head."""
        reading, is_head, coded = self.reading, self._request.is_head, None
        for name, value in fields:
            if name == b"transfer-encoding":
                # No request of ours has TE: what is coded otherwise would be passed on as what it is not.
                if coded is not None or value.lower() != b"chunked":
                    reading.fail("a transfer coding that was not asked for")
                    return
                coded = value
            elif name == b"content-length" and len(value) > LENGTH_DIGITS:
                reading.fail("a Content-Length that is none")
                return
            elif name == b"www-authenticate":
                reading.challenges = reading.challenges or authenticates_connection(value)
            elif name == b"keep-alive":
                granted = _TIMEOUT.search(value)
                reading.grants = -1 if granted is None else int(granted[1])
        reading.stage = _MOVES[_HEAD, Progress.TUNNEL if status == 101 else _CONTENT]
        # RFC 9112 §6.1: the framing of a coded HTTP/1.0 message is faulty
        faulty = version == b"HTTP/1.0" and coded is not None
        # What an origin server sends behind a response that has no content would be read as the next one. It
        # may come late, when another request is under way: such a connection is not used again.
        bodiless = is_head or status in (204, 304)
        reading.persists = not (
            status == 101 or bodiless or faulty or reading.closes or not self._parser.should_keep_alive()
        )
        reading.head, reading.version = fields, version
        reading.trailers = self._fields = []
        if status == 101 and self._line is not None:
            response: Response = Switching(status, fields, self._line)
        else:
            response = Response(status, fields)
        self._last.response = response
        self._sink.start(response)
        if is_head:
            self._end_without_content()

    def _pass_through(self, octets: bytes) -> None:
        """Pass on what is another protocol's."""
        self.reading.progress = True
        self.reading.takes = self._write(octets)

    def _pass_on_content(self) -> None:
        """Tell of the content that came in one read as of one piece."""
        reading, pieces = self.reading, self._pieces
        if self._ends is not None:
            reading.surplus = reading.surplus or len(pieces) > self._ends
            del pieces[self._ends :]
            self._ends = 0
        if pieces and (reading.stage is _CONTENT or reading.stage is _COMPLETE) and reading.error is None:
            reading.progress = True
            self._content = pieces[-1]
            try:
                reading.takes = self._write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            except Exception as error:
                self._fail_by_sink(error)
        pieces.clear()

    def _fail_by_sink(self, error: Exception) -> None:
        """End the response as failed by the sink, even if its last byte has come."""
        reading = self.reading
        reading.stage = _MOVES[reading.stage, _STOPPED]
        reading.fail("the sink failed")
        reading.surplus, reading.error = True, error

    def on_message_complete(self) -> None:
        if self.reading.stage is _CONTENT:
            self.reading.stage = _MOVES[self.reading.stage, _COMPLETE]
            self._ends = len(self._pieces)
            self._ended.append(True)
            self._fields = []

    def _pass_on(self, status: int) -> None:
        """Tell of an interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        reading = self.reading
        fields, self._fields = self._fields, []
        reading.interims += 1
        reading.closes = reading.closes or not self._parser.should_keep_alive()
        if reading.interims > MAX_INTERIM:
            reading.fail("too many interim responses")
        elif status == 100 and self._request.expects_continue:
            reading.continued = True
        else:
            self._sink.interim(status, fields)

    def _end_without_content(self) -> None:
        """The response to HEAD ends here, of which httptools has no notion (RFC 9110 §9.3.2)."""
        if self.reading.stage is not _STOPPED:
            self.reading.stage = _MOVES[self.reading.stage, _COMPLETE]
            self._ends = 0
            self._ended.append(True)
            self._fields = []

    def _ends_with_connection(self) -> bool:
        """Tell whether the content has no other end than the connection's."""
        return not (
            values(self.reading.head, b"transfer-encoding") or values(self.reading.head, b"content-length")
        )

    def _blank_lines_follow(self, data: bytes) -> bool:
        """Tell whether CRs and LFs, which the parser passes over in silence, stand behind the response."""
        if self._content and not values(self.reading.head, b"transfer-encoding"):
            return not data.endswith(self._content)
        return data.endswith(b"\r\n\r\n\r\n")
