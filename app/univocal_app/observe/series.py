"""Sums of what a process has counted, and what they were when each second of the last minutes began.

A second is begun by its first exchange: what came in it lies between its row and the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from univocal.http.errors import REASONS
from univocal_app.observe.counts import Counts, Name
from univocal_app.observe.families import (
    BOUNDS,
    BYTES,
    COLLAPSED,
    ENTRIES,
    EVICTIONS,
    OCTETS,
    PURGES,
    SECONDS,
)

__all__ = [
    "FINE_BOUNDS",
    "MAX_BYTES",
    "REFUSALS",
    "SERIES",
    "SPAN",
    "STALE",
    "Series",
    "Sums",
    "added",
    "held_by_second",
    "stored_of",
    "sums_by_second",
    "sums_of",
]

SPAN: Final = 300  # seconds that are shown
KEPT: Final = SPAN + 60  # seconds that are kept: a clock that is set may begin one twice

# Kinds of numbers beside the metrics'.
STALE: Final = "stale"  # hits that were no longer fresh
REFUSALS: Final = "refusals"  # responses by the reason of a refusal, in the order of REASONS
MAX_BYTES: Final = "max_bytes"  # of stored responses
SERIES: Final = "series"

# The upper bounds of the buckets in which the seconds of requests are counted: from 0.1 ms to 100 s, 33 %
# apart at most. Those that `/metrics` tells are among them.
FINE_BOUNDS: Final = tuple(sorted({*BOUNDS, *(10 ** (each / 8) for each in range(-32, 17))}))
_BUCKETS: Final = len(FINE_BOUNDS) + 1

Of: TypeAlias = Callable[[str], Iterable[tuple[Name, Sequence[float]]]]
"""Gives the numbers of a kind, of one process, each with the rest of its name: see `Counts.of`."""


class Sums:
    """The places of sums in a row of numbers."""

    HITS, STALE, COLLAPSED, BYTES, PURGES, SECONDS = range(6)
    REFUSED = SECONDS + _BUCKETS
    WIDTH = REFUSED + len(REASONS)


_STORED: Final = (ENTRIES, OCTETS, MAX_BYTES, EVICTIONS)
_ROW: Final = 2 + Sums.WIDTH + len(_STORED)  # a turn, its second, the sums before it, what was stored then


def sums_of(of: Of) -> list[float]:
    """The sums of all that a process has counted; a request is in one bucket of seconds."""
    buckets, hits = [0.0] * _BUCKETS, 0.0
    for (handled,), numbers in of(SECONDS):
        buckets = added(buckets, numbers[1:])
        hits += sum(numbers[1:]) if handled == "hit" else 0
    singles = [sum(number for _, (number,) in of(kind)) for kind in (STALE, COLLAPSED, BYTES, PURGES)]
    refusals = next((numbers for _, numbers in of(REFUSALS)), [0.0] * len(REASONS))
    return [hits, *singles, *buckets, *refusals]


def stored_of(of: Of) -> list[float]:
    """The numbers of what a process holds: responses, bytes, the most of them, and how many were evicted."""
    numbers = (next((number for _, (number,) in of(kind)), 0.0) for kind in _STORED)
    return [0.0 if math.isnan(number) else number for number in numbers]  # of one that has ended


class Series:
    """The rows that a process writes among its counts."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._first = counts.place((SERIES,), KEPT * _ROW)
        self._turns = int(max(counts.cells[self._first : self._first + KEPT * _ROW : _ROW]))

    def begin(self, second: int) -> None:
        """Begin a second, before anything is counted in it."""
        self._turns += 1
        first = self._first + self._turns % KEPT * _ROW
        row = self._counts.cells[first : first + _ROW]
        row[0] = 0  # for who reads meanwhile
        row[1] = second
        for place, number in enumerate([*sums_of(self._counts.of), *stored_of(self._counts.of)], 2):
            row[place] = number
        row[0] = self._turns


def sums_by_second(of: Of) -> Iterator[tuple[int, list[float]]]:
    """Each second in which something came, with the sums of that."""
    rows = _rows(of)
    ends = [*(row[2 : 2 + Sums.WIDTH] for row in rows[1:]), sums_of(of)]
    for row, after in zip(rows, ends, strict=False):
        yield int(row[1]), [new - old for new, old in zip(after, row[2 : 2 + Sums.WIDTH], strict=True)]


def held_by_second(of: Of, first: int, last: int) -> list[Sequence[float]]:
    """The numbers of what a process had stored at the end of each second.

    A row has what was stored when its second began: that holds for every second back to the row before it.
    """
    held, rows = list[Sequence[float]](), _rows(of)
    stored: Sequence[float] = stored_of(of)
    for second in range(last, first - 1, -1):
        while rows and rows[-1][1] > second:
            stored = rows.pop()[2 + Sums.WIDTH :]
        held.append(stored)
    return held[::-1]


def _rows(of: Of) -> list[Sequence[float]]:
    """The rows that are filled, in order."""
    ((_, series),) = of(SERIES)
    rows = (series[at : at + _ROW] for at in range(0, len(series), _ROW))
    return sorted((row for row in rows if row[0]), key=itemgetter(0))


def added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The sums of two rows, place by place."""
    return [each + more for each, more in zip(one, other, strict=True)]
