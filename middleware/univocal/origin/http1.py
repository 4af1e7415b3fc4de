"""HTTP/1.1 towards origin servers (RFC 9112): heads of requests, and a reader of responses, without a socket.

llhttp parses heads when they are whole, in the spellings of old servers, too. It is strict: every recipient
reads these bytes in the same way, if at all. A reader of `http/content.py` reads the content. A head that is
repeated to the byte is not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import httptools

from univocal.http.bonds import authenticates_connection
from univocal.http.content import ALL_READ, READERS, ContentReader, Framing, ToTheEnd
from univocal.http.framing import field_octets
from univocal.http.grammar import TOKEN_OCTETS
from univocal.http.intermediary import Line, Switching
from univocal.http.messages import IDEMPOTENT, LENGTH_DIGITS, Fields, Received, Response, content_length_value
from univocal.http.roles import Answer, OriginRequest
from univocal.http.tables import moves, remember
from univocal.origin.failures import InvalidRequestError

# Makes a letter of each byte that a target may have, and of no other.
_LETTERS: Final = bytes([0x61 if octet > 0x20 and octet != 0x7F else 0 for octet in range(256)])
_TELLING_NAMES: Final = frozenset(
    {b"authorization", b"content-length", b"transfer-encoding", b"expect", b"upgrade"}
)

_NUL: Final = 0
# Clients use few combinations of names: so many are remembered, of at most so many bytes.
_MOST_FORMS: Final = 256
_LONGEST_NAMES: Final = 2048


class _Form:
    """The bytes of heads with fields of these names, in their order, around what differs.

    Raises InvalidRequestError unless each name is a token and one is Host.
    """

    def __init__(self, names: tuple[bytes, ...]) -> None:
        lowered = [name.lower() for name in names]
        if b"" in lowered or b"".join(lowered).translate(None, TOKEN_OCTETS):
            raise InvalidRequestError("a field name is no token")
        if lowered.count(b"host") != 1:
            raise InvalidRequestError("no Host field, or two")
        self.is_plain = _TELLING_NAMES.isdisjoint(lowered)  # the names say nothing that matters
        lines = [name.replace(b"%", b"%%") + b": %b\r\n" for name in names]
        self.template = b"".join((b"%b %b HTTP/1.1\r\n", *lines, b"\r\n"))


_forms: Final[dict[tuple[bytes, ...], _Form]] = {}


def spell(request: OriginRequest) -> None:
    """Spell a request's head, its target and fields byte for byte, and work out what they say of the message.

    Raises InvalidRequestError if it would not arrive as the one request that was meant.
    """
    method, target, fields = request.method, request.target, request.fields
    if not target.translate(_LETTERS).isalpha():
        raise InvalidRequestError("the request target is empty or has blanks or control characters")
    # The answer to CONNECT is a tunnel, not a response (RFC 9110 §9.3.6).
    if method not in IDEMPOTENT and (
        not method or method.translate(None, TOKEN_OCTETS) or method == b"CONNECT"
    ):
        raise InvalidRequestError("the method is no token, or CONNECT")
    names = tuple([name for name, _ in fields])
    form = _forms.get(names)
    if form is None:
        form = _Form(names)
        if sum(map(len, names)) <= _LONGEST_NAMES:
            remember(_forms, names, form, _MOST_FORMS)
    request.wire = wire = form.template % (method, target, *[value for _, value in fields])
    lines = len(fields) + 2  # with the request line and the blank one
    if wire.count(b"\n") != lines or wire.count(b"\r") != lines or _NUL in wire:
        raise InvalidRequestError("CR, LF or NUL within the request's head")
    request.length, request.expects_continue, request.upgrades, request.authenticates = 0, False, False, False
    if not form.is_plain:
        _read_fields(request)


def _read_fields(request: OriginRequest) -> None:
    """Work out what the fields say of the content, of the connection, and of another protocol."""
    names = [name.lower() for name, _ in request.fields]
    values = {name: value.strip(b" \t") for name, (_, value) in zip(names, request.fields, strict=True)}
    request.length = _content_length(names, values)
    request.expects_continue = values.get(b"expect", b"").lower() == b"100-continue"
    request.upgrades = b"upgrade" in values
    credentials = values.get(b"authorization")
    request.authenticates = credentials is not None and authenticates_connection(credentials)


def _content_length(names: list[bytes], values: dict[bytes, bytes]) -> int | None:
    """Bytes of content that follow; None: chunked (RFC 9112 §6)."""
    if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
        raise InvalidRequestError("the length of the content is told twice")
    if b"transfer-encoding" in values:
        if values[b"transfer-encoding"].lower() != b"chunked":
            raise InvalidRequestError("no transfer coding but chunked is spoken here")
        return None
    length = content_length_value(values.get(b"content-length", b"0"))
    if length is None:
        raise InvalidRequestError("Content-Length is no number")
    return length


# The beginnings of a final response's head that needs no second look.
FINAL: Final = tuple(b"HTTP/1.%d %d" % (minor, hundreds) for minor in (1, 0) for hundreds in (2, 3, 4, 5))

_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*")
_BEGINNING: Final = b"HTTP/1."
_LATER_VERSION: Final = re.compile(rb"HTTP/1\.[2-9](?= )")
_LENGTHS: Final = re.compile(rb"(?i)\r\ncontent-length:([^\r\n]*)")


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
    lines = _LENGTHS.findall(head)
    lengths = {member.strip(b" \t") for line in lines for member in line.split(b",")}
    if len(lengths) != 1:
        return head
    once = iter([b"\r\nContent-Length: " + lengths.pop()])
    return _LENGTHS.sub(lambda _: next(once, b""), head)


HEAD_TOO_LARGE: Final = "the response's head is too large: more than max_head_bytes"

MAX_INTERIM: Final = 32
_BLANK_LINE: Final = b"\r\n\r\n"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2}[ \r]")
# llhttp is fed each head as if it were a 204's, behind which it waits for no content (RFC 9112 §6.3).
_BARE: Final = b"204"
# Bytes of a head that is remembered, and the number of lengths of which one is.
_LONGEST: Final = 2048
_MOST: Final = 64
# Origin servers say so since HTTP/1.0 (RFC 2068 §19.7.1.1).
_TIMEOUT: Final = re.compile(rb"(?i)(?:\A|[,; \t])timeout[ \t]*=[ \t]*([0-9]{1,6})(?![0-9])")
_LENGTH: Final = Framing.LENGTH
_CHUNKS: Final = Framing.CHUNKS
_CLOSE: Final = Framing.CLOSE
_NO_REQUEST: Final = OriginRequest(b"", b"", [], Received(b"", b""))
_NO_ANSWER: Final[Answer] = cast("Any", None)
_OLD: Final = b"HTTP/1.0"
_CONNECTION: Final = (b"connection", b"proxy-connection")
_TELLING: Final = frozenset(
    (b"transfer-encoding", b"content-length", b"www-authenticate", b"keep-alive", *_CONNECTION)
)


class ReadingState:
    """A state of a response that is being read, with the data that it alone has."""


class Heads(ReadingState):
    """The final response's head is still to come, perhaps behind interim ones.

    - `partial` has the bytes of a head that is not whole; its end was looked for when they were `looked`.
    - `continued` is true once the requested 100 (Continue) came.
    - `interims` is the number of interim responses.
    - `closes` is true if one of them said that the connection closes.
    """

    partial: bytearray | None = None
    looked = 0
    continued = False
    interims = 0
    closes = False


class ReadContent(ReadingState):
    """The content is being read; if the connection `persists`, another response may follow."""

    def __init__(self, reader: ContentReader, persists: bool) -> None:
        self.reader = reader
        self.persists = persists


class Diverted(ReadingState):
    """101: every byte to come is another protocol's (RFC 9110 §7.8), and goes to `write`."""

    def __init__(self, write: Callable[[bytes], bool]) -> None:
        self.write = write


class Complete(ReadingState):
    """The response has ended; if the connection is `reusable`, another may follow (RFC 9112 §9.3)."""

    def __init__(self, reusable: bool) -> None:
        self.reusable = reusable


class Stopped(ReadingState):
    """The rest is not wanted."""


MOVES: Final[Mapping[type[ReadingState], Mapping[type[ReadingState], str]]] = {
    Heads: {
        ReadContent: "the final response's head",
        Diverted: "the head of a 101 that was asked for",
        Stopped: "`stop`",
    },
    ReadContent: {Complete: "the end of the content", Stopped: "`stop`, or the sink fails"},
    Diverted: {Stopped: "the connection ends"},
    Complete: {Stopped: "the connection ends, or the sink fails"},
    Stopped: {Stopped: "the connection ends"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)


class ReadResponse:
    """One response as it is read: its state, and everything that is known of it whatever state that is.

    - `fault` says why the bytes are no response; `error` is the sink's exception.
    - `began` is true once a byte was read.
    - `progress` is true if the last bytes were more than a part of a head or of a chunk's frame.
    - `challenges` is true if it asks for credentials of the connection (NTLM, Negotiate).
    - `grants` are the seconds for which the origin server keeps an idle connection, -1 if it does not say.
    - `takes` is false while the sink takes none.
    """

    def __init__(self, state: ReadingState) -> None:
        self.state = state
        self.began = self.progress = self.challenges = False
        self.takes = True
        self.fault = ""
        self.error: BaseException | None = None
        self.version = b""
        self.trailers: Fields = []
        self.grants = -1
        self.barren = 0  # bytes without progress

    def fail(self, fault: str) -> None:
        """Record a fault; the first one stays."""
        self.fault = self.fault or fault


def _names(options: bytes, option: bytes) -> bool:
    """Tell whether an option is among those that Connection names, in lower case (RFC 9110 §7.6.1)."""
    return option in [each.strip(b" \t") for each in options.split(b",")]


class KnownHead:
    """A final response's head and what was read of it, of a response behind which another may follow."""

    __slots__ = ("framing", "grants", "length", "octets", "response", "version")

    def __init__(
        self, octets: bytes, response: Response, framing: Framing, length: int, reading: ReadResponse
    ) -> None:
        self.octets = octets
        self.response = response
        self.framing = framing
        self.length = length  # of the content, if that is its framing
        self.version = reading.version
        self.grants = reading.grants


_known: Final[dict[int, KnownHead]] = {}  # by its length


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `expect` begins a response, whose state is `reading` from then on; `feed` takes bytes, `close` the end of
    the connection. `max_head` bounds the bytes of a head, of the trailers, and of chunk extensions in a row.
    `line` is the connection, of which a 101 tells.

    An origin server often repeats a head to the byte. The last one is remembered if the head before was as
    long. A head that is remembered is the same `Response` each time, for all connections.
    """

    def __init__(self, max_head: int, line: Line | None = None) -> None:
        self._max_head = max_head
        self._line = line
        self._sink = _NO_ANSWER  # until a response is expected
        self._request = _NO_REQUEST
        self._fields: Fields = []  # of the last section
        # Holds something until a head is complete: so the parser tells of that without a call into Python.
        self._unread: list[bool] = []
        self.on_message_complete: Callable[[], None] = self._unread.clear
        self._readers: dict[Framing, ContentReader] = {}  # of content; one serves all responses
        self._length = 0  # bytes of the last head
        self.reading = ReadResponse(Heads())
        self._parser = self._new_parser()

    def expect(self, sink: Answer, request: OriginRequest) -> None:
        """Tell `sink` of the next response, which answers `request`."""
        self._sink, self._request = sink, request
        self.reading = ReadResponse(Heads())

    def feed(self, data: bytes) -> None:
        """Read `data`: moves `state` forward, and sets `fault` where it is no response."""
        reading, begins = self.reading, not self.reading.began
        reading.began, reading.progress, heads = True, False, reading.state
        try:
            if not isinstance(heads, Heads):
                self._read_on(data, 0)
            elif (
                begins
                and (known := _known.get(data.find(_BLANK_LINE) + 4)) is not None
                and data.startswith(known.octets)
                and len(known.octets) <= self._max_head  # another connection may take longer ones
                and self._request.method != b"HEAD"
            ):
                reading.version, reading.grants = known.version, known.grants
                self._read_on(data, len(known.octets), known.response, known.framing, known.length, True)
            else:
                self._read_heads(heads, data)
        except Exception as error:  # the sink's
            _MOVES[type(reading.state), Stopped]
            reading.state = Stopped()
            reading.fail("the sink failed")
            reading.error = error
        if reading.progress:
            reading.barren = 0
            return
        reading.barren += len(data)
        if reading.barren > self._max_head:
            reading.fail(HEAD_TOO_LARGE)

    def _read_heads(self, heads: Heads, data: bytes) -> None:
        """Read the final response's head, interim ones before it, and what stands behind it."""
        reading, partial = self.reading, heads.partial
        begins = partial is None
        if partial is not None:
            before = len(partial)
            partial += data
            if len(partial) < 2 * heads.looked and not _may_end(partial, before):
                return  # all bytes are looked at again only when they have doubled, or may be whole
            heads.partial, data = None, bytes(partial)
        while data and reading.state is heads and not reading.fault:
            end = data.find(_BLANK_LINE) + 4 if data.startswith(FINAL) else 0
            if end < 4 or self._fault_of(head := data[:end]):
                try:
                    whole = whole_head(data)
                except ValueError as error:
                    reading.fail(str(error))
                    return
                if whole is None:
                    rest = data[_empty_lines(data) :]
                    heads.partial, heads.looked = bytearray(rest) if rest else None, len(rest)
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
                self._pass_on(heads, status, fields)
            elif status == 101 and not self._request.upgrades:
                reading.fail("a protocol that no request asked for")
            else:
                reading.version = head[:8]
                remembers, self._length = begins and end == self._length, end
                self._read_final(heads, status, fields, data, end, remembers=remembers)
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
        state = self.reading.state
        if self.reading.fault:
            return False
        if isinstance(state, ReadContent):
            return isinstance(state.reader, ToTheEnd)
        return isinstance(state, Diverted)

    def stop(self) -> None:
        """Tell the sink nothing more."""
        _MOVES[type(self.reading.state), Stopped]
        self.reading.state = Stopped()

    def end(self) -> None:
        """Read no more, and let go of all that knows the reader: circles wait for the garbage collector."""
        _MOVES[type(self.reading.state), Stopped]
        self.reading.state = Stopped()
        self._line = None
        self._readers.clear()
        self._sink, self._request = _NO_ANSWER, _NO_REQUEST
        self._parser = cast("Any", None)

    def divert(self, write: Callable[[bytes], bool]) -> None:
        """Pass the bytes of another protocol, which follow a 101, to `write`."""
        state = self.reading.state
        if isinstance(state, Diverted):
            state.write = write

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; called by the parser."""
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def _read_final(
        self, heads: Heads, status: int, fields: Fields, data: bytes, end: int, *, remembers: bool
    ) -> None:
        """Tell of the final response's head, which ends at a place, and of what stands behind it."""
        reading, bodiless = self.reading, self._request.method == b"HEAD" or status in (204, 304)
        coded, framing, length, options = False, _CLOSE, 0, b""
        for name, value in fields:
            if name not in _TELLING:
                continue
            if name == b"transfer-encoding":
                # No request of ours has TE: what is coded otherwise would be passed on as what it is not.
                if coded or value.lower() != b"chunked":
                    reading.fail("a transfer coding that was not asked for")
                    return
                coded, framing = True, _CHUNKS
            elif name == b"content-length":
                if len(value) > LENGTH_DIGITS:
                    reading.fail(f"a Content-Length of more than {LENGTH_DIGITS} digits")
                    return
                framing, length = _LENGTH, int(value)
            elif name == b"www-authenticate":
                reading.challenges = reading.challenges or authenticates_connection(value)
            elif name == b"keep-alive":
                granted = _TIMEOUT.search(value)
                reading.grants = -1 if granted is None else int(granted[1])
            else:
                options += b"," + value.lower()
        # Bytes behind a response that has no content would be read as the next response. They may come late,
        # when another request is under way: such a connection is not used again. Nor is one
        # with the framing of a coded HTTP/1.0 message, which is faulty (RFC 9112 §6.1).
        faulty = bodiless or status == 101 or framing is _CLOSE or (coded and reading.version == _OLD)
        ends = b"close" in options and _names(options, b"close")
        ends = ends or (reading.version == _OLD and not _names(options, b"keep-alive"))
        persists = not (faulty or ends or heads.closes)
        if status == 101 and self._line is not None:
            response: Response = Switching(status, fields, self._line)
        else:
            response = Response(status, fields)
        if remembers and end <= _LONGEST and persists and not reading.challenges:
            remember(_known, end, KnownHead(data[:end], response, framing, length, reading), _MOST)
        framing, length = (_LENGTH, 0) if bodiless else (framing, length)
        self._read_on(data, end, response, framing, length, persists)

    def _read_on(
        self,
        data: bytes,
        at: int,
        response: Response | None = None,
        framing: Framing = _LENGTH,
        length: int = 0,
        persists: bool = False,
    ) -> None:
        """Tell of a final `response`, with content of such a framing, and of what stands behind `at`.

        That is content, or another protocol's. Content that is all there needs no reader.
        """
        reading, end, is_whole = self.reading, at + length, False
        if response is not None:
            reading.progress = True
            if response.status == 101:
                _MOVES[type(reading.state), Diverted]
                reading.state = Diverted(self._sink.write)
            else:
                is_whole = framing is _LENGTH and end <= len(data)
                reader = ALL_READ if is_whole else self._begun(framing, length)
                _MOVES[type(reading.state), ReadContent]
                reading.state = ReadContent(reader, persists)
            self._sink.start(response)
        state = reading.state
        if isinstance(state, ReadContent):
            reader = state.reader
            content, at = (data[at:end], end) if is_whole else reader.read(data, at)
            if reader.fault:
                reading.fail(reader.fault)
            if content:
                reading.progress = True
                reading.takes = self._sink.write(content)
            if reader.is_over and reading.state is state:
                reading.progress = True
                reading.trailers += reader.trailers
                _MOVES[ReadContent, Complete]
                reading.state = Complete(state.persists and at == len(data))
                # An idle connection keeps nothing of the last response alive, whose content may be long.
                self._sink, self._request = _NO_ANSWER, _NO_REQUEST
        elif isinstance(state, Diverted) and (content := data[at:]):
            reading.progress = True
            reading.takes = state.write(content)

    def _begun(self, framing: Framing, length: int) -> ContentReader:
        """The reader of content of such a framing, which begins."""
        reader = self._readers.get(framing)
        if reader is None:
            reader = self._readers[framing] = READERS["response"][framing]()
        reader.begin(length)
        return reader

    def _pass_on(self, heads: Heads, status: int, fields: Fields) -> None:
        """Tell of an interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        heads.interims += 1
        told = b",".join([value.lower() for name, value in fields if name in _CONNECTION])
        heads.closes = heads.closes or _names(told, b"close")
        if heads.interims > MAX_INTERIM:
            self.reading.fail("too many interim responses")
        elif status == 100 and self._request.expects_continue:
            heads.continued = True
        else:
            self._sink.interim(status, fields)
