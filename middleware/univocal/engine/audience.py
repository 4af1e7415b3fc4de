"""The audience of outcomes: listeners hear of each exchange, counters of hits that are alike at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from univocal.cache.stored import Stored
from univocal.engine.outcome import Outcome
from univocal.engine.roles import CallLater

__all__ = ["ALIKE", "Audience", "Listener", "Tally"]

logger: Final = logging.getLogger("univocal")

Listener: TypeAlias = Callable[[Outcome], None]

ALIKE: Final = 1e-4  # seconds: hits that took longer are told one by one
PATIENCE: Final = 1.0  # seconds after which counters have heard of a hit
# Outcomes keep the stored responses: at most so many wait, none with more octets of content.
MOST: Final = 256
LARGEST: Final = 8 * 1024


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
    Outcome that says how many: before the next exchange that is none, and after a second at most. Both may
    come and go meanwhile. `since` and `until` are the second in which hits are counted together, in seconds
    since the epoch.
    """

    __slots__ = ("_call_later", "_is_due", "_tallies", "counters", "listeners", "since", "until")

    def __init__(
        self, listeners: Iterable[Listener], counters: Iterable[Listener], call_later: CallLater
    ) -> None:
        self.listeners, self.counters = list(listeners), list(counters)
        self.since = self.until = 0.0
        self._tallies: list[Tally] = []
        self._call_later = call_later
        self._is_due = False

    def announce(self, outcome: Outcome, told: Iterable[Listener] | None = None) -> None:
        """Tell everybody of an exchange, or those who are to be `told`.

        One who fails is logged and does not keep the others from hearing.
        """
        if told is None:
            told = (*self.listeners, *self.counters)
            if self._tallies:
                self.settle()
        for listener in told:
            try:
                listener(outcome)
            except Exception:
                logger.exception("a listener failed")

    def hit(self, outcome: Outcome, stored: Stored, tally: Tally) -> None:
        """Tell the listeners of an ordinary hit, and begin the tally of those that are alike."""
        if not self.counters or outcome.times.total >= ALIKE or outcome.bytes > LARGEST:
            self.announce(outcome)
            return
        start = outcome.times.start
        if not self.since <= start < self.until:
            # The first of a second is told at once, as it ends what is counted for the second before.
            self.since = float(int(start))
            self.until = self.since + 1
            self.announce(outcome)
            return
        if len(self._tallies) >= MOST or tally.stored is not None:
            self.settle()
        tally.stored, tally.outcome, tally.count, tally.seconds = stored, outcome, 1, outcome.times.total
        self._tallies.append(tally)
        if not self._is_due:
            self._is_due = True
            self._call_later(PATIENCE, self._due)
        self.announce(outcome, self.listeners)

    def settle(self) -> None:
        """Tell the counters of all hits until now: whoever reads what they count calls this before."""
        tallies = self._tallies
        if not tallies:
            return
        self._tallies = []
        for tally in tallies:
            outcome, count = tally.outcome, tally.count
            assert outcome is not None
            tally.stored = tally.outcome = None
            if count > 1:
                seconds = tally.seconds / count
                times = outcome.times._replace(first=seconds, total=seconds)
                outcome = outcome._replace(alike=count, times=times)
            self.announce(outcome, self.counters)

    def _due(self) -> None:
        self._is_due = False
        self.settle()
