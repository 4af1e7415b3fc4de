"""A connection's part of a turn of the event loop: then others have theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from univocal.http.tables import moves

A_TURN: Final = 0.002
"""Seconds that one connection has of a turn of the event loop."""


class Pace(Enum):
    """The states of a scheduler, and what ends each."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    RESTING = "nobody works: `run`, or `go_on_later`"
    WORKING = "the connection works: nothing is left, or the time is over"
    WAITING = "it goes on in the next turn: that comes, or `stop`"


_RESTING: Final = Pace.RESTING
_WORKING: Final = Pace.WORKING
_WAITING: Final = Pace.WAITING

PACES: Final = moves({_RESTING: (_WORKING, _WAITING), _WORKING: (_RESTING,), _WAITING: (_RESTING,)})


class Scheduler:
    """Lets a connection work for `most` steps, or for `A_TURN`, and calls `go_on` if there is more to do.

    `step` works, and returns how many steps that took. 0: nothing is left to do; -1: the rest has to wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ticks: Callable[[], float],
        most: int,
        step: Callable[[], int],
        go_on: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._ticks = ticks  # seconds that never go back
        self._most = most
        self._step: Callable[[], int] | None = step
        self._go_on: Callable[[], None] | None = go_on
        self._handle: asyncio.Handle | None = None
        self.pace = _RESTING

    def run(self) -> bool:
        """Work, unless that is under way or waits for the next turn; True: nothing is left to do."""
        self.pace = PACES[self.pace, _WORKING]
        left, ticks, step = self._most, self._ticks, self._step
        end = ticks() + A_TURN
        try:
            while left > 0 and step is not None and ticks() < end:
                steps = step()
                if steps <= 0:
                    return steps == 0
                left -= steps
        finally:
            self.pace = PACES[self.pace, _RESTING]
        return False

    def go_on_later(self) -> None:
        """Go on in the next turn, behind the others, unless that is to be anyway."""
        if self.pace is not _WAITING:
            self.pace = PACES[self.pace, _WAITING]
            self._handle = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._handle = None
        self.pace = PACES[self.pace, _RESTING]
        if self._go_on is not None:
            self._go_on()

    def stop(self) -> None:
        """Go on no more, and let go of the connection: circles wait for the garbage collector."""
        self._go_on = self._step = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
