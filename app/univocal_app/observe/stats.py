"""All figures of `GET /-/stats`: totals since the start, and for each second of the last five minutes."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from univocal.http.errors import REASONS
from univocal_app.observe.counts import grouped
from univocal_app.observe.figures import Figures
from univocal_app.observe.series import (
    FINE_BOUNDS,
    SERIES,
    SPAN,
    Sums,
    added,
    held_by_second,
    stored_of,
    sums_by_second,
    sums_of,
)

__all__ = ["Stats"]

_STORED: Final = ("responses", "bytes", "max_bytes", "evictions")


class Stats:
    """The numbers of `GET /-/stats`, of all processes; `clock` gives seconds since the epoch."""

    def __init__(self, figures: Figures, clock: Callable[[], float] = time.time) -> None:
        self._figures, self._clock, self._begun = figures, clock, int(clock())

    def told(self) -> dict[str, Any]:
        """The object that `GET /-/stats` answers with, but for the origins; a thread may ask."""
        totals, stored, now = [0.0] * Sums.WIDTH, [0.0] * len(_STORED), int(self._clock())
        first = max(now - SPAN + 1, self._begun)
        series = defaultdict[int, list[float]](lambda: [0.0] * Sums.WIDTH)
        held = [[0.0] * len(_STORED) for _ in range(first - 1, now + 1)]
        for numbers in self._figures.each():
            of = grouped(numbers)
            if not [*of(SERIES)]:  # a process that begins has none yet
                continue
            totals, stored = added(totals, sums_of(of)), added(stored, stored_of(of))
            for second, sums in sums_by_second(of):
                series[second] = added(series[second], sums)
            ends = held_by_second(of, first - 1, now)
            held = [added(one, other) for one, other in zip(held, ends, strict=True)]
        return {
            "totals": {**_written(totals), "stored": _kept(stored)},
            "series": [
                {"at": second, **_written(series[second]), "stored": _kept(end, before)}
                for second, (before, end) in zip(range(first, now + 1), pairwise(held), strict=True)
            ],
        }


def _written(row: Sequence[float]) -> dict[str, Any]:
    buckets = row[Sums.SECONDS : Sums.REFUSED]
    requests, hits = int(sum(buckets)), int(row[Sums.HITS])
    refused = zip(REASONS, row[Sums.REFUSED :], strict=True)
    return {
        "requests": requests,
        "hits": hits,
        "hit_ratio": round(hits / requests, 6) if requests else 0.0,
        "stale": int(row[Sums.STALE]),
        "collapsed": int(row[Sums.COLLAPSED]),
        "refused": {reason: int(number) for reason, number in refused if number},
        "bytes": int(row[Sums.BYTES]),
        "purges": int(row[Sums.PURGES]),
        "seconds": {f"p{part}": _quantile(buckets, part / 100) for part in (50, 90, 99)},
    }


def _kept(numbers: Sequence[float], before: Sequence[float] | None = None) -> dict[str, int]:
    """The numbers of what is stored; the evictions are those since `before`, else all of them."""
    kept = dict(zip(_STORED, map(int, numbers), strict=True))
    if before is not None:
        kept["evictions"] = max(0, kept["evictions"] - int(before[-1]))
    return kept


def _quantile(numbers: Sequence[float], part: float) -> float:
    """The seconds within which this part of the requests was answered, 33 % too many at most; of none, 0."""
    sums = list(accumulate(numbers))
    if not sums[-1]:
        return 0.0
    return round(FINE_BOUNDS[min(bisect_left(sums, part * sums[-1]), len(FINE_BOUNDS) - 1)], 6)
