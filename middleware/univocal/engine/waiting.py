"""A request's wait for an answer: its own, or one that another request asked for.

It waits for another's answer for `Limits.collapse_timeout` seconds (5 by default) at most. `Exchange` sets
that timer when it joins a flight, and again for content that stands still; then it asks by itself.
"""

from __future__ import annotations

from univocal.engine.broadcast import Reader
from univocal.engine.flight import Flight
from univocal.engine.queues import Place
from univocal.http.roles import Due

__all__ = ["Waiting"]


class Waiting:
    """The flight that a request waits for, the end of its patience, and its place among those that ask next.

    `follows` is true while the flight was begun for another request. A wait begins with `join` or `lead`, or
    with a `place` in a queue. `stop` ends its patience, since the answer is there; `leave` ends all of it.
    """

    __slots__ = ("flight", "follows", "place", "reader", "stalled", "timer")

    def __init__(self) -> None:
        self.flight: Flight | None = None
        self.reader: Reader | None = None  # of the flight's content
        self.follows = False
        self.stalled = False  # it has waited in vain for content that stood still
        self.timer: Due | None = None
        self.place: Place | None = None

    def stop(self) -> None:
        """Let no timer end the wait, and let others have its place."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        place, self.place = self.place, None
        if place is not None:
            place.end()

    def leave(self) -> None:
        """Wait for the flight no longer."""
        self.stop()
        reader, self.reader, self.flight = self.reader, None, None
        if reader is not None:
            reader.leave()
