"""The times that an origin server may take, and the timer that counts them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from univocal.http.errors import ConfigurationError

__all__ = ["Timeouts", "Timer"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the origin server, None for ever; `read` and `write` are between two of them.

    Raises ConfigurationError for what is no time.
    """

    connect: float | None = 5.0
    read: float | None = 60.0
    write: float | None = 60.0
    pool: float | None = 5.0

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (number and seconds > 0):
                raise ConfigurationError("Timeouts", name, seconds, "seconds, more than 0; None for ever")


class Timer:
    """Calls `action` once when the time set is over, unless it was set anew or cleared.

    Setting it to a later time or clearing it is an assignment: the event loop's timer that is armed
    already looks again when it fires. So a busy connection arms one now and then, not one per request.
    """

    __slots__ = ("_action", "_armed", "_loop", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
        self._loop = loop
        self._action = action
        self._when = self._armed = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float | None) -> None:
        """Let the time be over in `seconds` from now; None: never."""
        if seconds is None:
            self._when = math.inf
            return
        self._when = when = self._loop.time() + seconds
        if when < self._armed:
            self._arm(when)

    def clear(self) -> None:
        """Let the time never be over."""
        self._when = math.inf

    def close(self) -> None:
        """Clear it for good, and leave nothing in the event loop. It lets its owner go: no circle is left."""
        self._when = self._armed = math.inf
        self._action = _nothing
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


def _nothing() -> None:
    """Stand in for the action of a timer that is closed."""
