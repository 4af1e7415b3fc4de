"""HTTP/1.1's messages (RFC 9112) as clients send and get them: requests are read, responses are framed.

llhttp (httptools) reads the heads of requests, and a reader of `http/content.py` the content: the end of each
message is known to the byte, and all content costs the same. llhttp knows a list of methods, takes RTSP for
HTTP, and does not say where in the bytes a message ended: so it is fed heads alone, each up to its end. A
`Glance` reads ordinary heads: no field costs a call of Python's.

Responses leave once in an iteration of the event loop, with those of other connections.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

import httptools

from univocal.http.content import ALL_READ, READERS, ContentReader, Framing
from univocal.http.errors import RefusedError
from univocal.http.framing import WATCHED
from univocal.http.messages import Fields, status_line, values
from univocal.http.tables import moves
from univocal.http.timer import batch_of
from univocal.judge.admission import Plan
from univocal.server.listener import PIECE, Bounds
from univocal.server.turn import Turn

# Methods that need no second look.
METHODS: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"PURGE ",
    b"CONNECT ",
    b"PRI ",
)
# Framing does not depend on the method (RFC 9112 §6.3): a request with any other is parsed as if it had this.
PLACEHOLDER: Final = b"POST"
_LONGEST_METHOD: Final = 32  # bytes of a method

_METHOD: Final = re.compile(rb"([A-Z][A-Z_-]*)( .*)?", re.DOTALL)
# Of a piece of a stream, what follows a method and has a byte that no target has.
_REQUEST_LINES: Final = re.compile(rb"(?:^|\n)[A-Z_-]+ +[!-~]*([^!-~ ])")
_UNPRINTABLE: Final = re.compile(rb"[^!-~ \r\n]+")

_LINE_END: Final = re.compile(rb" HTTP/1\.(?:(0)|[1-9])\r\n\Z")


# The beginning of a piece of a request line, before the target: the method, or its end.
_BEFORE_TARGET: Final = re.compile(rb"[A-Z_-]* +")
# Letters in place of the bytes above 0x7F, as many of them: llhttp takes those in a target for an error.
_MASK: Final = bytes(range(0x80)) + b"x" * 0x80


class RawTarget:
    """A piece of a request line whose target holds bytes above 0x7F, and the line as llhttp takes it.

    `known` bytes of the target stood on the pieces before it. Nothing but the target is masked: elsewhere on
    the line such a byte stays an error.
    """

    def __init__(self, line: bytes, known: int) -> None:
        before = None if known else _BEFORE_TARGET.match(line)
        start = 0 if before is None else before.end()
        end = line.find(b" ", start)
        self._part = part = line[start:] if end < 0 else line[start:end]
        self._known = known
        self.masked = line[:start] + part.translate(_MASK) + line[start + len(part) :]

    def restored(self, target: bytes) -> bytes:
        """The target so far, with the bytes as they came, of which llhttp has given as many."""
        known = self._known
        return target[:known] + self._part[: len(target) - known]


def new_parser(protocol: Any) -> httptools.HttpRequestParser:
    """A parser that reads on after a request with `Connection: close`, as uvicorn sets its own.

    It takes every version of HTTP: `version_of` tells which of them.
    """
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)
    return parser


def version_of(line: bytes) -> str:
    """The version by which a message is read whose request line ends like `line`; "" if it is not HTTP/1.

    A minor version that is not known is read as the highest that is (RFC 9110 §2.5).
    """
    match = _LINE_END.search(line)
    return "" if match is None else "1.0" if match[1] else "1.1"


def split_method(octets: bytes) -> tuple[bytes, bytes] | None:
    """A message's method and the bytes after it, none before its blank has come; None if it has no method.

    A method is of letters A to Z, `-` and `_`, as nginx has it: RFC 9110 §9.1 allows more, and tells "get"
    from "GET", which not every application does.
    """
    match = _METHOD.fullmatch(octets)
    return None if match is None or len(match[1]) > _LONGEST_METHOD else (match[1], match[2] or b"")


def why(error: httptools.HttpParserError, piece: bytes) -> Sequence[str]:
    """The reasons for which the parser stopped; raises the error if it was by a fault of this program."""
    if isinstance(error, httptools.HttpParserCallbackError):
        if isinstance(error.__context__, RefusedError):
            return error.__context__.reasons
        raise error
    if not isinstance(error, httptools.HttpParserInvalidURLError):
        return ("bad-framing",)
    if any(phrase in str(error) for phrase in ("start char", "schema")):
        return ("no-leading-slash",)
    if "server" in str(error):
        return ("bad-target",)
    # llhttp lets no byte below 0x21 or above 0x7E pass and does not say which it was, nor where. Those above
    # 0x7F in a target are masked.
    offending = b"".join(_REQUEST_LINES.findall(piece) or _UNPRINTABLE.findall(piece))
    if not offending:
        return ("no-leading-slash",)
    return ("control-character",) if offending.isascii() else ("bad-target",)


# A head for trailers to stand behind: so they are judged as fields, beside the framing of their message.
_BEFORE_TRAILERS: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"


class IncomingHead:
    """The head of a request; `watched` are those of its fields that decide about its framing.

    `version` is "1.1" or "1.0", "" if it is not HTTP/1's. `octets` is what it took. `upgrades`: it asks for
    another protocol (RFC 9110 §7.8).
    """

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.version = ""
        self.fields: Fields = []
        self.watched: Fields = []
        self.keep_alive = True
        self.upgrades = False
        self.octets = 0

    @property
    def length(self) -> int | None:
        """The bytes of content that follow; None: chunks. The head has no fault of framing."""
        if values(self.watched, b"transfer-encoding"):
            return None
        lengths = values(self.watched, b"content-length")
        return int(lengths[0]) if lengths else 0


class HeadReader:
    """Reads one head after the other, piece by piece; llhttp is given nothing that stands behind one.

    The order of calls: `expect`, `begin` until it has bytes to feed, `feed` until it says that the head is
    whole, and `stop` if content follows. Trailers: `begin_trailers`, `feed`, `stop`. `feed` raises
    RefusedError; `known` is the head as far as it has come.
    """

    def __init__(self) -> None:
        self._parser: httptools.HttpRequestParser | None = None
        self._is_whole = self._is_trailers = False
        self._line: bytes | None = None  # the last bytes of a request line that has not ended
        self._max_target = 0
        self.known = IncomingHead()

    def expect(self) -> None:
        """Know nothing yet of the next head."""
        self.known = IncomingHead()

    def begin(self, octets: bytes, max_target: int) -> bytes | None:
        """Begin a head with its first bytes; returns those to feed, None where more are needed to begin.

        A method that llhttp does not know is replaced: framing does not depend on it (RFC 9112 §6.3).
        """
        head = self.known
        self._is_whole = self._is_trailers = False
        self._max_target = max_target
        self._line = b""
        if octets.startswith(METHODS) or (pieces := split_method(octets)) is None:
            return octets
        method, rest = pieces
        if not rest:
            return None
        head.method = method
        return PLACEHOLDER + rest

    def begin_trailers(self) -> None:
        """Begin the trailers of chunked content: a section like a head's, whose fields go nowhere."""
        self._parser = new_parser(self)
        self._parser.feed_data(_BEFORE_TRAILERS)
        self._is_whole, self._is_trailers = False, True

    def feed(self, octets: bytes) -> bool:
        """Read more of it, no more than up to its end; True: it is whole."""
        parser = self._parser
        if parser is None:
            parser = self._parser = new_parser(self)
        self.known.octets += len(octets)
        raw: RawTarget | None = None
        if self._line is not None and not self._is_trailers:
            line, newline, _ = octets.partition(b"\n")
            if not line.isascii():
                raw = RawTarget(line, len(self.known.target))
                octets = raw.masked + octets[len(line) :]
            self._line = (self._line + line + newline)[-16:]
            if newline:
                self.known.version, self._line = version_of(self._line), None
        try:
            parser.feed_data(octets)
        except httptools.HttpParserUpgrade:
            self._parser = None  # it takes what follows for another protocol's
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserInvalidURLError):
                self._note_method()
            reasons = why(error, octets)
            raise RefusedError(reasons[0], reasons) from None
        finally:
            if raw is not None:
                self.known.target = raw.restored(self.known.target)
        return self._is_whole

    def stop(self) -> None:
        """Release the parser, which waits for content, and refers to this: circles wait for the collector."""
        self._parser = None

    def _note_method(self) -> None:
        if not (self.known.method or self._parser is None):
            self.known.method = self._parser.get_method()

    # Called by the parser

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        head = self.known
        head.target += url
        self._note_method()
        if 0 < self._max_target < len(head.target):
            raise RefusedError("target-too-long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        if self._is_trailers:
            return  # RFC 9110 §6.5.1 forbids to take it for a field of the head
        # RFC 9112 §5.1; llhttp takes off what leads only.
        field = (name.lower(), value.rstrip(b" \t"))
        self.known.fields.append(field)
        if field[0] in WATCHED:
            self.known.watched.append(field)

    def on_headers_complete(self) -> None:
        """Handle a whole head: here alone llhttp says what it makes of Connection."""
        head, parser = self.known, self._parser
        self._is_whole = True
        if parser is None:
            return
        if self._is_trailers:
            head.keep_alive = head.keep_alive and parser.should_keep_alive()
            return
        head.keep_alive = head.version == "1.1" and parser.should_keep_alive()
        head.upgrades = parser.should_upgrade()


_BLANK_LINE: Final = b"\r\n\r\n"
_LINE_END_OCTETS: Final = b"\r\n"
_BLOCK: Final = 4096  # bytes of empty lines that are passed over at once
_ALIKE: Final = (b"\r\n" * (_BLOCK // 2), b"\n" * _BLOCK)
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")


class RequestState(Enum):
    """The parts of a request that may come next."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    BETWEEN = "a request line, or empty lines before it"
    HEAD = "more of a head"
    JUDGING = "nothing, until its head is accepted"
    CONTENT = "content"
    TRAILERS = "the trailers of chunked content"
    STOPPED = "nothing is read any more"


# Looking up an enumeration's member costs a call in Python 3.11.
_BETWEEN: Final = RequestState.BETWEEN
_HEAD: Final = RequestState.HEAD
_JUDGING: Final = RequestState.JUDGING
_CONTENT: Final = RequestState.CONTENT
_TRAILERS: Final = RequestState.TRAILERS
_STOPPED: Final = RequestState.STOPPED

MOVES: Final[Mapping[RequestState, Mapping[RequestState, str]]] = {
    RequestState.BETWEEN: {RequestState.HEAD: "a byte of a request line", RequestState.STOPPED: "`stop`"},
    RequestState.HEAD: {RequestState.JUDGING: "an empty line", RequestState.STOPPED: "a refusal, or `stop`"},
    RequestState.JUDGING: {
        RequestState.BETWEEN: "`accept`: no content follows",
        RequestState.CONTENT: "`accept`: content follows",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.CONTENT: {
        RequestState.BETWEEN: "the last of its bytes",
        RequestState.TRAILERS: "the line of the last chunk",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.TRAILERS: {
        RequestState.BETWEEN: "an empty line",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.STOPPED: {RequestState.STOPPED: "`stop`, again"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)
_READERS: Final = READERS["request"]
_LENGTH: Final = Framing.LENGTH
_CHUNKS: Final = Framing.CHUNKS


class End(Enum):
    """The end of a request's content."""

    END = "the content is complete"


END: Final = End.END

Event: TypeAlias = IncomingHead | bytes | End


class RequestReader:
    """Reads requests: `push` what has come, then call `next` until it returns None: more bytes are needed.

    `next` gives an IncomingHead, to be accepted once it has no fault; where content follows it, bytes, any
    number of times, and END. It raises RefusedError, after which nothing more comes; `head` is the last
    one, as far as it is known. `state` moves as `MOVES` says.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds  # they may change
        self.octets = b""  # that have come, and are not all read
        self._at = 0  # those before this place are read
        self._heads = HeadReader()
        self._before = b""  # the last bytes of a head, before that place
        self._silence = 0  # bytes of a head, or of trailers, so far
        self._content: ContentReader = ALL_READ
        self.state = _BETWEEN

    @property
    def head(self) -> IncomingHead:
        """The last head, as far as it is known."""
        return self._heads.known

    def push(self, octets: bytes) -> None:
        """Take bytes that have come, unless nothing is read any more."""
        if self.state is _STOPPED:
            return
        self.octets = self.octets[self._at :] + octets if self.octets else octets
        self._at = 0

    def drop(self) -> None:
        """Drop the bytes that were read, so that `octets` are those that wait."""
        if self._at:
            self.octets, self._at = self.octets[self._at :], 0

    def next(self) -> Event | None:
        """Read on: at most a head, or some content."""
        while True:
            state = self.state
            if state is _CONTENT:
                if content := self._read_content():
                    return content
                if not self._content.is_over:
                    return None
                self.state = _MOVES[state, _TRAILERS if self._content.leaves_trailers else _BETWEEN]
                self._content, self._before, self._silence = ALL_READ, b"", 0
                if self.state is _BETWEEN:
                    return END
            elif state is _BETWEEN:
                if self._at == len(self.octets) or not self._skip_empty_lines():
                    return None
            elif state is _HEAD:
                if not self._read_head():
                    return None
                self.state = _MOVES[state, _JUDGING]
                return self._heads.known
            elif state is _TRAILERS:
                if not self._read_trailers():
                    return None
                self.state = _MOVES[state, _BETWEEN]
                return END
            else:
                return None

    def accept(self) -> bool:
        """Go on behind a head that has no fault; True: content follows."""
        length = self._heads.known.length
        self.state = _MOVES[self.state, _CONTENT if length != 0 else _BETWEEN]
        if length != 0:
            self._heads.stop()
            self._content = content = _READERS[_CHUNKS if length is None else _LENGTH]()
            content.begin(length or 0)
        return length != 0

    def whole_head(self, most: int) -> bytes:
        """The next head, if it is a GET's, all of it is there, and it has no more than so many bytes."""
        if self.state is not _BETWEEN or not self.octets.startswith(b"GET /", self._at):
            return b""
        end = self.octets.find(_BLANK_LINE, self._at, self._at + most)
        return b"" if end < 0 else self.octets[self._at : end + 4]

    def skip(self, octets: int) -> None:
        """Handle a whole head that was read elsewhere."""
        self._at += octets

    def rest(self) -> bytes:
        """Give up what has not been read."""
        octets, self.octets = self.octets[self._at :], b""
        self._at = 0
        return octets

    def stop(self) -> None:
        """Read no more, and let go of the parser: circles wait for the garbage collector."""
        self.state = _MOVES[self.state, _STOPPED]
        self.octets, self._at = b"", 0
        self._heads.stop()

    # Heads

    def _skip_empty_lines(self) -> bool:
        """Go on to a request line (RFC 9112 §2.2); False: none has begun."""
        octets, begin = self.octets, self._at
        begin += octets.startswith(b"\n", begin)  # the rest of a line's end
        while octets.startswith(_ALIKE, begin):
            begin += _BLOCK
        while len(octets) - begin >= _BLOCK and (passed := _empty_lines(octets[begin : begin + _BLOCK])):
            begin += passed
        end = _LINE_ENDS.match(octets, begin).end()  # type: ignore[union-attr]
        has_begun = end < len(octets)
        self._at = begin
        if end > begin:
            lines = octets[begin:end]
            lone = lines.replace(b"\r\n", b"").count(b"\r")
            if lone > 1 or (lone and (has_begun or not lines.endswith(b"\r"))):
                self._begin_head()
                raise RefusedError("bad-framing")
            self._at = end - lone  # of the last one more may come
        if has_begun:
            self._begin_head()
        return has_begun

    def _begin_head(self) -> None:
        self.state = _MOVES[self.state, _HEAD]
        self._heads.expect()
        self._before, self._silence = b"", 0

    def _read_head(self) -> bool:
        """Feed llhttp the bytes up to the next empty line, and none behind it; True: the head is whole."""
        while self._at < len(self.octets):
            octets = self.octets[self._at : self._end_of_head()]
            if self._silence:
                whole = self._feed(octets, octets)
            else:
                begun = self._heads.begin(octets, self._bounds.limits.max_target)
                if begun is None:
                    return False
                whole = self._feed(octets, begun)
            if whole:
                return True
        return False

    def _read_trailers(self) -> bool:
        """Read what follows the last chunk; True: its end has come."""
        if not self._silence:
            first = self.octets[self._at : self._at + 2]
            if first == b"\r\n":
                self._at += 2
                return True
            if b"\r\n".startswith(first):
                return False
            self._heads.begin_trailers()
        while self._at < len(self.octets):
            octets = self.octets[self._at : self._end_of_head()]
            if self._feed(octets, octets):
                self._heads.stop()
                return True
        return False

    def _feed(self, octets: bytes, begun: bytes) -> bool:
        """Read bytes of a head, or of trailers, of which llhttp is fed those that have `begun`."""
        self._before = (self._before + octets[-3:])[-3:]
        self._at += len(octets)
        self._silence += len(octets)
        whole = self._heads.feed(begun)
        if 0 < self._bounds.max_silence < self._silence:
            raise RefusedError("fields-too-large")
        return whole

    def _end_of_head(self) -> int:
        """The place behind the empty line that ends a head, or up to which it is parsed for now."""
        octets, at, before = self.octets, self._at, self._before
        if before:  # an empty line may have begun there
            blank = (before + octets[at : at + 3]).find(_BLANK_LINE)
            if blank >= 0:
                return at + blank + 4 - len(before)
        blank = octets.find(_BLANK_LINE, at, at + PIECE)
        return at + PIECE if blank < 0 else blank + 4

    # Content

    def _read_content(self) -> bytes:
        """Some content; none: more bytes are needed, or it is over."""
        reader = self._content
        if reader.is_over:
            return b""
        content, self._at = reader.read(self.octets, self._at)
        if reader.fault:
            raise RefusedError(reader.fault)
        return content


def _empty_lines(block: bytes) -> int:
    """How many bytes may be passed over: those of a whole block of empty lines, or none."""
    lines = block.removesuffix(b"\r")  # the rest of this line's end may come
    if lines.translate(None, _LINE_END_OCTETS):
        return 0
    return len(lines) if lines.count(b"\r") == lines.count(b"\r\n") else 0


PlanOf: TypeAlias = Callable[[tuple[bytes, ...], tuple[bytes, ...]], Plan | None]
"""The plan for a GET with these field names and values; None where it is to be read as any other."""

BEGINNING: Final = b"GET /"
_GET: Final = b"GET "
_VERSION: Final = b" HTTP/1.1\r\n"
_AROUND_TARGET: Final = len(_GET) + len(_VERSION)
# Bytes that end no target and begin nothing new in one for any parser: a target of them alone needs none.
_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%?=&+,;:@!$()*'"
# Makes a letter of each of them, and of no other byte.
_LETTERS: Final = bytes([0x61 if octet in _PLAIN else 0 for octet in range(256)])
# Bytes of a header section that is remembered: an idle connection may keep it.
_LONGEST_SECTION: Final = 2048


class Glimpse:
    """An ordinary head: its target, the plan for its field names, and the values of its fields."""

    __slots__ = ("plan", "target", "values")

    def __init__(self, target: bytes, plan: Plan, values: tuple[bytes, ...]) -> None:
        self.target = target
        self.plan = plan
        self.values = values


class Glance:
    """Reads the head of an ordinary GET with llhttp, whose callbacks are methods of a dictionary and a list.

    A dictionary forgets repeated field lines: a head that has any, or is folded, or is not alone, has another
    number of lines than names, and is not read here.

    Most clients repeat their header section to the byte. The last one is remembered if the section before it
    was as long. `recall` reads a head that ends with the same bytes. Any other is for `read` to parse: its
    section takes their place.
    """

    def __init__(self, plan_of: PlanOf) -> None:
        self._plan_of = plan_of
        self._length = 0  # of the header section before
        self._section = b""  # the one that is remembered, and what was read of it
        self._plan: Plan | None = None
        self._values: tuple[bytes, ...] = ()
        self._fields: dict[bytes, bytes] = {}
        self._targets: list[bytes] = []
        self.on_header = self._fields.__setitem__
        self.on_url = self._targets.append
        self._parser = new_parser(self)

    def recall(self, data: bytes) -> Glimpse | None:
        """A head whose header section is remembered; None if it is to be parsed.

        Nothing else needs to be known of `data`: no empty line stands in a request line or a section before
        their end.
        """
        plan, length = self._plan, len(data) - len(self._section)
        if plan is None or length <= _AROUND_TARGET or not data.endswith(self._section):
            return None
        version = length - len(_VERSION)
        if not (data.startswith(BEGINNING) and data.startswith(_VERSION, version)):
            return None
        target = data[len(_GET) : version]
        return Glimpse(target, plan, self._values) if target.translate(_LETTERS).isalpha() else None

    def read(self, data: bytes) -> Glimpse | None:
        """The head, up to and with the first empty line, that all of `data` is; None if it is not ordinary.

        After None the reader must not be used again.
        """
        fields, targets = self._fields, self._targets
        if not data.startswith(BEGINNING):
            return None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        if len(targets) != 1 or data.count(b"\n") != len(fields) + 2:
            return None
        target = targets[0]
        if not data.startswith(_VERSION, len(_GET) + len(target)):
            return None
        values = tuple(fields.values())
        plan = self._plan_of(tuple(fields), values)
        if plan is None:
            return None
        targets.clear()
        fields.clear()
        self._remember(data, _AROUND_TARGET + len(target), plan, values)
        return Glimpse(target, plan, values)

    def _remember(self, data: bytes, start: int, plan: Plan, values: tuple[bytes, ...]) -> None:
        """Remember the header section that starts there, if the one before was as long."""
        length = len(data) - start
        if length == self._length <= _LONGEST_SECTION:
            self._section, self._plan, self._values = data[start:], plan, values
        elif self._plan is not None:
            self._section, self._plan, self._values = b"", None, ()
        self._length = length


_LAST_CHUNK: Final = b"0\r\n\r\n"


def interim_head(status: int, fields: Fields) -> bytes:
    """A 1xx response (RFC 9110 §15.2)."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join((status_line(status), b"\r\n", *lines, b"\r\n"))


# The section that was spelled last: responses in a row may be alike. The fields are not to be changed.
_last: Final[list[tuple[int, Fields, bytes]]] = [(0, [], b"")]


def _section(status: int, fields: Fields) -> bytes:
    """A status line and field lines, each with its end."""
    lines = [name + b": " + value for name, value in fields]
    octets = b"\r\n".join([status_line(status), *lines, b""])
    if len(octets) <= _LONGEST_SECTION:
        _last[0] = status, [*fields], octets
    return octets


def _closes(fields: Fields) -> bool:
    return any(name == b"connection" and b"close" in value.lower() for name, value in fields)


# Content of more bytes is not copied to stand behind its head, and does not wait.
JOINED: Final = 8 * 1024
# So many pieces of fewer bytes wait at most.
_PIECES: Final = 32


class ResponseWriter:
    """Frames responses and sends them: `start`, then `write` any number of times, and `end` if `is_chunked`.

    All bytes of an iteration of the event loop leave together at its end. `closes`: the end of a
    connection is its content's (RFC 9112 §6.3, rule 8). The connection says while its client takes no more
    (`write_paused`). `flush` goes before every other use of the transport
    that the client notices.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._batch = batch_of(loop)
        self.is_chunked = False  # the content that comes
        self.closes = False
        self.write_paused = False  # the client takes no more for now
        self._is_due = False  # it is flushed at the end of this iteration
        self.unsent: list[bytes | memoryview] = []

    def start(
        self, turn: Turn, status: int, fields: Fields, names: Collection[bytes], has_content: bool
    ) -> None:
        """Begin a turn's response; `keep_alive` of the turn tells from then on whether another may follow.

        `names` are those of the fields, which have no framing but Content-Length. The head leaves in this
        iteration of the event loop, whatever comes.
        """
        last_status, last_fields, head = _last[0]
        if last_status != status or last_fields != fields:
            head = _section(status, fields)
        self.closes = False
        if has_content and b"content-length" not in names:
            if turn.received.version == b"1.0":  # RFC 9112 §6.1: no coding for a client that cannot know it
                self.closes, turn.keep_alive = True, False
            else:
                self.is_chunked = True
                head += b"transfer-encoding: chunked\r\n"
        if b"connection" in names and _closes(fields):
            turn.keep_alive = False
        elif not turn.keep_alive:
            head += b"connection: close\r\n"
        self.unsent.append(head + b"\r\n")
        if not self._is_due:
            self._is_due = True
            self._batch.add(self._loop, self.flush)

    def write(self, octets: bytes | memoryview) -> bool:
        """Send bytes behind all that was sent before; content is framed. False: no more for now."""
        if not octets:
            return not self.write_paused
        if self.is_chunked:
            octets = b"".join((b"%x\r\n" % len(octets), octets, b"\r\n"))
        unsent = self.unsent
        if len(octets) > JOINED:
            if unsent and not self.is_chunked:
                self._transport.writelines((*unsent, octets))
                unsent.clear()
            else:
                self.flush()
                self._transport.write(octets)
            return not self.write_paused
        unsent.append(octets)
        if len(unsent) == _PIECES:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._batch.add(self._loop, self.flush)
        return not self.write_paused

    def end(self) -> None:
        """End chunked content."""
        self.is_chunked = False
        self.write(_LAST_CHUNK)

    def flush(self) -> None:
        """Send what waits."""
        unsent, self._is_due = self.unsent, False
        if not unsent:
            return
        octets = unsent[0] if len(unsent) == 1 else b"".join(unsent)
        unsent.clear()
        if not self._transport.is_closing():
            self._transport.write(octets)
