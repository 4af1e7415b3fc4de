"""The audience of outcomes: listeners hear of each exchange, counters of hits that are alike at once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

from univocal.engine.outcome import Outcome
from univocal.http.messages import Received
from univocal.http.roles import CallLater
from univocal.judge.hits import Hit, Tally

logger: Final = logging.getLogger("univocal")

Listener: TypeAlias = Callable[[Outcome], None]

ALIKE: Final = 1e-4  # seconds: hits that took longer are told one by one
PATIENCE: Final = 1.0  # seconds after which counters have heard of a hit
# Hits counted together keep their stored response: so many in a second, with so many bytes of content in all.
MOST: Final = 8192
OCTETS: Final = 8 << 20
# Of those that have ended, so many are told with each exchange that follows, and in each turn of the event
# loop once they are due.
FEW: Final = 4
SLICE: Final = 128


class HitListener(Protocol):
    """A listener that hears of an ordinary hit as it was found: nobody makes an Outcome of it."""

    def __call__(self, outcome: Outcome) -> None:
        """Hear of any other exchange."""

    def hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Hear of a hit, which `Outcome.of_hit` would make an Outcome of."""


class _Alike:
    """Ordinary hits that are counted together: the first; once they have ended, their number and seconds."""

    def __init__(self, hit: Hit, received: Received, begun: float) -> None:
        self.hit = hit
        self.received = received
        self.begun = begun
        self.count = 0
        self.seconds = 0.0

    def ended(self, tally: Tally) -> _Alike:
        """Take over what was counted."""
        self.count, self.seconds = tally.count, tally.seconds
        return self

    def outcome(self) -> Outcome:
        """The one outcome of all of them."""
        mean = self.seconds / self.count
        return Outcome.of_hit(self.hit, self.received, self.begun, mean, self.count)


class Audience:
    """All who are told of outcomes, in the order in which exchanges ended.

    Listeners hear of each exchange, hit listeners before the others. Counters hear of as many, but of
    ordinary hits that are alike by one Outcome that says how many: before any exchange that ends in another
    second, and after a second or so. All may come and go meanwhile. `since` and `until` are the second in
    which hits are counted together, in seconds since the epoch.
    """

    def __init__(
        self, listeners: Iterable[Listener], counters: Iterable[Listener], call_later: CallLater
    ) -> None:
        self.listeners, self.counters = list(listeners), list(counters)
        self.hit_listeners: tuple[HitListener, ...] = ()
        self.since = self.until = 0.0
        self._tallies: dict[Tally, _Alike] = {}  # with the first hit of each
        self._octets = 0  # of content, in them
        self._ended = deque[Outcome | _Alike]()  # the next reports to counters
        self._call_later = call_later
        self._is_due = False

    @property
    def is_there(self) -> bool:
        """Tell whether anybody hears of exchanges now."""
        return bool(self.listeners or self.counters or self.hit_listeners)

    def announce(self, outcome: Outcome) -> None:
        """Tell everybody of an exchange.

        One who fails is logged and does not keep the others from hearing.
        """
        if self.hit_listeners:
            _tell(outcome, self.hit_listeners)
        if self.listeners:
            _tell(outcome, self.listeners)
        self._count(outcome)

    def announce_hit(self, hit: Hit, received: Received, begun: float, ticks: float) -> None:
        """Tell of a hit that was answered; it began at `begun`, when the performance counter said `ticks`."""
        seconds = time.perf_counter() - ticks
        if hit.hit_fields.handling.detail:  # no ordinary one: a store behind memory had it
            self.announce(Outcome.of_hit(hit, received, begun, seconds))
            return
        for each in self.hit_listeners:
            try:
                each.hit(hit, received, begun, seconds)
            except Exception:
                logger.exception("a listener failed")
        if self.listeners:
            _tell(Outcome.of_hit(hit, received, begun, seconds), self.listeners)
        tally = hit.tally
        if tally.stored is hit.stored and seconds < ALIKE and self.since <= begun < self.until:
            tally.count += 1
            tally.seconds += seconds
        elif self.counters:
            self.count_hit(hit, received, begun, seconds)

    def _count(self, outcome: Outcome) -> None:
        """Tell the counters of an exchange, after those that ended before it."""
        if self._tallies and not self.since <= outcome.times.start + outcome.times.total < self.until:
            self._end_tallies()
        if self._ended:
            self._ended.append(outcome)
            self._go_on(FEW)
        elif self.counters:
            _tell(outcome, self.counters)

    def count_hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Begin to count the ordinary hits that are alike.

        The first of a second is told alone, and one that took too long for that, or finds no room.
        """
        begins = not self.since <= begun < self.until
        if begins:
            self._end_tallies()
            self.since = float(int(begun))
            self.until = self.since + 1
        tally, octets = hit.tally, len(hit.stored.body)
        full = len(self._tallies) >= MOST or self._octets + octets > OCTETS
        if begins or full or seconds >= ALIKE:
            self._count(Outcome.of_hit(hit, received, begun, seconds))
            return
        before = self._tallies.get(tally)
        if before is not None:  # of another stored response
            self._octets -= len(before.hit.stored.body)
            self._ended.append(before.ended(tally))
        self._tallies[tally] = _Alike(hit, received, begun)
        tally.stored, tally.count, tally.seconds = hit.stored, 1, seconds
        self._octets += octets
        if self._ended:
            self._go_on(FEW)
        if not self._is_due:
            self._is_due = True
            self._call_later(PATIENCE, self._due)

    def settle(self) -> None:
        """Tell the counters of all exchanges until now: whoever reads what they count calls this before."""
        self._end_tallies()
        self._go_on(len(self._ended))

    def _end_tallies(self) -> None:
        """Pass the counts collected until now to the counters."""
        for tally, alike in self._tallies.items():
            self._ended.append(alike.ended(tally))
            tally.stored = None
        self._tallies.clear()
        self._octets = 0

    def _go_on(self, most: int) -> None:
        """Tell the counters of some of what has ended."""
        ended = self._ended
        while most > 0 and ended:  # a counter may have more of it told within the call
            most -= 1
            each = ended.popleft()
            _tell(each.outcome() if isinstance(each, _Alike) else each, self.counters)

    def _due(self) -> None:
        self._is_due = False
        self._end_tallies()
        self._drain()

    def _drain(self) -> None:
        self._go_on(SLICE)
        if self._ended:
            self._call_later(0, self._drain)


def _tell(outcome: Outcome, listeners: Iterable[Listener]) -> None:
    for each in (*listeners,):  # one may leave within the call
        try:
            each(outcome)
        except Exception:
            logger.exception("a listener failed")
