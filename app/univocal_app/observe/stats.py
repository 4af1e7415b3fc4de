"""All figures of `GET /-/stats`: totals since the start, and for each step of the time before now."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from univocal.http.errors import REASONS
from univocal_app.observe import families, series
from univocal_app.observe.counts import Name, grouped
from univocal_app.observe.families import ANSWERABLE, BYTES, CONNECTIONS, CUT, REQUESTS
from univocal_app.observe.figures import Figures
from univocal_app.observe.handled import FAILURES
from univocal_app.observe.series import Span, Sums, added, stored_of, sums_of

SPANS: Final = {span.step: span for span in (series.FINE, series.COARSE)}  # by the seconds of a step
_STORED: Final = ("responses", "bytes", "max_bytes", "evictions")
_BY_SITE: Final = {BYTES: "bytes", ANSWERABLE: "answerable", CUT: "cut"}

_Numbers = Mapping[Name, Sequence[float]]


class Stats:
    """The numbers of `GET /-/stats`, of all processes; `clock` gives seconds since the epoch."""

    def __init__(self, figures: Figures, clock: Callable[[], float] = time.time) -> None:
        self._figures, self._clock, self._begun = figures, clock, int(clock())

    async def look(self) -> None:
        """Write down how many connections there are now, and what is stored."""
        await self._figures.look_behind()
        self._figures.look()

    def document(self, span: Span = series.FINE) -> dict[str, Any]:
        """The object that `GET /-/stats` answers with, but for the origins; a thread may ask."""
        totals, now = [0.0] * Sums.WIDTH, int(self._clock())
        stored, memory = [0.0] * len(_STORED), [0.0] * len(_STORED)
        step = span.step
        last = now - now % step
        first = max(last - span.seconds + step, self._begun - self._begun % step)
        by_step = defaultdict[int, list[float]](lambda: [0.0] * Sums.WIDTH)
        held = [[0.0] * len(_STORED) for _ in range(first - step, last + 1, step)]
        each = list(self._figures.each())
        for numbers in each:
            of = grouped(numbers)
            if not [*of(series.SERIES)]:  # a process that begins has none yet
                continue
            totals, stored = added(totals, sums_of(of)), added(stored, stored_of(of))
            memory = added(memory, stored_of(of, series.MEMORY))
            for second, sums in series.sums_by_step(of, span):
                by_step[second] = added(by_step[second], sums)
            ends = series.held_by_step(of, first - step, last, span)
            held = [added(one, other) for one, other in zip(held, ends, strict=True)]
        seconds, kept = range(first, last + 1, step), dict[str, Any](_kept(stored))
        if self._figures.shares:  # beside what the processes have in memory of their own
            kept |= {"memory": _kept(memory), "shared": _kept(stored)}
        return {
            "totals": {**_written(totals), "stored": kept, "sites": _by_site(each)},
            "series": [
                {"at": second, **_written(by_step[second]), "stored": _kept(end, before)}
                for second, (before, end) in zip(seconds, pairwise(held), strict=True)
            ],
            "step": step,
            "connections": _connections(each),
            "program": {**families.build(), "since": self._begun, "now": now},
        }


def _written(row: Sequence[float]) -> dict[str, Any]:
    buckets = row[Sums.SECONDS : Sums.REASONED]
    hits, answerable = int(row[Sums.HITS]), int(row[Sums.ANSWERABLE])
    reasons = dict(zip(REASONS, map(int, row[Sums.REASONED : Sums.STATUSES]), strict=True))
    statuses = zip(series.CLASSES, map(int, row[Sums.STATUSES :]), strict=True)
    return {
        "requests": int(sum(buckets)),
        "hits": hits,
        "answerable": answerable,
        "hit_ratio": _ratio(hits, answerable),
        "folded": int(row[Sums.FOLDED]),
        "stale": int(row[Sums.STALE]),
        "collapsed": int(row[Sums.COLLAPSED]),
        "refused": {name: number for name, number in reasons.items() if number and name not in FAILURES},
        "failed": {name: number for name, number in reasons.items() if number and name in FAILURES},
        "cut": int(row[Sums.CUT]),
        "statuses": {name: number for name, number in statuses if number},
        "bytes": int(row[Sums.BYTES]),
        "purges": int(row[Sums.PURGES]),
        "seconds": {f"p{part}": _quantile(buckets, part / 100) for part in (50, 90, 99)},
    }


def _by_site(each: Sequence[_Numbers]) -> list[dict[str, Any]]:
    """The numbers of each site since the start, the one with most requests first; "" is no site."""
    sites = dict[str, dict[str, Any]]()
    for numbers in each:
        for (kind, *labels), values in numbers.items():
            if kind not in (REQUESTS, series.REASONED) and kind not in _BY_SITE:
                continue
            site = sites.setdefault(
                labels[0],
                {"site": labels[0], "requests": 0, "answerable": 0, "hits": 0, "hit_ratio": 0.0, "bytes": 0}
                | {"refused": 0, "failed": 0, "cut": 0, "statuses": dict.fromkeys(series.CLASSES, 0)},
            )
            number = int(values[0])
            if kind == series.REASONED:
                for reason, count in zip(REASONS, map(int, values), strict=True):
                    site["failed" if reason in FAILURES else "refused"] += count
            elif kind == REQUESTS:
                site["requests"] += number
                site["hits"] += number if labels[1] == "hit" else 0
                site["statuses"][labels[2]] = site["statuses"].get(labels[2], 0) + number
            else:
                site[_BY_SITE[kind]] += number
    for site in sites.values():
        site["hit_ratio"] = _ratio(site["hits"], site["answerable"])
    return sorted(sites.values(), key=lambda site: -site["requests"])


def _ratio(hits: int, answerable: int) -> float:
    """The hit ratio: hits by the requests that a cache could answer, which may have been read before them."""
    return min(1.0, round(hits / answerable, 6)) if answerable else 0.0


def _connections(each: Sequence[_Numbers]) -> dict[str, int]:
    """The open connections, by side, as each process has written them down last."""
    counts = {"client": 0, "origin": 0}
    for numbers in each:
        for (kind, *labels), (value, *_) in numbers.items():
            if kind == CONNECTIONS and not math.isnan(value):
                counts[labels[0]] = counts.get(labels[0], 0) + int(value)
    return counts


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
    return round(series.FINE_BOUNDS[min(bisect_left(sums, part * sums[-1]), len(series.FINE_BOUNDS) - 1)], 6)
