"""The audience of outcomes: listeners hear of each exchange, counters of hits that are alike at once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from univocal.engine.outcome import Outcome
from univocal.http.compiling import mypyc_attr
from univocal.http.messages import Received
from univocal.http.roles import CallLater
from univocal.judge.hits import AlikeHits, Hit

logger: Final = logging.getLogger("univocal")

OutcomeListener: TypeAlias = Callable[[Outcome], None]
News = TypeVar("News")

ALIKE: Final = 1e-4  # seconds: hits that took longer are told one by one
PATIENCE: Final = 1.0  # seconds after which counters have heard of a hit
# Hits counted together: so many in a second. Those whose stored responses are kept meanwhile, with so many
# bytes of content in all.
MOST: Final = 16_384
OCTETS: Final = 8 << 20
# Of those that have ended, so many are told with each exchange that follows, and in each turn of the event
# loop once they are due.
FEW: Final = 4
SLICE: Final = 128


class HitListener(Protocol):
    """A listener that hears of an ordinary hit as it was found, without an Outcome."""

    def __call__(self, outcome: Outcome) -> None:
        """Hear of any other exchange."""

    def hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Hear of a hit, which `Outcome.of_hit` would make an Outcome of."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HitCounter:
    """A counter that hears of ordinary hits by their numbers, without Outcomes."""

    def __call__(self, outcome: Outcome) -> None:
        """Hear of any other exchange."""

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        """Hear of hits: each element stands for those that are alike."""


class Audience:
    """All who are told of outcomes, in the order in which exchanges ended.

    Listeners hear of each exchange, hit listeners before the others. Counters hear of as many, but of
    ordinary hits that are alike by one Outcome that says how many: before any exchange that ends in another
    second, and after a second or so. All may come and go meanwhile. `since` and `until` are the second in
    which hits are counted together, in seconds since the epoch.
    """

    def __init__(
        self, listeners: Iterable[OutcomeListener], counters: Iterable[OutcomeListener], call_later: CallLater
    ) -> None:
        self.listeners, self.counters = list(listeners), list(counters)
        self.hit_listeners: tuple[HitListener, ...] = ()
        self.since = self.until = 0.0
        self._alike: list[AlikeHits] = []  # that are being counted, in this window
        self._window = 0
        self._octets = 0  # of content that is kept meanwhile
        self._ended = deque[Outcome | AlikeHits]()  # the next reports to counters
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
        self._count(outcome, outcome.times.start + outcome.times.total)

    def announce_hit(self, hit: Hit, received: Received, begun: float, ticks: float) -> None:
        """Tell of a hit that was answered; it began at `begun`, when the performance counter said `ticks`."""
        seconds = time.perf_counter() - ticks
        for each in self.hit_listeners:
            try:
                each.hit(hit, received, begun, seconds)
            except Exception:
                logger.exception("a listener failed")
        if self.listeners:
            _tell(Outcome.of_hit(hit, received, begun, seconds), self.listeners)
        alike, stored = hit.tally.alike, hit.stored
        if (
            alike is not None
            and alike.window == self._window
            and seconds < ALIKE
            and self.since <= begun < self.until
            and alike.octets == len(stored.body)
            and alike.status == stored.status
            and (alike.first is None or alike.first[0].stored is stored)
        ):
            alike.count += 1
            alike.seconds += seconds
        elif self.counters:
            self.count_hit(hit, received, begun, seconds)

    def _count(self, ended: Outcome | AlikeHits, at: float) -> None:
        """Tell the counters of an exchange, after those that ended before it."""
        if self._alike and not self.since <= at < self.until:
            self._end_window()
        self._ended.append(ended)
        self._tell_some(FEW)

    def count_hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Begin to count the ordinary hits that are alike.

        The first of a second is told alone, and one that took too long for that, or finds no room.
        """
        begins = not self.since <= begun < self.until
        if begins:
            self._end_window()
            self.since = float(int(begun))
            self.until = self.since + 1
        is_kept = any(not isinstance(each, HitCounter) for each in self.counters)
        alike = AlikeHits(hit, received, begun, seconds, self._window, is_kept=is_kept)
        octets = alike.octets if is_kept else 0
        full = len(self._alike) >= MOST or self._octets + octets > OCTETS
        if begins or full or seconds >= ALIKE:
            self._count(alike, begun + seconds)
            return
        self._alike.append(alike)
        hit.tally.alike = alike  # those that were before are told with all others
        self._octets += octets
        if self._ended:
            self._tell_some(FEW)
        if not self._is_due:
            self._is_due = True
            self._call_later(PATIENCE, self._due)

    def settle(self) -> None:
        """Tell the counters of all exchanges until now: whoever reads what they count calls this before."""
        self._end_window()
        self._tell_some(len(self._ended))

    def _end_window(self) -> None:
        """Have what was counted until now be told: no hit is counted with it from here on."""
        self._ended.extend(self._alike)
        self._alike, self._octets = [], 0
        self._window += 1

    def _tell_some(self, most: int) -> None:
        """Tell the counters of some of what has ended."""
        ended = self._ended
        while most > 0 and ended:  # a counter may have more of it told within the call
            each, hits = ended.popleft(), list[AlikeHits]()
            most -= 1
            if isinstance(each, Outcome):
                _tell(each, self.counters)
                continue
            hits.append(each)
            while most > 0 and ended and isinstance(following := ended[0], AlikeHits):
                ended.popleft()
                hits.append(following)
                most -= 1
            _tell_hits(hits, self.counters)

    def _due(self) -> None:
        self._is_due = False
        self._end_window()
        self._drain()

    def _drain(self) -> None:
        self._tell_some(SLICE)
        if self._ended:
            self._call_later(0, self._drain)


def _tell(news: News, listeners: Iterable[Callable[[News], None]]) -> None:
    for each in [*listeners]:  # one may leave within the call
        try:
            each(news)
        except Exception:
            logger.exception("a listener failed")


def _tell_hits(hits: Sequence[AlikeHits], counters: Iterable[OutcomeListener]) -> None:
    _tell(hits, [each.hits for each in counters if isinstance(each, HitCounter)])
    others = [each for each in counters if not isinstance(each, HitCounter)]
    for each in hits:
        if each.first is not None:
            (hit, received), each.first = each.first, None  # a tally may go on to refer to it
            if others:
                mean = each.seconds / each.count
                _tell(Outcome.of_hit(hit, received, each.begun, mean, each.count), others)
