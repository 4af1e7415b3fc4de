"""A point in time that moves with every request and costs a timer only now and then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["Deadline"]


class Deadline:
    """Calls `action` once when the time set is over, unless it was moved or cleared.

    Moving it further away or clearing it is an assignment: the timer that is already armed looks
    again when it fires. So a connection that is busy arms about one timer per timeout, not per request.
    """

    __slots__ = ("_action", "_armed", "_loop", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
        self._loop = loop
        self._action = action
        self._when = self._armed = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float | None) -> None:
        """Due in `seconds` from now; None: never."""
        if seconds is None:
            self._when = math.inf
            return
        self._when = when = self._loop.time() + seconds
        if when < self._armed:
            self._arm(when)

    def clear(self) -> None:
        """Not due any more."""
        self._when = math.inf

    def close(self) -> None:
        """Not due any more, and nothing is left in the event loop."""
        self._when = self._armed = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        self._armed = math.inf
        if self._when == math.inf:
            return
        if self._when > self._loop.time():
            self._arm(self._when)
            return
        self._when = math.inf
        self._action()
