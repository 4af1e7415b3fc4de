"""Responses leave a connection once in a turn of the event loop, with those of other connections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from univocal.http.batch import batch_of
from univocal.http.messages import Fields
from univocal.server.http1.response import ResponseFraming

# Content of more bytes is not copied to stand behind its head, and does not wait.
JOINED: Final = 8 * 1024
# So many pieces of fewer bytes wait at most.
_PIECES: Final = 16


class ResponseWriter:
    """Frames responses and sends them: `start`, then `content` any number of times, and `end`.

    `flush` goes before every other use of the transport that the client notices.
    """

    __slots__ = ("_batch", "_framing", "_is_due", "_loop", "_transport", "unsent")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._batch = batch_of(loop)
        self._framing = ResponseFraming()
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
        """Begin a response, see `ResponseFraming.start`. Its head leaves in this turn, whatever comes."""
        if has_content and not self._is_due:
            self._send_soon()
        return self._framing.start(
            status, fields, names, has_content=has_content, is_old=is_old, keep_alive=keep_alive
        )

    def content(self, chunk: bytes | memoryview) -> None:
        """Send content, which there is some of; a large piece is not copied to stand behind its head."""
        if len(chunk) <= JOINED or self._framing.is_chunked:
            self.write(self._framing.content(chunk))
            return
        head = self._framing.take_head()
        self.flush()
        if head:
            self._transport.writelines((head, chunk))
        else:
            self._transport.write(chunk)

    def end(self) -> None:
        """End a response."""
        last = self._framing.end()
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
            self._send_soon()

    def flush(self) -> None:
        """Send what waits, a head without content, too: a client may wait for it (an event stream's)."""
        unsent, head = self.unsent, self._framing.take_head()
        if not (unsent or head):
            return
        octets = unsent[0] if len(unsent) == 1 and not head else b"".join((*unsent, head))
        unsent.clear()
        if not self._transport.is_closing():
            self._transport.write(octets)

    @property
    def closes(self) -> bool:
        """The connection's end is the end of the content that is sent (RFC 9112 §6.3, rule 8)."""
        return self._framing.closes

    def _send_soon(self) -> None:
        self._is_due = True
        self._batch.add(self._loop, self._depart)

    def _depart(self) -> None:
        self._is_due = False
        self.flush()
