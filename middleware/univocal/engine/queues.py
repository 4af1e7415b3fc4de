"""Queues: when a shared answer has failed, those who waited for it ask by themselves, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final

__all__ = ["AT_ONCE", "Place", "Queues"]

AT_ONCE: Final = 8
"""The most that have their turn at the same time, of those who ask for one thing."""


class _Stage(Enum):
    """The stages of a place."""

    WAITING = "others go before"
    GOING = "it counts as one of those at once"
    OVER = "it counts no longer"


class Queues:
    """The queues of those who wait for their turn, by what their requests have in common."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def place(self, name: Hashable, go: Callable[[], None]) -> Place:
        """The place at the end of a queue: once it has begun, `go` is called when its turn comes."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(lambda: self._queues.pop(name))
        place = Place(queue, go)
        queue.waiting[place] = None
        return place


class _Queue:
    __slots__ = ("_dissolve", "_moving", "going", "waiting")

    def __init__(self, dissolve: Callable[[], object]) -> None:
        self.waiting: dict[Place, None] = {}  # in order
        self.going = 0
        self._moving = False
        self._dissolve = dissolve

    def move(self) -> None:
        """Let those go whose turn it is; dissolve when nobody is left."""
        if self._moving:  # whose turn ends as soon as it comes must not nest in the one before
            return
        self._moving = True
        while self.waiting and self.going < AT_ONCE:
            place = next(iter(self.waiting))
            del self.waiting[place]
            self.going += 1
            place.come()
        self._moving = False
        if not self.waiting and not self.going:
            self._dissolve()


class Place:
    """One request's place in a queue for the origin server; its taker ends it."""

    __slots__ = ("_go", "_queue", "_stage")

    def __init__(self, queue: _Queue, go: Callable[[], None]) -> None:
        self._queue = queue
        self._go = go
        self._stage = _Stage.WAITING

    def begin(self) -> None:
        """Go at once if there is room, else wait."""
        self._queue.move()

    def come(self) -> None:
        """Take note that the turn has come."""
        self._stage = _Stage.GOING
        self._go()

    def end(self) -> None:
        """Make room for the next, or leave the queue; a second time does nothing."""
        stage, self._stage = self._stage, _Stage.OVER
        match stage:
            case _Stage.WAITING:
                del self._queue.waiting[self]
            case _Stage.GOING:
                self._queue.going -= 1
            case _Stage.OVER:
                return
        self._queue.move()
