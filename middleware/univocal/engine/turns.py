"""Turns: when a shared answer failed, those who waited for it ask by themselves, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final

__all__ = ["AT_ONCE", "Turn", "Turns"]

AT_ONCE: Final = 8
"""The most that have their turn at the same time, of those who ask for one thing."""


class _Stage(Enum):
    """The stages of a turn."""

    WAITING = "others go before"
    GOING = "it counts as one of those at once"
    OVER = "it counts no longer"


class Turns:
    """The lines of those who wait for their turn, by what their requests have in common."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def turn(self, name: Hashable, go: Callable[[], None]) -> Turn:
        """A turn at the end of the line: once it has begun, `go` is called when it comes."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line(lambda: self._lines.pop(name))
        turn = Turn(line, go)
        line.waiting[turn] = None
        return turn


class _Line:
    __slots__ = ("_dissolve", "_moving", "going", "waiting")

    def __init__(self, dissolve: Callable[[], object]) -> None:
        self.waiting: dict[Turn, None] = {}  # in order
        self.going = 0
        self._moving = False
        self._dissolve = dissolve

    def move(self) -> None:
        """Let go who may; dissolve with the last one."""
        if self._moving:  # a turn that ends as soon as it comes must not nest in the one before
            return
        self._moving = True
        while self.waiting and self.going < AT_ONCE:
            turn = next(iter(self.waiting))
            del self.waiting[turn]
            self.going += 1
            turn.come()
        self._moving = False
        if not self.waiting and not self.going:
            self._dissolve()


class Turn:
    """One request's turn to ask the origin server; its taker ends it."""

    __slots__ = ("_go", "_line", "_stage")

    def __init__(self, line: _Line, go: Callable[[], None]) -> None:
        self._line = line
        self._go = go
        self._stage = _Stage.WAITING

    def begin(self) -> None:
        """Go at once if there is room, else wait."""
        self._line.move()

    def come(self) -> None:
        """Be one of those who go."""
        self._stage = _Stage.GOING
        self._go()

    def end(self) -> None:
        """Make room for the next, or leave the line; a second time does nothing."""
        stage, self._stage = self._stage, _Stage.OVER
        match stage:
            case _Stage.WAITING:
                del self._line.waiting[self]
            case _Stage.GOING:
                self._line.going -= 1
            case _Stage.OVER:
                return
        self._line.move()
