"""A client takes what it is sent, if slowly; one that takes nothing for too long is given up."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import sys
import termios
from collections.abc import Callable


class Delivery:
    """Watches what waits to be sent over one transport: whether anything of it moves in so many `seconds`.

    0: it is never looked at. It need not be watched while the transport takes more, so nobody pays for it
    whose client reads.
    """

    __slots__ = ("_before", "_loop", "_moved", "_timer", "_transport", "seconds")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self.seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._before = 0  # bytes that the client had not taken yet when it was last looked
        self._moved = False  # since then the transport has taken more

    def watch(self, give_up: Callable[[], None]) -> None:
        """Look from time to time, as long as something waits; `give_up` is called once nothing of it moves.

        It is held while that is looked for and no longer: it belongs to the connection, which holds this.
        """
        if self._timer is None and self.seconds:
            self._moved = False
            self._before = self._untaken()
            self._timer = self._loop.call_later(self.seconds, self._look, give_up)

    def moved(self) -> None:
        """Take note that the transport takes more."""
        self._moved = True

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, give_up: Callable[[], None]) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        if self._moved or self._untaken() < self._before:
            self.watch(give_up)
        else:
            give_up()

    def _untaken(self) -> int:
        """The bytes that the client has not confirmed: those that wait here and in the system's queue.

        A transport reports free room in that queue late. A slow client may need longer than its timeout until
        then.
        """
        waiting = self._transport.get_write_buffer_size()
        socket = self._transport.get_extra_info("socket")
        if socket is None or sys.platform != "linux":
            return waiting
        try:
            queued = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return waiting
        return waiting + int(struct.unpack("i", queued)[0])


def is_gone(transport: asyncio.Transport) -> bool:
    """Tell whether the client has reset the connection or closed all of it, as far as the system knows.

    A transport whose client sends no more reads nothing, and does not hear of that.
    """
    socket = transport.get_extra_info("socket")
    if socket is None or sys.platform != "linux":
        return False
    poll = select.poll()
    poll.register(socket.fileno(), 0)  # errors and the end of both directions are told unasked
    return bool(poll.poll(0))
