"""Totals since the start, and for each second of the last five minutes: a listener that counts Outcomes.

Each process counts in a file that the others read. When a second begins, what was counted until then is kept
beside the totals: what came in a second is what lies between two of these.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from univocal.cache.decide import Reuse
from univocal.engine.outcome import Outcome
from univocal.http.errors import REASONS
from univocal.store.memory import MemoryStore
from univocal_app.observe.counts import Counts, numbers_of
from univocal_app.processes.commons import Commons

__all__ = ["Stats"]

SPAN: Final = 300  # seconds of the series
KEPT: Final = SPAN + 60  # seconds that are kept: a clock that is set may begin one twice

# The places of the numbers in a row.
HITS, STALE, COLLAPSED, BYTES, PURGES, SECONDS = range(6)
BOUNDS: Final = tuple(
    10 ** (each / 8) for each in range(-32, 17)
)  # seconds: from 0.1 ms to 100 s, 33 % apart
REFUSED: Final = SECONDS + len(BOUNDS) + 1
PLACES: Final = {reason: REFUSED + number for number, reason in enumerate(REASONS)}
WIDTH: Final = REFUSED + len(REASONS)

STORED: Final = ("responses", "bytes", "max_bytes", "evictions")
ROW: Final = 2 + WIDTH + len(STORED)  # a turn, its second, the totals before it, what was stored then

_STALE: Final = frozenset({"stale-while-revalidate", "stale-if-error", "disconnected"})

_TOTALS, _SERIES, _STORED = ("totals",), ("series",), ("stored",)


class Stats:
    """The numbers of `GET /-/stats`; with `commons` those of all processes there.

    `clock` gives seconds since the epoch.
    """

    def __init__(
        self, store: MemoryStore, commons: Commons | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._store, self._clock, self._begun = store, clock, int(clock())
        self._directory = None if commons is None else commons.directory
        self._counts = Counts(None if commons is None else _file(commons.directory, commons.process))
        places = [self._counts.place(_TOTALS, WIDTH), self._counts.place(_SERIES, KEPT * ROW)]
        stored = self._counts.place(_STORED, len(STORED))
        cells = self._counts.cells
        self._totals = cells[places[0] : places[0] + WIDTH]
        self._series = cells[places[1] : places[1] + KEPT * ROW]
        self._stored = cells[stored : stored + len(STORED)]
        self._turns = int(max(self._series[::ROW]))
        self._evicted = self._stored[-1]  # by those that had this process's name before
        self._second = -1

    def __call__(self, outcome: Outcome) -> None:
        times, count = outcome.times, outcome.alike
        ended = times.start + times.total
        # Two clocks agree so far on when an exchange ended; by more, and one was set back.
        if not self._second - 0.01 <= ended < self._second + 1:
            self._turn(int(ended))
        totals, handling, decision = self._totals, outcome.handling, outcome.decision
        totals[BYTES] += outcome.bytes * count
        if outcome.reasons and outcome.status >= 400 and outcome.reasons[0] in PLACES:
            totals[PLACES[outcome.reasons[0]]] += 1
        if decision is None:
            totals[PURGES] += outcome.purged is not None and outcome.purged.count is not None
            return
        seconds = times.total if outcome.status != 101 else times.first  # a tunnel lasts as long as it likes
        totals[SECONDS + bisect_left(BOUNDS, seconds)] += count
        if handling.hit:
            totals[HITS] += count
        if handling.collapsed:
            totals[COLLAPSED] += 1
        if type(decision) is Reuse and decision.reason in _STALE:
            totals[STALE] += 1

    def _turn(self, second: int) -> None:
        self._second, self._turns = second, self._turns + 1
        row = self._series[self._turns % KEPT * ROW :][:ROW]
        row[0] = 0  # for who reads meanwhile
        row[1], row[2 : 2 + WIDTH] = second, self._totals
        self._look(row[2 + WIDTH :])
        row[0] = self._turns

    def look(self) -> None:
        """Read what is stored in this process."""
        self._look(self._stored)

    def _look(self, cells: memoryview[float]) -> None:
        stats = self._store.stats
        now = stats.responses, stats.bytes, self._store.max_bytes, self._evicted + stats.evictions
        for place, number in enumerate(now):
            cells[place] = number

    def forget(self, process: str) -> None:
        """Take note that a process of the commons has ended: its counts stay, what it stored is gone."""
        assert self._directory is not None
        file = _file(self._directory, process)
        if file.exists():
            ended = Counts(file)
            first = ended.place(_STORED, len(STORED))
            for place in range(first, first + len(STORED) - 1):
                ended.cells[place] = 0

    def told(self) -> dict[str, Any]:
        """The object that `GET /-/stats` answers with, but for the origins."""
        totals, stored, now = [0.0] * WIDTH, [0.0] * len(STORED), int(self._clock())
        first = max(now - SPAN + 1, self._begun)
        series = defaultdict[int, list[float]](lambda: [0.0] * WIDTH)
        held = [[0.0] * len(STORED) for _ in range(first - 1, now + 1)]
        for numbers in self._each():
            totals = _sum(totals, numbers[_TOTALS])
            stored = _sum(stored, numbers[_STORED])
            for second, row in _seconds(numbers[_SERIES], numbers[_TOTALS]):
                series[second] = _sum(series[second], row)
            ends = _held(numbers[_SERIES], numbers[_STORED], first - 1, now)
            held = [_sum(one, other) for one, other in zip(held, ends, strict=True)]
        return {
            "totals": {**_written(totals), "stored": _kept(stored)},
            "series": [
                {"at": second, **_written(series[second]), "stored": _kept(end, before)}
                for second, (before, end) in zip(range(first, now + 1), pairwise(held), strict=True)
            ],
        }

    def _each(self) -> Iterator[dict[tuple[str, ...], list[float]]]:
        if self._directory is None:
            self.look()
            yield dict(self._counts)
            return
        for file in sorted(self._directory.glob("*.stats")):
            numbers = dict(numbers_of(file))
            if _STORED in numbers:  # a process that begins has not all of them
                yield numbers


def _seconds(series: Sequence[float], totals: Sequence[float]) -> Iterator[tuple[int, list[float]]]:
    """Each second in which something came, with that."""
    rows = _turns(series)
    ends = [*(row[2 : 2 + WIDTH] for row in rows[1:]), totals]
    for row, after in zip(rows, ends, strict=False):
        yield int(row[1]), [new - old for new, old in zip(after, row[2 : 2 + WIDTH], strict=True)]


def _held(series: Sequence[float], stored: Sequence[float], first: int, last: int) -> list[Sequence[float]]:
    """The numbers of what a process had stored at the end of each second.

    A row is begun at the first exchange of a second, and has what was stored by then: that holds for every
    second back to the row before it, but for that exchange itself.
    """
    held, turns = list[Sequence[float]](), _turns(series)
    for second in range(last, first - 1, -1):
        while turns and turns[-1][1] > second:
            stored = turns.pop()[2 + WIDTH :]
        held.append(stored)
    return held[::-1]


def _turns(series: Sequence[float]) -> list[Sequence[float]]:
    """The rows that are filled, in order."""
    rows = [series[at : at + ROW] for at in range(0, len(series), ROW)]
    return sorted((row for row in rows if row[0]), key=itemgetter(0))


def _written(row: Sequence[float]) -> dict[str, Any]:
    requests, hits = int(sum(row[SECONDS:REFUSED])), int(row[HITS])
    return {
        "requests": requests,
        "hits": hits,
        "hit_ratio": round(hits / requests, 6) if requests else 0.0,
        "stale": int(row[STALE]),
        "collapsed": int(row[COLLAPSED]),
        "refused": {reason: int(row[place]) for reason, place in PLACES.items() if row[place]},
        "bytes": int(row[BYTES]),
        "purges": int(row[PURGES]),
        "seconds": {f"p{part}": _quantile(row[SECONDS:REFUSED], part / 100) for part in (50, 90, 99)},
    }


def _kept(numbers: Sequence[float], before: Sequence[float] | None = None) -> dict[str, int]:
    """The numbers of what is stored; the evictions are those since `before`, else all of them."""
    kept = dict(zip(STORED, map(int, numbers), strict=True))
    if before is not None:
        kept["evictions"] = max(0, kept["evictions"] - int(before[-1]))
    return kept


def _quantile(numbers: Sequence[float], part: float) -> float:
    """The seconds within which this part of the requests was answered, 33 % too many at most; of none, 0."""
    sums = list(accumulate(numbers))
    if not sums[-1]:
        return 0.0
    return round(BOUNDS[min(bisect_left(sums, part * sums[-1]), len(BOUNDS) - 1)], 6)


def _sum(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [each + more for each, more in zip(one, other, strict=True)]


def _file(directory: Path, process: str) -> Path:
    return directory / f"{process}.stats"
