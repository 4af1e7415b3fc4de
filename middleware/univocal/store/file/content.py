"""The contents of a file store: one file in units of 1 KiB, whose free extents the database knows.

A place is a list of extents, nearly always of one. A free extent may be written while another process still
reads what was there: a digest tells a content from anything else.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from univocal.store.file.own_files import open_file

UNIT: Final = 1 << 10
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS free (first INTEGER PRIMARY KEY, units INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_units ON free (units);
CREATE TABLE IF NOT EXISTS content (one INTEGER PRIMARY KEY CHECK (one = 1), units INTEGER NOT NULL);
INSERT OR IGNORE INTO content VALUES (1, 0);
"""
_EXTENT: Final = struct.Struct("<QQ")  # the first unit, and how many there are
# Units of a region.
_REGION: Final = 1 << 6
# Extents of one content.
_MOST: Final = 16
# Pieces that are written by one call, each with the rest of its last unit: a system takes 1,024 at least.
_TOGETHER: Final = 256
_PADDING: Final = memoryview(bytes(UNIT))
# Has a read fail that would wait for the disk. Not every system has it, nor every file system.
_AT_ONCE: Final[int | None] = getattr(os, "RWF_NOWAIT", None)

_Extent = tuple[int, int]


class Content:
    """The file at `path`, in the database's transactions. Raises OSError, sqlite3.Error.

    `announce` is called with the regions that are written from now on. `is_in_memory`: no read of it waits.
    """

    def __init__(
        self,
        path: Path,
        sql: sqlite3.Connection,
        announce: Callable[[set[int]], None] | None = None,
        *,
        is_in_memory: bool,
    ) -> None:
        self._file = open_file(path)
        self._sql: Final = sql
        self._announce: Final = announce
        self._flags: int | None = 0 if is_in_memory else _AT_ONCE
        # As large as the largest extent that was read at once, and the part of it that was read into last.
        self._buffer = self._piece = memoryview(bytearray())
        self._units = self._most = 0
        self._begun: _Extent = 0, 0  # an extent of which this transaction has used a part
        self._freed: list[_Extent] = []

    def close(self) -> None:
        """Close the file; once more, it changes nothing: by then the number may be another file's."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    # Reading

    @property
    def changed(self) -> int:
        """When anybody has changed the file, in ns, as the system says."""
        return os.fstat(self._file).st_ctime_ns

    def read(self, place: bytes, length: int, *, waits: bool) -> bytes:
        """A content, or what stands in its place by now; it may be shorter.

        Raises BlockingIOError where that takes a wait that is not wished.
        """
        if len(place) == _EXTENT.size:
            (first, units) = _EXTENT.unpack(place)
            return self._read(first * UNIT, min(length, units * UNIT), waits)
        pieces, left = list[bytes](), length
        for first, units in _extents(place):
            size = min(left, units * UNIT)
            left -= size
            pieces.append(self._read(first * UNIT, size, waits))
        return b"".join(pieces)

    def _read(self, at: int, size: int, waits: bool) -> bytes:
        if waits or self._flags == 0:
            return os.pread(self._file, size, at)
        return self._at_once(at, size)

    def _at_once(self, at: int, size: int) -> bytes:
        if self._flags is None:
            raise BlockingIOError
        if size != len(self._piece):
            if size > len(self._buffer):
                self._buffer = memoryview(bytearray(size))
            self._piece = self._buffer[:size]
        try:
            done = os.preadv(self._file, (self._piece,), at, self._flags)
        except BlockingIOError:
            raise
        except OSError:  # this file system cannot tell
            self._flags = None
            raise BlockingIOError from None
        if done != size:
            raise BlockingIOError
        return self._piece.tobytes()

    # Writing, in a transaction

    @property
    def units(self) -> int:
        """The units up to the end of the last content."""
        (units,) = self._sql.execute("SELECT units FROM content").fetchone()
        return int(units)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return os.fstat(self._file).st_size

    def begin(self, most: int) -> None:
        """Begin a transaction, in which the file may get so many units."""
        self._units, self._most = self.units, most
        self._begun, self._freed = (0, 0), []

    def bound(self, most: int) -> None:
        """Have at most so many units in this transaction, and give what is behind the last content back."""
        self._most = most
        if self.size > max(most, 0) * UNIT:
            if self._announce is not None:
                self._announce(set())
            os.ftruncate(self._file, self.units * UNIT)

    def take(self, length: int) -> bytes | None:
        """A place for a content of so many bytes; None where there is none."""
        extents = self._take(-(-length // UNIT))
        return None if extents is None else b"".join([_EXTENT.pack(*each) for each in extents])

    def write(self, contents: Iterable[tuple[bytes, bytes]]) -> None:
        """Write contents, each to the place that it has taken: those of neighbours together."""
        pieces, regions = list[tuple[int, memoryview]](), set[int]()
        for place, content in contents:
            at = 0
            for first, units in _extents(place):
                pieces.append((first * UNIT, memoryview(content)[at : at + units * UNIT]))
                at += units * UNIT
                regions.update(_regions(first, units))
        if regions and self._announce is not None:
            self._announce(regions)
        begin, end, run = 0, 0, list[memoryview]()
        for at, piece in pieces:
            if at != end or len(run) >= _TOGETHER:
                self._write(begin, run)
                begin, end, run = at, at, []
            padding = -len(piece) % UNIT
            run += [piece, _PADDING[:padding]] if padding else [piece]
            end += len(piece) + padding
        self._write(begin, run)

    def _write(self, at: int, run: list[memoryview]) -> None:
        if run and os.pwritev(self._file, run, at) != sum(map(len, run)):
            raise OSError(errno.ENOSPC, "contents were not written as a whole")

    def _take(self, units: int) -> list[_Extent] | None:
        first, left = self._begun
        if left < units:
            largest = self._largest(1)
            if not largest or largest[0][1] < units:
                if self._units + units <= self._most:
                    self._units += units
                    return [(self._units - units, units)]
                return self._gathered(units)
            self._freed.append(self._begun)
            self._remove(largest)
            first, left = largest[0]
        self._begun = first + units, left - units
        return [(first, units)]

    def _gathered(self, units: int) -> list[_Extent] | None:
        """Some smaller extents together, those included that this transaction has freed."""
        self._freed.append(self._begun)
        self._begun = 0, 0
        self._merge()
        taken, needed = list[_Extent](), units
        for each in self._largest(_MOST):
            taken.append(each)
            needed -= each[1]
            if needed <= 0:
                self._remove(taken)
                first, last = taken[-1]
                self._begun = first + last + needed, -needed
                return [*taken[:-1], (first, last + needed)]
        return None

    def _largest(self, count: int) -> list[_Extent]:
        found = self._sql.execute("SELECT first, units FROM free ORDER BY units DESC LIMIT ?", (count,))
        return found.fetchall()

    def _remove(self, extents: Iterable[_Extent]) -> None:
        self._sql.executemany("DELETE FROM free WHERE first = ?", [(first,) for first, _ in extents])

    def free(self, place: bytes) -> None:
        """Free a place."""
        self._freed += _extents(place)

    def end(self) -> None:
        """End a transaction."""
        self._freed.append(self._begun)
        self._merge()
        self._sql.execute("UPDATE content SET units = ?", (self._units,))

    def _merge(self) -> None:
        """Offer freed extents again, joined with their neighbours."""
        joined = list[_Extent]()
        for first, units in sorted(each for each in self._freed if each[1]):
            if joined and sum(joined[-1]) == first:
                joined[-1] = joined[-1][0], joined[-1][1] + units
            else:
                joined.append((first, units))
        self._freed = []
        for first, units in joined:
            self._add(first, units)

    def _add(self, first: int, units: int) -> None:
        before = self._sql.execute(
            "SELECT first, units FROM free WHERE first < ? ORDER BY first DESC LIMIT 1", (first,)
        ).fetchone()
        after = self._sql.execute(
            "SELECT first, units FROM free WHERE first = ?", (first + units,)
        ).fetchone()
        if after is not None:
            self._remove([after])
            units += after[1]
        if before is not None and sum(before) == first:
            self._remove([before])
            first, units = before[0], before[1] + units
        if first + units == self._units:
            self._units = first
        else:
            self._sql.execute("INSERT OR REPLACE INTO free VALUES (?, ?)", (first, units))

    def is_beyond(self, place: bytes, last: int) -> bool:
        """Tell whether a place is not wholly within so many units."""
        return any(first + units > last for first, units in _extents(place))

    def cut(self, last: int) -> None:
        """Give the file so many units at most; no place is beyond them. In a transaction of its own."""
        self._sql.execute("DELETE FROM free WHERE first >= ?", (last,))
        self._sql.execute("UPDATE free SET units = ? - first WHERE first + units > ?", (last, last))
        self._sql.execute("UPDATE content SET units = min(units, ?)", (last,))


def _extents(place: bytes) -> Iterator[_Extent]:
    return _EXTENT.iter_unpack(place)


def _regions(first: int, units: int) -> range:
    return range(first // _REGION, (first + units - 1) // _REGION + 1)


def regions_of(place: bytes) -> Iterable[int]:
    """The regions that a place is in."""
    if len(place) == _EXTENT.size:
        (first, units) = _EXTENT.unpack(place)
        return _regions(first, units)
    return {region for extent in _extents(place) for region in _regions(*extent)}


def units_of(place: bytes) -> int:
    """The units that a place has."""
    return sum(units for _, units in _extents(place))
