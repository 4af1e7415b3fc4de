"""Bytes of a response in, its parts out: httptools' parser and what it leaves to its user. No socket."""

from __future__ import annotations

from typing import Final, Protocol

import httptools

from univocal.http.messages import Fields, values

__all__ = ["ResponseReader", "Sink"]

MAX_INTERIM: Final = 32

_VERSIONS: Final = {"1.0": b"HTTP/1.0", "1.1": b"HTTP/1.1"}


_COMPRESSIONS: Final = frozenset((b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"))


class Sink(Protocol):
    """Who is told of a response."""

    trailers: Fields

    def interim(self, status: int, fields: Fields) -> None: ...
    def began(self, status: int, version: bytes, fields: Fields) -> None: ...
    def received(self, content: bytes) -> None: ...


class ResponseReader:
    """Reads one response after the other from a connection (RFC 9112 §6.3).

    `max_head` bounds the octets of one head, of the trailers, and of chunk extensions in a row.
    """

    __slots__ = (
        "_barren", "_content", "_fields", "_final", "_head", "_interims", "_is_head", "_max_head", "_parser",
        "_persists", "_progress", "_sink", "_surplus", "_tunnel", "_upgrades", "began", "complete", "fault",
    )  # fmt: skip

    def __init__(self, max_head: int) -> None:
        self._max_head = max_head
        self._parser = httptools.HttpResponseParser(self)

    def expect(self, sink: Sink, *, is_head: bool, upgrades: bool) -> None:
        """Tell `sink` of the next response; it answers HEAD, or a request with Upgrade."""
        self._sink, self._is_head, self._upgrades = sink, is_head, upgrades
        self._fields: Fields = []
        self._head: Fields = []
        self._content = b""  # its last octets
        self._final = self._persists = self._surplus = self._tunnel = self._progress = False
        self._interims = self._barren = 0
        self.began = False  # any octet was read
        self.complete = False
        self.fault = ""  # why this is no response

    @property
    def reusable(self) -> bool:
        """Whether another response may follow on this connection (RFC 9112 §9.3)."""
        return self._persists and not self._surplus

    def feed(self, data: bytes) -> None:
        """Read `data`: sets `complete` at the response's end, and `fault` where it is none."""
        self.began = True
        self._progress = False
        self._barren += len(data)
        try:
            if self._tunnel:
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
        if self.complete:
            self._surplus = self._surplus or (data[-1] in b"\r\n" and self._blank_lines_follow(data))
            self._content = b""
        elif self._progress:
            self._barren = 0
        elif self._barren > self._max_head:
            self.fault = self.fault or "the response's head is too large"

    def close(self) -> bool:
        """The connection ended; whether that is how the response ends (RFC 9112 §6.3, rule 8)."""
        self._surplus = True
        return self._final and not self.fault and (self._tunnel or self._ends_with_connection())

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._surplus = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        if self.complete or self.fault:
            return
        fields, parser = self._fields, self._parser
        self._progress = True
        if self._barren > self._max_head and _size(fields) > self._max_head:
            self.fault = "the response's head is too large"
            return
        status = parser.get_status_code()
        version = _VERSIONS.get(parser.get_http_version())
        if version is None or status < 100 or (status == 101 and not self._upgrades):
            self.fault = "a version or status that no request asked for"
        elif status < 200 and status != 101:
            self._pass_on(status)
        elif _coded_unasked(fields):
            self.fault = "a transfer coding that was not asked for"
        else:
            self._final, self._tunnel = True, status == 101
            self._persists = not self._tunnel and parser.should_keep_alive()
            self._head, self._fields = fields, self._sink.trailers
            self._sink.began(status, version, fields)
            if version == b"HTTP/1.0" and self._persists:
                # RFC 9112 §6.1: the framing of a coded HTTP/1.0 message is faulty
                self._persists = not values(fields, b"transfer-encoding")
            if self._is_head:
                self._end_without_content(version, fields)

    def on_body(self, content: bytes) -> None:
        if self.complete:
            self._surplus = True
        elif self._final:
            self._progress = True
            self._content = content
            self._sink.received(content)

    def on_message_complete(self) -> None:
        if self._final and not self._tunnel:
            self.complete = True
            self._fields = []

    def _pass_on(self, status: int) -> None:
        """An interim response: any number may come, but not any number at all (RFC 9110 §15.2)."""
        fields, self._fields = self._fields, []
        self._interims += 1
        if self._interims > MAX_INTERIM:
            self.fault = "too many interim responses"
        else:
            self._sink.interim(status, fields)

    def _end_without_content(self, version: bytes, fields: Fields) -> None:
        """The response to HEAD ends here, of which httptools has no notion (RFC 9110 §9.3.2)."""
        options = b",".join(values(fields, b"connection")).lower().split(b",")
        named = {option.strip(b" \t") for option in options}
        self._persists = b"close" not in named and (version == b"HTTP/1.1" or b"keep-alive" in named)
        self.complete = True
        self._fields = []
        self._parser = httptools.HttpResponseParser(self)

    def _ends_with_connection(self) -> bool:
        """Whether the content has no other end than the connection's."""
        codings = values(self._head, b"transfer-encoding")
        if codings:
            return codings[-1].rpartition(b",")[2].strip(b" \t").lower() != b"chunked"
        return not values(self._head, b"content-length")

    def _blank_lines_follow(self, data: bytes) -> bool:
        """Whether CRs and LFs stand behind the response, which the parser passes over in silence."""
        if self._content and not values(self._head, b"transfer-encoding"):
            return not data.endswith(self._content)
        return data.endswith(b"\r\n\r\n\r\n")


def _coded_unasked(fields: Fields) -> bool:
    """Whether content would be passed on as something else than it is: no request of ours has a TE field.

    A coding that nobody knows is passed on; what is known to change the octets is not, nor chunks in chunks.
    """
    lines = values(fields, b"transfer-encoding")
    codings = [coding.strip(b" \t").lower() for line in lines for coding in line.split(b",")]
    return b"chunked" in codings[:-1] or not _COMPRESSIONS.isdisjoint(codings)


def _size(fields: Fields) -> int:
    """The octets of field lines."""
    return sum(len(name) + len(value) + 4 for name, value in fields)
