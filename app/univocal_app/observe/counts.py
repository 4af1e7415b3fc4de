"""Numbers under names, in a process's own memory or in a file that others read while it counts.

The memory holds records of 8-byte cells: the length of a name, the count of its numbers, the name, the
numbers. A length of zero ends them. A number is one aligned cell, so that no process reads half of it.
"""

from __future__ import annotations

import json
import logging
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

logger: Final = logging.getLogger("univocal")

Name: TypeAlias = tuple[str, ...]

CELL: Final = 8  # bytes
STEP: Final = 64 * 1024  # bytes by which the memory grows


class Counts:
    """The numbers that one process counts: `cells`, by the indexes that `place` gives.

    With `file` they are in that file, and go on from what is in it. They are the process's own without room.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._places: dict[Name, int] = {}
        self._kinds: dict[str, list[tuple[Name, int, int]]] = {}  # by the first word of a name
        self._memory = memoryview(b"")
        self._end = 0  # the cell after the last record
        if file is None or not file.exists() or file.stat().st_size < STEP:
            self._grow()
        else:
            self._use(memoryview(_mapped(file, mmap.ACCESS_WRITE)))
        for name, first, count in _records(self._memory):
            self._take(name, first, count)

    def place(self, name: Name, count: int = 1) -> int:
        """The index of the first of `count` numbers under a name; those that are new are zero."""
        first = self._places.get(name)
        return self._add(name, count) if first is None else first

    def of(self, kind: str) -> Iterator[tuple[Name, Sequence[float]]]:
        """The numbers under each name that begins with this word, and the rest of the name."""
        for rest, first, count in self._kinds.get(kind, ()):
            yield rest, self.cells[first : first + count]

    def __iter__(self) -> Iterator[tuple[Name, list[float]]]:
        return numbers(self._memory)

    def _add(self, name: Name, count: int) -> int:
        octets, begin = json.dumps(name).encode("ascii"), self._end
        first = begin + 2 + -(-len(octets) // CELL)
        while len(self._memory) <= (first + count) * CELL:
            self._grow()
        start = (begin + 2) * CELL
        self._memory[start : start + len(octets)] = octets
        lengths = self._memory.cast("q")
        lengths[begin + 1] = count
        lengths[begin] = len(octets)  # last: a process may be killed before
        self._take(name, first, count)
        return first

    def _take(self, name: Name, first: int, count: int) -> None:
        self._places[name], self._end = first, first + count
        self._kinds.setdefault(name[0], []).append((name[1:], first, count))

    def _grow(self) -> None:
        if self._file is None:
            self._use(memoryview(bytearray(bytes(self._memory) + bytes(STEP))))
            return
        try:
            with self._file.open("ab") as file:
                file.write(bytes(STEP))  # not a hole, which would end the process if the disk had no room
            self._use(memoryview(_mapped(self._file, mmap.ACCESS_WRITE)))
        except OSError as error:
            lost = "`/metrics` lacks what this process counts from now on"
            logger.warning("%s cannot grow: %s. %s", self._file, error.strerror, lost)
            self._file = None
            self._grow()

    def _use(self, memory: memoryview) -> None:
        self._memory = memory
        self.cells: memoryview[float] = memory.cast("d")


def grouped(numbers: Mapping[Name, Sequence[float]]) -> Callable[[str], list[tuple[Name, Sequence[float]]]]:
    """The function that `Counts.of` is, for numbers that were read."""
    kinds: dict[str, list[tuple[Name, Sequence[float]]]] = {}
    for (kind, *rest), values in numbers.items():
        kinds.setdefault(kind, []).append((tuple(rest), values))
    return lambda kind: kinds.get(kind, [])


def numbers(memory: memoryview) -> Iterator[tuple[Name, list[float]]]:
    """Each name with its numbers, as they are at this moment."""
    cells: memoryview[float] = memory.cast("d")
    for name, first, count in _records(memory):
        yield name, list(cells[first : first + count])


def numbers_of(file: Path) -> Iterator[tuple[Name, list[float]]]:
    """The numbers in another process's file; none in one that has only begun. Raises OSError."""
    return numbers(memoryview(_mapped(file, mmap.ACCESS_READ) if file.stat().st_size >= CELL else b""))


def _mapped(file: Path, access: int) -> mmap.mmap:
    with file.open("rb" if access == mmap.ACCESS_READ else "r+b") as opened:
        whole = file.stat().st_size // CELL * CELL  # what is left of a growth that was cut off
        return mmap.mmap(opened.fileno(), whole, access=access)


def _records(memory: memoryview) -> Iterator[tuple[Name, int, int]]:
    """Each name, the index of its first number, and how many it has."""
    lengths, begin = memory.cast("q"), 0
    while begin < len(lengths) and (length := lengths[begin]):
        start, first, count = (begin + 2) * CELL, begin + 2 + -(-length // CELL), lengths[begin + 1]
        yield tuple(json.loads(bytes(memory[start : start + length]))), first, count
        begin = first + count
