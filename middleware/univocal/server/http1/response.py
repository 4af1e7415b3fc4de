"""Responses by HTTP/1.1: their framing (RFC 9112 §6), and how they leave a connection.

They leave once in a turn of the event loop, with those of other connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from univocal.http.messages import Fields, reason_phrase
from univocal.http.timer import batch_of

_LAST_CHUNK: Final = b"0\r\n\r\n"


def interim_head(status: int, fields: Fields) -> bytes:
    """A 1xx response (RFC 9110 §15.2)."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join((_status_line(status), b"\r\n", *lines, b"\r\n"))


class _Section:
    """A response's status line and field lines, as they were spelled; the fields are not to be changed."""

    def __init__(self, status: int, fields: Fields, octets: bytes) -> None:
        self.status = status
        self.fields = fields
        self.octets = octets


class _Last:
    """The last section that was spelled: responses in a row may be alike."""

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


def _closes(fields: Fields) -> bool:
    return any(name == b"connection" and b"close" in value.lower() for name, value in fields)


@lru_cache(maxsize=1024)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b" % (status, reason_phrase(status))


# Content of more bytes is not copied to stand behind its head, and does not wait.
JOINED: Final = 8 * 1024
# So many pieces of fewer bytes wait at most.
_PIECES: Final = 16


class ResponseWriter:
    """Frames responses and sends them: `start`, then `content` any number of times, and `end`.

    The head goes with the first bytes of content, or by itself at the end of the turn. `closes`: the end of a
    connection is its content's (RFC 9112 §6.3, rule 8). `flush` goes before every other use of the transport
    that the client notices.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._batch = batch_of(loop)
        self._head = b""  # that waits for something to go with it
        self._is_chunked = False
        self.closes = False
        self._is_due = False  # it is flushed at the end of this turn
        self.unsent: list[bytes | memoryview] = []

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

        `names` are those of the fields, which have no framing but Content-Length. The head leaves in this
        turn, whatever comes.
        """
        if has_content and not self._is_due:
            self._is_due = True
            self._batch.add(self._loop, self._depart)
        last = _last.section
        head = last.octets if last.status == status and last.fields == fields else _section(status, fields)
        self._is_chunked = self.closes = False
        if has_content and b"content-length" not in names:
            if is_old:  # RFC 9112 §6.1: no coding for a client that cannot know it
                self.closes, keep_alive = True, False
            else:
                self._is_chunked = True
                head += b"transfer-encoding: chunked\r\n"
        if b"connection" in names and _closes(fields):
            keep_alive = False
        elif not keep_alive:
            head += b"connection: close\r\n"
        self._head = head + b"\r\n"
        return keep_alive

    def content(self, chunk: bytes | memoryview) -> None:
        """Send content, which there is some of; a large piece is not copied to stand behind its head."""
        head, self._head = self._head, b""
        if self._is_chunked:
            self.write(b"".join((b"%b%x\r\n" % (head, len(chunk)), chunk, b"\r\n")))
        elif len(chunk) <= JOINED:
            self.write(b"".join((head, chunk)) if head else chunk)
        else:
            self.flush()
            if head:
                self._transport.writelines((head, chunk))
            else:
                self._transport.write(chunk)

    def end(self) -> None:
        """End a response."""
        last, self._head = self._head, b""
        if self._is_chunked:
            last += _LAST_CHUNK
        if last:
            self.write(last)

    def write(self, octets: bytes | memoryview) -> None:
        """Send bytes behind all that was sent before."""
        if len(octets) > JOINED:
            self.flush()
            self._transport.write(octets)
            return
        self.unsent.append(octets)
        if len(self.unsent) == _PIECES:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._batch.add(self._loop, self._depart)

    def flush(self) -> None:
        """Send what waits, a head without content, too: a client may wait for it (an event stream's)."""
        unsent, head, self._head = self.unsent, self._head, b""
        if not (unsent or head):
            return
        octets = unsent[0] if len(unsent) == 1 and not head else b"".join((*unsent, head))
        unsent.clear()
        if not self._transport.is_closing():
            self._transport.write(octets)

    def _depart(self) -> None:
        self._is_due = False
        self.flush()
