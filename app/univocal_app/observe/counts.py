"""Numbers under names, in a process's own memory or in a file that others read while it counts.

The memory holds records of 8-byte cells: the length of a name, the count of its numbers, the name, the
numbers. A length of zero ends them. A number is one aligned cell, so that no process reads half of it.
"""

from __future__ import annotations

import json
import logging
import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from univocal.store.file.own_files import Cells

logger: Final = logging.getLogger("univocal")

Name: TypeAlias = tuple[str, ...]
Numbers = TypeVar("Numbers")

CELL: Final = 8  # bytes
STEP: Final = 64 * 1024  # bytes by which the memory grows beyond what it needs


class Counts:
    """The numbers that one process counts: `cells`, by the indexes that `place` gives.

    With `file` they are in that file, and go on from what is in it. They are the process's own without room.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._places: dict[Name, int] = {}
        self._kinds: dict[str, list[tuple[Name, int, int]]] = {}  # by the first word of a name
        self._numbers: dict[Name, Number] = {}
        self._histograms: dict[Name, Histogram] = {}
        self._end = 0  # the cell after the last record
        self._lengths, self.cells = memoryview(b"").cast("Q"), memoryview(b"").cast("d")
        there = 0 if file is None or not file.exists() else file.stat().st_size // CELL
        self._grow(max(there, STEP // CELL))
        for name, first, count in _records(self._lengths):
            self._take(name, first, count)

    def place(self, name: Name, count: int = 1) -> int:
        """The index of the first of `count` numbers under a name; those that are new are zero."""
        first = self._places.get(name)
        return self._add(name, count) if first is None else first

    def number(self, name: Name) -> Number:
        """The number under a name, to add to: nothing else writes its cell."""
        known = self._numbers.get(name)
        if known is None:
            known = self._numbers[name] = Number(self, self.place(name))
        return known

    def histogram(self, name: Name, bounds: Sequence[float]) -> Histogram:
        """The numbers of a histogram under a name, to add to: nothing else writes their cells."""
        known = self._histograms.get(name)
        if known is None:
            known = self._histograms[name] = Histogram(self, self.place(name, 2 + len(bounds)), bounds)
        return known

    def of(self, kind: str) -> Iterator[tuple[Name, Sequence[float]]]:
        """The numbers under each name that begins with this word, and the rest of the name."""
        for rest, first, count in self._kinds.get(kind, ()):
            yield rest, self.cells[first : first + count]

    def __iter__(self) -> Iterator[tuple[Name, list[float]]]:
        return numbers(self._lengths)

    def _add(self, name: Name, count: int) -> int:
        octets, begin = json.dumps(name).encode("ascii"), self._end
        first = begin + 2 + -(-len(octets) // CELL)
        if len(self.cells) <= first + count:
            self._grow(first + count + STEP // CELL)
        start = (begin + 2) * CELL
        self._lengths.cast("B")[start : start + len(octets)] = octets
        self._lengths[begin + 1] = count
        self._lengths[begin] = len(octets)  # last: a process may be killed before
        self._take(name, first, count)
        return first

    def _take(self, name: Name, first: int, count: int) -> None:
        self._places[name], self._end = first, first + count
        self._kinds.setdefault(name[0], []).append((name[1:], first, count))

    def _grow(self, count: int) -> None:
        """Have so many cells."""
        if self._file is not None:
            try:
                shared = Cells(self._file, count)
            except OSError as error:
                lost = "`/metrics` lacks what this process counts from now on"
                logger.warning("%s cannot grow: %s. %s", self._file, error.strerror, lost)
                self._file = None
            else:
                shared.locks.close()  # each process writes its own file
                self._lengths, self.cells = shared.integers, shared.reals
                return
        octets = bytes(self._lengths.cast("B"))
        memory = memoryview(bytearray(octets + bytes(count * CELL - len(octets))))
        self._lengths, self.cells = memory.cast("Q"), memory.cast("d")


class Number:
    """One number among the counts; it writes its cell and never reads it, which would take as long again."""

    def __init__(self, counts: Counts, place: int) -> None:
        self._counts, self._place, self._value = counts, place, counts.cells[place]

    def add(self, by: float = 1.0) -> None:
        """Add to it."""
        self._value += by
        self._counts.cells[self._place] = self._value


class Histogram:
    """The sum of all seconds, and behind it how many times there were up to each bound, and above all."""

    def __init__(self, counts: Counts, place: int, bounds: Sequence[float]) -> None:
        self._bounds, self._sum = bounds, Number(counts, place)
        self._buckets = [Number(counts, place + each) for each in range(1, 2 + len(bounds))]

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a time, so often."""
        self._sum.add(seconds * count)
        self._buckets[bisect_left(self._bounds, seconds)].add(count)


def grouped(numbers: Mapping[Name, Numbers]) -> Callable[[str], list[tuple[Name, Numbers]]]:
    """The function that `Counts.of` is, for numbers that were read, of one process or of several."""
    kinds: dict[str, list[tuple[Name, Numbers]]] = {}
    for (kind, *rest), values in numbers.items():
        kinds.setdefault(kind, []).append((tuple(rest), values))
    return lambda kind: kinds.get(kind, [])


def numbers(lengths: memoryview[int]) -> Iterator[tuple[Name, list[float]]]:
    """Each name with its numbers, as they are at this moment."""
    cells: memoryview[float] = lengths.cast("B").cast("d")
    for name, first, count in _records(lengths):
        yield name, list(cells[first : first + count])


def numbers_of(file: Path) -> Iterator[tuple[Name, list[float]]]:
    """The numbers in another process's file; none in one that has only begun. Raises OSError."""
    with file.open("rb") as opened:
        whole = file.stat().st_size // CELL * CELL  # what is left of a growth that was cut off
        mapped = mmap.mmap(opened.fileno(), whole, access=mmap.ACCESS_READ) if whole else b""
    return numbers(memoryview(mapped).cast("Q"))


def _records(lengths: memoryview[int]) -> Iterator[tuple[Name, int, int]]:
    """Each whole record: its name, the index of its first number, and how many it has.

    One that goes beyond the memory was written after a growth that came behind the mapping.
    """
    memory, begin = lengths.cast("B"), 0
    while begin + 1 < len(lengths) and (length := lengths[begin]):
        start, first, count = (begin + 2) * CELL, begin + 2 + -(-length // CELL), lengths[begin + 1]
        if first + count > len(lengths):
            return
        yield tuple(json.loads(bytes(memory[start : start + length]))), first, count
        begin = first + count
