"""Heads of requests, by llhttp (httptools): its settings, and what it does not tell (RFC 9112 §2 to §5).

It knows a list of methods, takes RTSP for HTTP, and does not say where in the bytes a message ended: so it
is fed heads alone, each up to its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import httptools

from univocal.http.errors import RefusedError
from univocal.http.framing import WATCHED
from univocal.http.messages import Fields, values

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
_LONGEST: Final = 32  # bytes of a method

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
    return None if match is None or len(match[1]) > _LONGEST else (match[1], match[2] or b"")


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
    whole, and `take`; or `begin_trailers`, `feed`, `take`. `feed` raises RefusedError; `known` is the head as
    far as it has come.
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

    def take(self, *, has_content: bool) -> None:
        """Be done with this head; llhttp would wait for content that follows."""
        if has_content or self._is_trailers:
            self._parser = None

    def stop(self) -> None:
        """Release the parser, which refers to this: circles wait for the garbage collector."""
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
