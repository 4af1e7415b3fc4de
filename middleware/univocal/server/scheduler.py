"""A connection's part of a turn of the event loop: then others have theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from univocal.http.states import moves

A_TURN: Final = 0.002
"""Seconds that one connection has of a turn of the event loop."""


class Pace(Enum):
    """The states of a scheduler, and what ends each."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    RESTING = "nobody works: `begin`, or `go_on_later`"
    WORKING = "the connection works: `end`"
    WAITING = "it goes on in the next turn: that comes, or `stop`"


_RESTING: Final = Pace.RESTING
_WORKING: Final = Pace.WORKING
_WAITING: Final = Pace.WAITING

PACES: Final = moves({_RESTING: (_WORKING, _WAITING), _WORKING: (_RESTING,), _WAITING: (_RESTING,)})


class Scheduler:
    """Lets a connection work for `most` steps, or for `A_TURN`, and calls `go_on` if there is more to do.

    `begin` and `end` stand around the work, and `has_time` before each part of it, which `spend` counts.
    """

    __slots__ = ("_end", "_go_on", "_handle", "_left", "_loop", "_most", "_ticks", "pace")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ticks: Callable[[], float],
        most: int,
        go_on: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._ticks = ticks  # seconds that never go back
        self._most = most
        self._go_on: Callable[[], None] | None = go_on
        self._handle: asyncio.Handle | None = None
        self._left = 0  # steps
        self._end = 0.0
        self.pace = _RESTING

    def _move(self, pace: Pace) -> None:
        self.pace = PACES[self.pace, pace]

    def begin(self) -> bool:
        """Begin to work; False: work is under way, or goes on in the next turn."""
        if self.pace is not _RESTING:
            return False
        self._move(_WORKING)
        self._left, self._end = self._most, self._ticks() + A_TURN
        return True

    def has_time(self) -> bool:
        """Tell whether there is time for another step."""
        return self._left > 0 and self._ticks() < self._end

    def spend(self, steps: int) -> None:
        """Count work that was done."""
        self._left -= steps

    def end(self) -> None:
        """End the work of this turn."""
        self._move(_RESTING)

    def go_on_later(self) -> None:
        """Go on in the next turn, behind the others, unless that is to be anyway."""
        if self.pace is not _WAITING:
            self._move(_WAITING)
            self._handle = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._handle = None
        self._move(_RESTING)
        if self._go_on is not None:
            self._go_on()

    def stop(self) -> None:
        """Go on no more, and let go of the connection: circles wait for the garbage collector."""
        self._go_on = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
