"""The exchanges that a worker reports to its parent, while somebody follows there."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from univocal.engine.audience import Listener
from univocal.engine.outcome import Outcome
from univocal_app.observe.events import ROOM, event_of
from univocal_app.processes.messages import EventBatch

MOST: Final = 4 * ROOM  # bytes of events that wait at most


class Parent(Protocol):
    """The process that hears of exchanges."""

    @property
    def waiting(self) -> int:
        """The number of bytes that it has not taken yet."""

    def say(self, message: EventBatch) -> bool:
        """Send a message; False if there is no room for it."""


class EventReport:
    """A listener from `begin` to `end`: it sends the events of one turn of the event loop together.

    An event that finds no room is counted, and the next batch tells how many there were.
    """

    def __init__(self, listeners: list[Listener], parent: Parent) -> None:
        self._listeners, self._parent = listeners, parent
        self._events: list[tuple[str, str, str, str]] = []
        self._bytes = 0  # of their data
        self._lost = 0  # since the last batch

    def begin(self) -> None:
        """Be among the listeners."""
        if self not in self._listeners:
            self._listeners.append(self)

    def end(self) -> None:
        """Be among the listeners no more."""
        if self in self._listeners:
            self._listeners.remove(self)

    def __call__(self, outcome: Outcome) -> None:
        if self._parent.waiting + self._bytes > MOST:
            self._lost += 1
            return
        if not self._events:
            asyncio.get_running_loop().call_soon(self._send)
        site, status, cache, data = event_of(outcome)
        self._events.append((site, status, cache, data.decode("ascii")))
        self._bytes += len(data)

    def _send(self) -> None:
        events, lost = self._events, self._lost
        self._events, self._bytes, self._lost = [], 0, 0
        if not self._parent.say(EventBatch(lost=lost, events=events)):
            self._lost += lost + len(events)
