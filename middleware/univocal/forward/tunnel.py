"""A client and an origin server speak another protocol past us: bytes go both ways, and none is read.

Each side reads no more than the other takes. When one ends its half, so does the other; when one is gone, the
other gets what was sent to it, and is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from univocal.http.intermediary import Line
from univocal.http.roles import CallLater, Due

GOING_AWAY: Final = 1001  # RFC 6455 §7.4.1: a server goes down

_CLOSE: Final = 0x8
_MASKED: Final = 0x80
_LONGEST_HEAD: Final = 14  # bytes: two, eight of length, four of the mask
_MOST: Final = 4096  # frames that are counted in one go: some milliseconds' work


class FrameCounter:
    """Follows one direction of a WebSocket, however its frames are cut into pieces."""

    def __init__(self) -> None:
        self._head = b""  # of a frame, while it is not whole
        self._left = 0  # bytes of the frame's payload that are to come
        self.closing = False  # a close frame has passed, behind which there is none (§5.5.1)

    @property
    def between(self) -> bool:
        """True where a frame may begin."""
        return not (self._head or self._left or self.closing)

    def count(self, octets: bytes) -> None:
        """Count `octets` that pass."""
        place, size = self._left, len(octets)
        if place >= size or self.closing:
            self._left -= size
            return
        if self._head:
            place = self._complete(octets)
        for _ in range(_MOST):
            if place + _LONGEST_HEAD > size:
                break
            # Nearly all frames begin here: nothing is called, as there may be thousands of them.
            second = octets[place + 1]
            length = second & 0x7F
            if octets[place] & 0x0F == _CLOSE:
                self.closing = True
            if length > 125:
                place += _head_length(octets[place : place + 2]) + _payload(octets[place : place + 10])
            else:
                place += length + 6 if second & _MASKED else length + 2
        else:
            self.closing = True  # whoever sends so many in one go is not told goodbye
            return
        while place < size:
            place = self._begin(octets, place)
        self._left = place - size

    def _complete(self, octets: bytes) -> int:
        """Go on with a head that was cut; the place behind its frame."""
        before = self._head
        self._head = b""
        return self._begin(before + octets[:_LONGEST_HEAD], 0) - len(before)

    def _begin(self, octets: bytes, place: int) -> int:
        """Begin with a frame whose head may be cut; the place behind it, which may be yet to come."""
        head = octets[place : place + _LONGEST_HEAD]
        length = _head_length(head)
        if not length or len(head) < length:
            self._head = head
            return place + len(head)
        self.closing = self.closing or head[0] & 0x0F == _CLOSE
        return place + length + _payload(head)


def close_frame(code: int, *, masked: bool) -> bytes:
    """A close frame; a client's is masked (§5.3), with a key of zeros, since nothing in it is secret."""
    payload = code.to_bytes(2)
    mask = bytes(4) if masked else b""
    return bytes((0x80 | _CLOSE, (_MASKED if masked else 0) | len(payload))) + mask + payload


def _head_length(head: bytes) -> int:
    """The bytes of a frame's head that begins so; 0: not known yet."""
    if len(head) < 2:
        return 0
    length = head[1] & 0x7F
    return 2 + (8 if length == 127 else 2 if length == 126 else 0) + (4 if head[1] & _MASKED else 0)


def _payload(head: bytes) -> int:
    length = head[1] & 0x7F
    if length < 126:
        return length
    return int.from_bytes(head[2 : 4 if length == 126 else 10])


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
        if self.other.ended:
            self._tunnel.close()
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
