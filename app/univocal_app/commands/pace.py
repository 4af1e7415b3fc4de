"""The pace of requests: a command sends one after the other, or from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Lets one request pass every `spacing` seconds, from all threads together."""

    __slots__ = ("_clock", "_lock", "_next", "_sleep", "_spacing")

    def __init__(
        self,
        spacing: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spacing, self._clock, self._sleep = spacing, clock, sleep
        self._next, self._lock = 0.0, threading.Lock()

    def slow_down(self, seconds: float) -> None:
        """Keep at least so many seconds between two requests."""
        self._spacing = max(self._spacing, seconds)

    def wait(self) -> None:
        """Wait until another request may be sent; other threads wait for their turn behind this one."""
        with self._lock:
            wait = self._next - self._clock()
            if wait > 0:
                self._sleep(wait)
            self._next = self._clock() + self._spacing
