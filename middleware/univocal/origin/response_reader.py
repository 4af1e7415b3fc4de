"""The reader of responses: it takes bytes and tells of parts, by httptools' parser. It has no socket.

A head is parsed when it is whole: `univocal.origin.response_head` says when that is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol, cast

import httptools

from univocal.http.fields import LENGTH_DIGITS
from univocal.http.messages import Fields, Response, values
from univocal.http.upgrade import Line, Switching
from univocal.origin.response_head import ORDINARY, empty_lines, may_end, whole_head

__all__ = ["Progress", "ResponseReader"]

MAX_INTERIM: Final = 32
_BLANK_LINE: Final = b"\r\n\r\n"
_VERSIONS: Final = {"1.0": b"HTTP/1.0", "1.1": b"HTTP/1.1"}


class Progress(Enum):
    """The stages of a response that is being read."""

    HEAD = "the final response's head is still to come"
    CONTENT = "the content is being read"
    TUNNEL = "101: every octet to come is another protocol's (RFC 9110 §7.8)"
    COMPLETE = "the response has ended"
    STOPPED = "nobody wants the rest"


# Looking up an enumeration's member costs a call in Python 3.11.
_HEAD, _CONTENT, _COMPLETE = Progress.HEAD, Progress.CONTENT, Progress.COMPLETE


class Sink(Protocol):
    """The one who is told of a response: an Answer, as far as the parts are concerned."""

    def interim(self, status: int, fields: Fields) -> None:
        """Take a 1xx response."""

    def start(self, response: Response) -> None:
        """Take the final response's head."""

    def write(self, chunk: bytes) -> bool:
        """Take content; False: no more for now."""
        ...


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `max_head` bounds the octets of one head, of the trailers, and of chunk extensions in a row. `line` is the
    connection, of which a 101 tells.
    """

    __slots__ = (
        "_barren", "_closes", "_content", "_ended", "_ends", "_expects", "_fields", "_head", "_held",
        "_interims", "_is_head", "_line", "_looked", "_max_head", "_parser", "_persists", "_pieces", "_sink",
        "_surplus", "_upgrades", "_write", "began", "continued", "error", "fault", "on_body",
        "on_message_begin", "progress", "reusable", "stage", "takes", "trailers", "version",
    )  # fmt: skip

    def __init__(self, max_head: int, line: Line | None = None) -> None:
        self._max_head = max_head
        self._line = line
        # Holds something between the end of a message and the beginning of the next: so the parser
        # tells of a beginning without a call into Python.
        self._ended: list[bool] = []
        # The content in the octets that are being read: chunks may have one octet, and a call into Python for
        # each of them would keep others waiting.
        self._pieces: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self._pieces.append
        self.on_message_begin: Callable[[], None] = self._ended.clear
        self._parser = self._new_parser()

    def expect(
        self, sink: Sink, *, is_head: bool = False, upgrades: bool = False, expects_continue: bool = False
    ) -> None:
        """Tell `sink` of the next response; it answers HEAD, or a request with Upgrade or Expect."""
        self._sink, self._is_head = sink, is_head
        self._write: Callable[[bytes], bool] = sink.write
        self._upgrades, self._expects = upgrades, expects_continue
        self._fields: Fields = []
        self.trailers: Fields = self._fields
        self._content = b""  # its last octets
        self._ends: int | None = None  # the pieces before this one are of this response, which has ended
        self._held = bytearray()  # of a head that is not yet whole
        self._looked = 0  # octets of it in which its end was looked for
        self._persists = self._surplus = self._closes = False
        self._interims = self._barren = 0
        self.stage = _HEAD
        self.began = False  # any octet was read
        self.progress = False  # the last octets were more than a part of a head, or of a chunk's frame
        self.continued = False  # 100 (Continue) came, which the request had asked for
        self.takes = True  # the sink wants more
        self.reusable = False  # complete, and another response may follow (RFC 9112 §9.3)
        self.fault = ""  # why this is no response
        self.error: BaseException | None = None  # raised by the sink

    def feed(self, data: bytes) -> None:
        """Read `data`: moves `stage` forward, and sets `fault` where it is no response."""
        self.began = True
        self.progress = False
        self._barren += len(data)
        if self.stage is _HEAD and (self._held or not (data.startswith(ORDINARY) and _BLANK_LINE in data)):
            self._feed_heads(data)
        else:
            try:
                if self.stage is Progress.TUNNEL:
                    self._pass_through(data)
                else:
                    self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                if self.stage is _HEAD and not self.fault:
                    self._fields = []
                    self._feed_heads(data)  # perhaps it is spelled as in old times
                else:
                    self._stopped(error)
        if self._pieces:
            self._pass_on_content()
        if self.stage is _COMPLETE:
            follows = not self._ended or (data[-1] in b"\r\n" and self._blank_lines_follow(data))
            self.reusable = self._persists and not (follows or self._surplus)
            self._content = b""
        elif self.progress:
            self._barren = 0
        elif self._barren > self._max_head:
            self.fault = self.fault or "the response's head is too large"

    def _feed_heads(self, data: bytes) -> None:
        """Read the final response's head, interim ones before it, and what stands behind it."""
        if self._held:
            before = len(self._held)
            self._held += data
            # All of it is looked at again only when it has doubled, or may be whole.
            if len(self._held) < 2 * self._looked and not may_end(self._held, before):
                return
            data = bytes(self._held)
            self._held.clear()
        while data and self.stage is _HEAD and not self.fault:
            try:
                whole = whole_head(data)
            except ValueError as error:
                self.fault = str(error)
                return
            if whole is None:
                self._held += data[empty_lines(data) :]
                self._looked = len(self._held)
                return
            # A new one: behind an interim response nothing counts that it said of the connection.
            self._parser = self._new_parser()
            self._parse(whole[0])
            data = data[whole[1] :]
        if data and not self.fault:
            self._parse(data)

    def _parse(self, octets: bytes) -> None:
        try:
            if self.stage is Progress.TUNNEL:
                self._pass_through(octets)
            else:
                self._parser.feed_data(octets)
        except httptools.HttpParserUpgrade:
            pass  # 101: what follows is another protocol's, until the connection ends (RFC 9110 §7.8)
        except httptools.HttpParserError as error:
            self._stopped(error)

    def _stopped(self, error: httptools.HttpParserError) -> None:
        """Take note that the parser stopped; after the response's end, within octets that belong to none."""
        self._surplus = True
        self.fault = self.fault or str(error) or "malformed"
        if isinstance(error, httptools.HttpParserCallbackError):
            self.error = error.__context__

    def _new_parser(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        # RFC 9112 §7.1.1: blanks behind a chunk's size are bad, and have one meaning.
        parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        return parser

    def close(self) -> bool:
        """Take note that the connection ended; True: so the response ends (RFC 9112 §6.3, rule 8)."""
        if self.fault:
            return False
        return self.stage is Progress.TUNNEL or (self.stage is _CONTENT and self._ends_with_connection())

    def stop(self) -> None:
        """Tell the sink nothing more."""
        self.stage = Progress.STOPPED

    def end(self) -> None:
        """Read no more, and let go of all that knows the reader: circles wait for the garbage collector."""
        self.stage = Progress.STOPPED
        self._line = None
        self._parser = self._sink = self._write = self.on_body = cast("Any", None)

    def divert(self, write: Callable[[bytes], bool]) -> None:
        """Let `write` take the octets of another protocol that stand behind a 101."""
        self._write = write

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        if self.stage is not _HEAD or self.fault:
            return
        fields, parser = self._fields, self._parser
        self.progress = True
        if self._barren > self._max_head and _size(fields) > self._max_head:
            self.fault = "the response's head is too large"
            return
        status = parser.get_status_code()
        version = _VERSIONS.get(parser.get_http_version())
        if version is None or not 100 <= status <= 599 or (status == 101 and not self._upgrades):
            self.fault = "a version or status that no request asked for"
        elif status < 200 and status != 101:
            self._pass_on(status)
        else:
            self._begin(status, version, fields)

    def _begin(self, status: int, version: bytes, fields: Fields) -> None:
        """Tell of the final response's head."""
        coded = None
        for name, value in fields:
            if name == b"transfer-encoding":
                # No request of ours has TE: what is coded otherwise would be passed on as what it is not.
                if coded is not None or value.lower() != b"chunked":
                    self.fault = "a transfer coding that was not asked for"
                    return
                coded = value
            elif name == b"content-length" and len(value) > LENGTH_DIGITS:
                self.fault = "a Content-Length that is none"
                return
        self.stage = Progress.TUNNEL if status == 101 else _CONTENT
        # RFC 9112 §6.1: the framing of a coded HTTP/1.0 message is faulty
        faulty = version == b"HTTP/1.0" and coded is not None
        # What an origin server sends behind a response that has no content would be read as the next one. It
        # may come late, when another request is under way: such a connection is not used again.
        bodiless = self._is_head or status in (204, 304)
        self._persists = not (
            status == 101 or bodiless or faulty or self._closes or not self._parser.should_keep_alive()
        )
        self._head, self.version = fields, version
        self.trailers = self._fields = []
        if status == 101 and self._line is not None:
            self._sink.start(Switching(status, fields, self._line))
        else:
            self._sink.start(Response(status, fields))
        if self._is_head:
            self._end_without_content()

    def _pass_through(self, octets: bytes) -> None:
        """Pass on what is another protocol's."""
        self.progress = True
        self.takes = self._write(octets)

    def _pass_on_content(self) -> None:
        """Tell of the content that came in one read as of one piece."""
        pieces = self._pieces
        if self._ends is not None:
            self._surplus = self._surplus or len(pieces) > self._ends
            del pieces[self._ends :]
            self._ends = 0
        if pieces and (self.stage is _CONTENT or self.stage is _COMPLETE) and self.error is None:
            self.progress = True
            self._content = pieces[-1]
            try:
                self.takes = self._write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            except Exception as error:
                self.stage = Progress.STOPPED  # it is no whole response, though its end has come
                self._surplus, self.fault, self.error = True, self.fault or "the sink failed", error
        pieces.clear()

    def on_message_complete(self) -> None:
        if self.stage is _CONTENT:
            self.stage = _COMPLETE
            self._ends = len(self._pieces)
            self._ended.append(True)
            self._fields = []

    def _pass_on(self, status: int) -> None:
        """Tell of an interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        fields, self._fields = self._fields, []
        self._interims += 1
        self._closes = self._closes or not self._parser.should_keep_alive()
        if self._interims > MAX_INTERIM:
            self.fault = "too many interim responses"
        elif status == 100 and self._expects:
            self.continued = True
        else:
            self._sink.interim(status, fields)

    def _end_without_content(self) -> None:
        """The response to HEAD ends here, of which httptools has no notion (RFC 9110 §9.3.2)."""
        if self.stage is not Progress.STOPPED:
            self.stage = _COMPLETE
            self._ends = 0
            self._ended.append(True)
            self._fields = []

    def _ends_with_connection(self) -> bool:
        """Tell whether the content has no other end than the connection's."""
        return not (values(self._head, b"transfer-encoding") or values(self._head, b"content-length"))

    def _blank_lines_follow(self, data: bytes) -> bool:
        """Tell whether CRs and LFs, which the parser passes over in silence, stand behind the response."""
        if self._content and not values(self._head, b"transfer-encoding"):
            return not data.endswith(self._content)
        return data.endswith(b"\r\n\r\n\r\n")


def _size(fields: Fields) -> int:
    """The octets of field lines."""
    return sum(len(name) + len(value) + 4 for name, value in fields)
