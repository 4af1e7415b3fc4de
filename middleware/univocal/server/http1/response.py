"""Responses by HTTP/1.1: their framing (RFC 9112 §6), and how they leave a connection.

They leave once in an iteration of the event loop, with those of other connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from univocal.http.messages import Fields, status_line
from univocal.http.timer import batch_of
from univocal.server.turn import Turn

_LAST_CHUNK: Final = b"0\r\n\r\n"


def interim_head(status: int, fields: Fields) -> bytes:
    """A 1xx response (RFC 9110 §15.2)."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join((status_line(status), b"\r\n", *lines, b"\r\n"))


# The section that was spelled last: responses in a row may be alike. The fields are not to be changed.
_last: Final[list[tuple[int, Fields, bytes]]] = [(0, [], b"")]
# Bytes of a section that is remembered.
_LONGEST: Final = 2048


def _section(status: int, fields: Fields) -> bytes:
    """A status line and field lines, each with its end."""
    lines = [name + b": " + value for name, value in fields]
    octets = b"\r\n".join([status_line(status), *lines, b""])
    if len(octets) <= _LONGEST:
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
