"""The audience of outcomes: listeners hear of each exchange, counters of hits that are alike at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from univocal.cache.stored import Stored
from univocal.engine.outcome import Outcome, Times
from univocal.engine.roles import CallLater

__all__ = ["ALIKE", "Audience", "Listener", "Tally"]

logger: Final = logging.getLogger("univocal")

Listener: TypeAlias = Callable[[Outcome], None]

ALIKE: Final = 1e-4  # seconds: hits that took longer are told one by one
PATIENCE: Final = 1.0  # seconds after which counters have heard of a hit
# Tallies keep the stored responses: at most so many wait, with so many octets of content in all. To tell them
# all takes a few milliseconds.
MOST: Final = 2048
OCTETS: Final = 4 << 20


class Tally:
    """The ordinary hits of one stored response by one spelling, of which counters have not heard yet."""

    __slots__ = ("count", "outcome", "seconds", "stored")

    def __init__(self) -> None:
        self.stored: Stored | None = None  # None: there are none
        self.outcome: Outcome | None = None  # of the first
        self.count = 0
        self.seconds = 0.0  # that all of them took


class Audience:
    """All who are told of outcomes, in the order in which exchanges ended.

    Listeners hear of each exchange. Counters hear of as many, but of ordinary hits that are alike by one
    Outcome that says how many: before any exchange that ends in another second, and after a second at most.
    Both may come and go meanwhile. `since` and `until` are the second in which hits are counted together, in
    seconds since the epoch.
    """

    __slots__ = ("_call_later", "_is_due", "_octets", "_tallies", "counters", "listeners", "since", "until")

    def __init__(
        self, listeners: Iterable[Listener], counters: Iterable[Listener], call_later: CallLater
    ) -> None:
        self.listeners, self.counters = list(listeners), list(counters)
        self.since = self.until = 0.0
        self._tallies: list[Tally] = []
        self._octets = 0  # of content, in them
        self._call_later = call_later
        self._is_due = False

    def announce(self, outcome: Outcome, told: Iterable[Listener] | None = None) -> None:
        """Tell everybody of an exchange, or those who are to be `told`.

        One who fails is logged and does not keep the others from hearing.
        """
        if told is None:
            told = (*self.listeners, *self.counters)
            if self._tallies and not self.since <= outcome.times.start + outcome.times.total < self.until:
                self.settle()
        for listener in told:
            try:
                listener(outcome)
            except Exception:
                logger.exception("a listener failed")

    def hit(self, outcome: Outcome, stored: Stored, tally: Tally) -> None:
        """Tell the listeners of an ordinary hit, and begin the tally of those that are alike.

        The first of a second is told alone, and one that took too long for that, or finds no room.
        """
        start, seconds = outcome.times.start, outcome.times.total
        begins = not self.since <= start < self.until
        if begins:
            self.settle()
            self.since = float(int(start))
            self.until = self.since + 1
        full = len(self._tallies) >= MOST or self._octets + outcome.bytes > OCTETS
        if begins or full or seconds >= ALIKE or not self.counters:
            self.announce(outcome)
            return
        if tally.outcome is None:
            self._tallies.append(tally)
        else:
            self._tell(tally)  # of another stored response
        tally.stored, tally.outcome, tally.count, tally.seconds = stored, outcome, 1, seconds
        self._octets += outcome.bytes
        if not self._is_due:
            self._is_due = True
            self._call_later(PATIENCE, self._due)
        self.announce(outcome, self.listeners)

    def settle(self) -> None:
        """Tell the counters of all hits until now: whoever reads what they count calls this before."""
        tallies, self._tallies = self._tallies, []
        for tally in tallies:
            self._tell(tally)

    def _tell(self, tally: Tally) -> None:
        """Tell the counters of the hits of one tally, which ends."""
        outcome, count = tally.outcome, tally.count
        assert outcome is not None
        tally.stored = tally.outcome = None
        self._octets -= outcome.bytes
        if count > 1:
            mean = tally.seconds / count
            outcome = outcome._replace(alike=count, times=Times(outcome.times.start, mean, mean))
        self.announce(outcome, self.counters)

    def _due(self) -> None:
        self._is_due = False
        self.settle()
