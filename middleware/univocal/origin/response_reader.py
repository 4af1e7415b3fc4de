"""The reader of responses: it takes bytes and tells of parts, by httptools' parser. It has no socket."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

import httptools

from univocal.http.messages import Fields, Response, values

__all__ = ["Progress", "ResponseReader"]

MAX_INTERIM: Final = 32

_VERSIONS: Final = {"1.0": b"HTTP/1.0", "1.1": b"HTTP/1.1"}
_COMPRESSIONS: Final = frozenset((b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"))


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

    def interim(self, status: int, fields: Fields) -> None: ...
    def start(self, response: Response) -> None: ...
    def write(self, chunk: bytes) -> bool: ...


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `max_head` bounds the octets of one head, of the trailers, and of chunk extensions in a row.
    """

    __slots__ = (
        "_barren", "_content", "_ended", "_expects", "_fields", "_head", "_interims", "_is_head", "_max_head",
        "_parser", "_persists", "_sink", "_surplus", "_upgrades", "began", "bodiless", "continued", "error",
        "fault", "on_message_begin", "progress", "reusable", "stage", "takes", "trailers", "version",
    )  # fmt: skip

    def __init__(self, max_head: int) -> None:
        self._max_head = max_head
        # Holds something between the end of a message and the beginning of the next: so the parser
        # tells of a beginning without a call into Python.
        self._ended: list[bool] = []
        self.on_message_begin: Callable[[], None] = self._ended.clear
        self._parser = httptools.HttpResponseParser(self)

    def expect(
        self, sink: Sink, *, is_head: bool = False, upgrades: bool = False, expects_continue: bool = False
    ) -> None:
        """Tell `sink` of the next response; it answers HEAD, or a request with Upgrade or Expect."""
        self._sink, self._is_head = sink, is_head
        self._upgrades, self._expects = upgrades, expects_continue
        self._fields: Fields = []
        self.trailers: Fields = self._fields
        self._content = b""  # its last octets
        self._persists = self._surplus = False
        self._interims = self._barren = 0
        self.stage = _HEAD
        self.began = False  # any octet was read
        self.progress = False  # the last octets were more than a part of a head, or of a chunk's frame
        self.continued = False  # 100 (Continue) came, which the request had asked for
        self.bodiless = False  # the response has no content whatever its fields say (RFC 9112 §6.3, rule 1)
        self.takes = True  # the sink wants more
        self.reusable = False  # complete, and another response may follow (RFC 9112 §9.3)
        self.fault = ""  # why this is no response
        self.error: BaseException | None = None  # raised by the sink

    def feed(self, data: bytes) -> None:
        """Read `data`: moves `stage` forward, and sets `fault` where it is no response."""
        self.began = True
        self.progress = False
        self._barren += len(data)
        try:
            if self.stage is Progress.TUNNEL:
                self.on_body(data)
            else:
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # 101: from here on the octets are another protocol's, until the connection ends (RFC 9110 §7.8).
            if rest := data[upgrade.args[0] :]:
                self.on_body(rest)
        except httptools.HttpParserError as error:
            # After the end these are octets that belong to no response.
            self._surplus = True
            self.fault = self.fault or str(error) or "malformed"
            if isinstance(error, httptools.HttpParserCallbackError):
                self.error = error.__context__
        if self.stage is _COMPLETE:
            follows = not self._ended or (data[-1] in b"\r\n" and self._blank_lines_follow(data))
            self.reusable = self._persists and not (follows or self._surplus)
            self._content = b""
        elif self.progress:
            self._barren = 0
        elif self._barren > self._max_head:
            self.fault = self.fault or "the response's head is too large"

    def close(self) -> bool:
        """Take note that the connection ended; True: so the response ends (RFC 9112 §6.3, rule 8)."""
        if self.fault:
            return False
        return self.stage is Progress.TUNNEL or (self.stage is _CONTENT and self._ends_with_connection())

    def stop(self) -> None:
        """Tell the sink nothing more."""
        self.stage = Progress.STOPPED

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
        coded: list[bytes] = []
        for name, value in fields:
            if name == b"transfer-encoding":
                coded.append(value)
        if coded and _coded_unasked(coded):
            self.fault = "a transfer coding that was not asked for"
            return
        self.stage = Progress.TUNNEL if status == 101 else _CONTENT
        # RFC 9112 §6.1: the framing of a coded HTTP/1.0 message is faulty
        faulty = version == b"HTTP/1.0" and coded
        self._persists = status != 101 and not faulty and self._parser.should_keep_alive()
        self._head, self.version = fields, version
        self.trailers = self._fields = []
        self._sink.start(Response(status, fields))
        if self._is_head:
            self._end_without_content(version, fields)
        elif status in (204, 304):
            self.bodiless = True
            if status == 204 and (coded or values(fields, b"content-length") not in ([], [b"0"])):
                self._persists = False  # RFC 9110 §8.6: it announces what it must not have

    def on_body(self, content: bytes) -> None:
        stage = self.stage
        if stage is _CONTENT or stage is Progress.TUNNEL:
            self.progress = True
            self._content = content
            self.takes = self._sink.write(content)
        elif stage is _COMPLETE:
            self._surplus = True

    def on_message_complete(self) -> None:
        if self.stage is _CONTENT:
            self.stage = _COMPLETE
            self._ended.append(True)
            self._fields = []

    def _pass_on(self, status: int) -> None:
        """Tell of an interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        fields, self._fields = self._fields, []
        self._interims += 1
        if self._interims > MAX_INTERIM:
            self.fault = "too many interim responses"
        elif status == 100 and self._expects:
            self.continued = True
        else:
            self._sink.interim(status, fields)

    def _end_without_content(self, version: bytes, fields: Fields) -> None:
        """The response to HEAD ends here, of which httptools has no notion (RFC 9110 §9.3.2)."""
        if self.stage is Progress.STOPPED:
            return
        options = b",".join(values(fields, b"connection")).lower().split(b",")
        named = {option.strip(b" \t") for option in options}
        self._persists = b"close" not in named and (version == b"HTTP/1.1" or b"keep-alive" in named)
        self.stage = _COMPLETE
        self.bodiless = True
        self._ended.append(True)
        self._fields = []
        self._parser = httptools.HttpResponseParser(self)

    def _ends_with_connection(self) -> bool:
        """Tell whether the content has no other end than the connection's."""
        codings = values(self._head, b"transfer-encoding")
        if codings:
            return codings[-1].rpartition(b",")[2].strip(b" \t").lower() != b"chunked"
        return not values(self._head, b"content-length")

    def _blank_lines_follow(self, data: bytes) -> bool:
        """Tell whether CRs and LFs, which the parser passes over in silence, stand behind the response."""
        if self._content and not values(self._head, b"transfer-encoding"):
            return not data.endswith(self._content)
        return data.endswith(b"\r\n\r\n\r\n")


def _coded_unasked(lines: list[bytes]) -> bool:
    """Tell whether content would be passed on as something else than it is: no request of ours has TE.

    An unknown coding is passed on; one that is known to change the octets is not, nor are chunks in chunks.
    """
    codings = [coding.strip(b" \t").lower() for line in lines for coding in line.split(b",")]
    return b"chunked" in codings[:-1] or not _COMPRESSIONS.isdisjoint(codings)


def _size(fields: Fields) -> int:
    """The octets of field lines."""
    return sum(len(name) + len(value) + 4 for name, value in fields)
