"""The times that a client has: one lazy timer for all the waits of a connection.

How long each may be, `ReadLimits` in `http/framing.py` says: `header_timeout` (15 s) for a head,
`content_timeout` (60 s) for content, `send_timeout` (60 s) for taking what is sent. A connection between two
requests has uvicorn's `timeout_keep_alive`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

__all__ = ["NEVER", "Deadlines"]

NEVER: Final = math.inf


class Deadlines:
    """Calls `passed` once the client has not gone on in the time that `wait` gave it.

    A wait replaces the one before. The timer is lazy: a wait that ends later than the one before it costs no
    call of the event loop, so that a connection with a thousand requests sets one timer, not a thousand.
    """

    __slots__ = ("_loop", "_passed", "_timer", "arrived", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        self._loop = loop
        self._passed: Callable[[], None] | None = passed
        self._timer: asyncio.TimerHandle | None = None
        self.due = NEVER  # the loop's time at which the client must have gone on
        self.arrived = 0  # octets of content since it was last seen to keep its pace

    def wait(self, seconds: float) -> float:
        """Give the client so many seconds from now on, 0: all it likes; returns the loop's time."""
        now = self._loop.time()
        if not seconds:
            self.due = NEVER
            return now
        self.due = due = now + seconds
        timer = self._timer
        if timer is not None:
            if timer.when() <= due:
                return now
            timer.cancel()
        self._timer = self._loop.call_at(due, self._look)
        return now

    def rest(self) -> None:
        """Give the client all the time it likes."""
        self.due = NEVER

    def stop(self) -> None:
        """Look no more, and let go of who hears of it."""
        self.due = NEVER
        self._passed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.due == NEVER or self._passed is None:
            return
        if self._loop.time() < self.due:
            self._timer = self._loop.call_at(self.due, self._look)
        else:
            self._passed()
