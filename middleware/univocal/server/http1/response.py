"""The framing of responses by HTTP/1.1 (RFC 9112 §6). Pure: the bytes to send are what its calls return."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from univocal.http.messages import Fields
from univocal.http.status import reason_phrase

_LAST_CHUNK: Final = b"0\r\n\r\n"


def interim_head(status: int, fields: Fields) -> bytes:
    """A 1xx response (RFC 9110 §15.2)."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join((_status_line(status), b"\r\n", *lines, b"\r\n"))


class _Section:
    """A response's status line and field lines, as they were spelled; the fields are not to be changed."""

    __slots__ = ("fields", "octets", "status")

    def __init__(self, status: int, fields: Fields, octets: bytes) -> None:
        self.status = status
        self.fields = fields
        self.octets = octets


class _Last:
    """The last section that was spelled: responses in a row may be alike."""

    __slots__ = ("section",)

    def __init__(self) -> None:
        self.section = _Section(0, [], b"")


_last: Final = _Last()
# Bytes of a section that is remembered.
_LONGEST: Final = 2048


def _section(status: int, fields: Fields) -> bytes:
    """A status line and field lines, each with its end."""
    lines = [name + b": " + value for name, value in fields]
    octets = b"\r\n".join([_status_line(status), *lines, b""])
    if len(octets) <= _LONGEST:
        _last.section = _Section(status, [*fields], octets)
    return octets


class ResponseFraming:
    """Frames one response after the other: `start`, then `content` any number of times, and `end`.

    The head goes with the first bytes of content, or by itself where `take_head` is called before.
    `closes`: the connection's end is the content's (§6.3, rule 8). Content has bytes around it if it
    `is_chunked`; other content is sent as it is.
    """

    __slots__ = ("_head", "closes", "is_chunked")

    def __init__(self) -> None:
        self._head = b""  # that waits for something to go with it
        self.is_chunked = False
        self.closes = False

    def start(
        self,
        status: int,
        fields: Fields,
        names: Collection[bytes],
        *,
        has_content: bool,
        is_old: bool,
        keep_alive: bool,
    ) -> bool:
        """Begin a response to HTTP/1.0 (`is_old`) or HTTP/1.1; False: the connection ends with it.

        `names` are those of the fields, which have no framing but Content-Length.
        """
        last = _last.section
        head = last.octets if last.status == status and last.fields == fields else _section(status, fields)
        self.is_chunked = self.closes = False
        if has_content and b"content-length" not in names:
            if is_old:  # RFC 9112 §6.1: no coding for a client that cannot know it
                self.closes, keep_alive = True, False
            else:
                self.is_chunked = True
                head += b"transfer-encoding: chunked\r\n"
        if b"connection" in names and _closes(fields):
            keep_alive = False
        elif not keep_alive:
            head += b"connection: close\r\n"
        self._head = head + b"\r\n"
        return keep_alive

    def content(self, chunk: bytes | memoryview) -> bytes | memoryview:
        """Bytes of content, which there are some of."""
        head, self._head = self._head, b""
        if self.is_chunked:
            return b"".join((b"%b%x\r\n" % (head, len(chunk)), chunk, b"\r\n"))
        return b"".join((head, chunk)) if head else chunk

    def end(self) -> bytes:
        """The bytes that are left at the end of a response."""
        head, self._head = self._head, b""
        return head + _LAST_CHUNK if self.is_chunked else head

    def take_head(self) -> bytes:
        """The head, if it has not gone yet."""
        head, self._head = self._head, b""
        return head


def _closes(fields: Fields) -> bool:
    return any(name == b"connection" and b"close" in value.lower() for name, value in fields)


@lru_cache(maxsize=1024)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b" % (status, reason_phrase(status))
