"""A request's wait for an answer: its own, or one that another request asked for.

It waits for another's answer for `Limits.collapse_timeout` seconds (5 by default) at most. `Exchange` sets
that timer when it joins a flight, and again for content that stands still; then it asks by itself.
"""

from __future__ import annotations

from univocal.engine.broadcast import Reader
from univocal.engine.flight import Flight
from univocal.http.roles import Due

__all__ = ["Waiting"]


class Waiting:
    """The flight that a request waits for, and the end of its patience.

    `follows` is true while the flight was begun for another request. `stop` ends its patience, since the
    answer is there; `leave` ends all of it.
    """

    __slots__ = ("flight", "follows", "reader", "timer")

    def __init__(self) -> None:
        self.flight: Flight | None = None
        self.reader: Reader | None = None  # of the flight's content
        self.follows = False
        self.timer: Due | None = None

    def stop(self) -> None:
        """Let no timer end the wait."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def leave(self) -> None:
        """Wait for the flight no longer."""
        self.stop()
        reader, self.reader, self.flight = self.reader, None, None
        if reader is not None:
            reader.leave()
