"""A client and an origin server speak another protocol past us: bytes go both ways, and none is read.

Each side reads no more than the other takes. When one ends its half, so does the other; when one is gone, the
other gets what was sent to it, and is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from univocal.http.roles import CallLater, Due
from univocal.http.upgrade import Line
from univocal.http.websocket_frames import GOING_AWAY, FrameCounter, close_frame

LINGER: Final = 10.0  # seconds in which a side may still take what was sent to it before the end
# The silence is looked for so many times within the time that it may last: it is noticed a part of it later.
_LOOKS: Final = 4


class Tunnel:
    """Relays bytes between two connections that were given away, until both have ended.

    After `silence` seconds without a byte it ends, 0: never. With `frames` it is a WebSocket: who is sent
    away is told so by a close frame, where one may stand.
    """

    def __init__(
        self, client: Line, origin: Line, call_later: CallLater, *, silence: float, frames: bool
    ) -> None:
        self.over = False
        self._call_later = call_later
        self._looks = 0  # since a byte passed
        self._pause = silence / _LOOKS
        self._timer: Due | None = None
        self._client = _End(self, client, frames=frames, masked=False)
        self._origin = _End(self, origin, frames=frames, masked=True)
        self._client.other, self._origin.other = self._origin, self._client
        early = self._client.take_over()
        self._origin.take_over()
        if silence:
            self._timer = call_later(self._pause, self._look)
        self._client.begin(early)
        self._origin.begin(b"")

    @property
    def octets(self) -> int:
        """Bytes that were sent to the client."""
        return self._client.octets

    def send_away(self) -> None:
        """End it: this server goes down, or nothing has passed for too long."""
        if not self.over:
            self._client.say_goodbye()
            self._origin.say_goodbye()
            self.close()

    def close(self) -> None:
        """Close both connections, once they have taken what was sent to them."""
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._client.close(self._call_later)
        self._origin.close(self._call_later)

    # Reports of its ends

    def stir(self) -> None:
        """Restart the idle time: bytes pass."""
        self._looks = 0

    def half_closed(self) -> None:
        """Handle the end of one side's half."""
        if self._client.ended and self._origin.ended:
            self.close()

    def _look(self) -> None:
        self._looks += 1
        if self._looks > _LOOKS:
            self._timer = None
            self.send_away()
        else:
            self._timer = self._call_later(self._pause, self._look)


class _End(asyncio.Protocol):
    """One side of a tunnel; `masked`: it is a server, to which a WebSocket's client masks what it sends."""

    transport: Any
    other: _End

    def __init__(self, tunnel: Tunnel, line: Line, *, frames: bool, masked: bool) -> None:
        self._tunnel = tunnel
        self._line = line
        self._masked = masked
        self._full = False
        self._aborting: Due | None = None
        self._frames = FrameCounter() if frames else None  # of what is sent to this side
        self.ended = False  # it sends no more
        self.octets = 0  # sent to it

    def take_over(self) -> bytes:
        """Be the one who hears of the connection; returns what has come already."""
        self.transport, early, self._full = self._line.switch(self)
        return early

    def begin(self, early: bytes) -> None:
        """Read from now on, as far as the other side takes it."""
        if early:
            self.data_received(early)
        if not self.other._full and not self.transport.is_closing():
            self.transport.resume_reading()

    # Called by the event loop

    def data_received(self, data: bytes) -> None:
        tunnel = self._tunnel
        if not tunnel.over:
            tunnel.stir()
            self.other.send(data)

    def eof_received(self) -> bool:
        if self.ended or self._tunnel.over:
            return False
        self.ended = True
        if not self.other.transport.can_write_eof():  # over TLS there is no half
            self._tunnel.close()
            return False
        if not self.other.transport.is_closing():
            self.other.transport.write_eof()
        self._tunnel.half_closed()
        return bool(self.transport.can_write_eof())

    def pause_writing(self) -> None:
        self._full = True
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._tunnel.stir()
        if not (self.other.ended or self.other.transport.is_closing()):
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.close()
        if self._aborting is not None:
            self._aborting.cancel()
            self._aborting = None
        self._line.connection_lost(exc)

    # Called by the tunnel and the other side

    def send(self, octets: bytes) -> None:
        """Send bytes to this side."""
        self.octets += len(octets)
        if self._frames is not None:
            self._frames.count(octets)
        self.transport.write(octets)

    def say_goodbye(self) -> None:
        """Send a WebSocket's close frame, where one may stand."""
        if self._frames is not None and self._frames.between and not self.other.ended:
            self.send(close_frame(GOING_AWAY, masked=self._masked))

    def close(self, call_later: CallLater) -> None:
        """Close the connection once it has taken what was sent; after `LINGER` seconds at the latest."""
        if not self.transport.is_closing():
            self._aborting = call_later(LINGER, self.transport.abort)
        self.transport.close()
