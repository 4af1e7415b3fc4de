"""Bytes for the client are written once in a turn of the event loop, and streams take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from univocal.server.delivery import Delivery
from univocal.server.http2.session import Session
from univocal.server.http2.stream import Http2Stream

# Bytes of content that are written at once.
_BATCH: Final = 128 * 1024


class Output:
    """Sends the content that waits, frame by frame in turn, as the windows and the transport allow.

    `settle` is called after each flush. `stalled` hears that content waits for a window.
    """

    __slots__ = (
        "_delivery",
        "_handle",
        "_loop",
        "_ready",
        "_session",
        "_settle",
        "_stalled",
        "_transport",
        "is_blocked",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        session: Session,
        seconds: float,
        settle: Callable[[], None],
        stalled: Callable[[], None],
    ) -> None:
        self.is_blocked = False  # the transport takes no more for now
        self._transport = transport
        self._loop = loop
        self._session = session
        self._delivery = Delivery(transport, loop, seconds)
        self._ready: dict[Http2Stream, None] = {}  # streams that may send, in order
        self._handle: asyncio.Handle | None = None
        self._settle: Callable[[], None] | None = settle
        self._stalled: Callable[[], None] | None = stalled

    def send_soon(self, stream: Http2Stream) -> None:
        """Let a stream send what it has, with all others in this turn of the event loop."""
        self._ready[stream] = None
        self.flush_soon()

    def flush_soon(self) -> None:
        """Write what the session has to say in this turn of the event loop."""
        if self._handle is None and self._settle is not None:
            self._handle = self._loop.call_soon(self._flush)

    def forget(self, stream: Http2Stream) -> None:
        """Take note that a stream has nothing more to send."""
        self._ready.pop(stream, None)

    def _flush(self) -> None:
        self._handle = None
        self._send()
        self.write()
        if self._settle is not None:
            self._settle()

    def _send(self) -> None:
        ready = self._ready
        while ready and not self.is_blocked:
            stream = next(iter(ready))
            del ready[stream]
            if stream.send():
                ready[stream] = None
            elif stream.awaits_window and stream not in ready and self._stalled is not None:
                self._stalled()
            if self._session.unwritten >= _BATCH:
                self.write()

    def has_room(self) -> bool:
        """Tell whether more may be written; what waits is written before, if it is much."""
        if self._session.unwritten >= _BATCH:
            self.write()
        return not self.is_blocked

    def write(self) -> None:
        """Write what there is."""
        octets = self._session.take()
        if octets and not self._transport.is_closing():
            self._transport.write(octets)

    def close(self) -> None:
        """Close once the client has taken all that was written, and see to it that it takes it."""
        self.write()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._delivery.watch(self._transport.abort)

    def block(self, give_up: Callable[[], None]) -> None:
        """Take note that the transport takes no more; `give_up` is called if that lasts."""
        self.is_blocked = True
        self._transport.pause_reading()
        self._delivery.watch(give_up)

    def unblock(self) -> None:
        """Take note that the transport takes more."""
        self.is_blocked = False
        self._delivery.moved()
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.flush_soon()

    def stop(self) -> None:
        """Write no more: the connection is lost."""
        self._delivery.stop()
        self._ready.clear()
        self._settle = self._stalled = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
