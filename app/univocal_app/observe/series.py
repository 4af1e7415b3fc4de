"""Sums of what a process has counted, and what they were when each step of the last minutes began.

A step is begun by its first exchange: what came in it lies between its row and the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from univocal.http.errors import REASONS
from univocal_app.observe import families
from univocal_app.observe.counts import Counts, Name


class Span(NamedTuple):
    """A time that is looked back on: `seconds` in steps of `step` seconds."""

    step: int
    seconds: int

    @property
    def kept(self) -> int:
        """The rows that are kept: more than are shown, as a clock that is set may begin a step twice."""
        return self.seconds // self.step + 60

    @property
    def name(self) -> Name:
        """The name of its rows."""
        return SERIES, str(self.step)


FINE: Final = Span(1, 300)
COARSE: Final = Span(15, 3600)

# Kinds of numbers beside the metrics'.
STALE: Final = "stale"  # hits that were no longer fresh
FOLDED: Final = "folded"  # requests in another spelling than the canonical one
REASONED: Final = "reasoned"  # answers of univocal's own by site and first reason, in the order of REASONS
MAX_BYTES: Final = "max_bytes"  # of stored responses
MEMORY_MAX: Final = "memory_max"  # bytes of them in memory of its own
SERIES: Final = "series"

# The upper bounds of the buckets in which the seconds of requests are counted: from 0.1 ms to 100 s, 33 %
# apart at most. Those that `/metrics` tells are among them.
FINE_BOUNDS: Final = tuple(sorted({*families.BOUNDS, *(10 ** (each / 8) for each in range(-32, 17))}))
_BUCKETS: Final = len(FINE_BOUNDS) + 1

Of: TypeAlias = Callable[[str], Iterable[tuple[Name, Sequence[float]]]]
"""Gives the numbers of a kind, of one process, each with the rest of its name: see `Counts.of`."""


CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")  # of statuses; none: the client left before


class Sums:
    """The places of sums in a row of numbers."""

    HITS, STALE, FOLDED, ANSWERABLE, COLLAPSED, BYTES, PURGES, CUT, SECONDS = range(9)
    REASONED = SECONDS + _BUCKETS
    STATUSES = REASONED + len(REASONS)
    WIDTH = STATUSES + len(CLASSES)


STORED: Final = (families.ENTRIES, families.OCTETS, MAX_BYTES, families.EVICTIONS)
MEMORY: Final = (families.MEMORY_ENTRIES, families.MEMORY_OCTETS, MEMORY_MAX, families.MEMORY_EVICTIONS)
_ROW: Final = 2 + Sums.WIDTH + len(STORED)  # a round, its second, the sums before it, what was stored then


def sums_of(of: Of) -> list[float]:
    """The sums of all that a process has counted; a request is in one bucket of seconds."""
    buckets, hits = [0.0] * _BUCKETS, 0.0
    for (handled,), numbers in of(families.SECONDS):
        buckets = added(buckets, numbers[1:])
        hits += sum(numbers[1:]) if handled == "hit" else 0
    kinds = [STALE, FOLDED, families.ANSWERABLE, families.COLLAPSED, families.BYTES]
    kinds += [families.PURGES, families.CUT]
    singles = [sum(number for _, (number,) in of(kind)) for kind in kinds]
    reasoned = [0.0] * len(REASONS)
    for _, numbers in of(REASONED):
        reasoned = added(reasoned, numbers)
    statuses = dict.fromkeys(CLASSES, 0.0)
    for (_, _, status), (number,) in of(families.REQUESTS):
        if status in statuses:
            statuses[status] += number
    return [hits, *singles, *buckets, *reasoned, *statuses.values()]


def stored_of(of: Of, kinds: Sequence[str] = STORED) -> list[float]:
    """The numbers of what a process holds: responses, bytes, the most of them, and how many were evicted.

    With the kinds of `MEMORY` of what it has in memory of its own.
    """
    numbers = (next((number for _, (number,) in of(kind)), 0.0) for kind in kinds)
    return [0.0 if math.isnan(number) else number for number in numbers]  # of one that has ended


class Series:
    """The rows that a process writes among its counts, one for each step of a span."""

    def __init__(self, counts: Counts, span: Span = FINE) -> None:
        self._counts, self._span, self._began = counts, span, -1
        self._first = counts.place(span.name, span.kept * _ROW)
        self._rounds = int(max(counts.cells[self._first : self._first + span.kept * _ROW : _ROW]))

    def begin(self, second: int) -> None:
        """Begin the step of this second, before anything is counted in it, if it has not begun."""
        began = second - second % self._span.step
        if began == self._began and self._span.step > 1:
            return
        self._began = began
        self._rounds += 1
        first = self._first + self._rounds % self._span.kept * _ROW
        row = self._counts.cells[first : first + _ROW]
        row[0] = 0  # for who reads meanwhile
        row[1] = began
        for place, number in enumerate([*sums_of(self._counts.of), *stored_of(self._counts.of)], 2):
            row[place] = number
        row[0] = self._rounds


def sums_by_step(of: Of, span: Span = FINE) -> Iterator[tuple[int, list[float]]]:
    """Each step in which something came, by its first second, with the sums of that."""
    rows = _rows(of, span)
    ends = [*(row[2 : 2 + Sums.WIDTH] for row in rows[1:]), sums_of(of)]
    for row, after in zip(rows, ends, strict=False):
        yield int(row[1]), [new - old for new, old in zip(after, row[2 : 2 + Sums.WIDTH], strict=True)]


def held_by_step(of: Of, first: int, last: int, span: Span = FINE) -> list[Sequence[float]]:
    """The numbers of what a process had stored at the end of each step, from `first` to `last`.

    A row has what was stored when its step began: that holds for every step back to the row before it.
    """
    held, rows = list[Sequence[float]](), _rows(of, span)
    stored: Sequence[float] = stored_of(of)
    for second in range(last, first - 1, -span.step):
        while rows and rows[-1][1] > second:
            stored = rows.pop()[2 + Sums.WIDTH :]
        held.append(stored)
    return held[::-1]


def _rows(of: Of, span: Span) -> list[Sequence[float]]:
    """The rows that are filled, in order."""
    series = next((numbers for (step,), numbers in of(SERIES) if step == str(span.step)), ())
    rows = (series[at : at + _ROW] for at in range(0, len(series), _ROW))
    return sorted((row for row in rows if row[0]), key=itemgetter(0))


def added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The sums of two rows, place by place."""
    return [each + more for each, more in zip(one, other, strict=True)]
