"""A journal in a mapped file: the last megabytes of purges, which every process of a machine sees at once.

The file has a head, then a ring of records. The number of a purge is the position of its end,
counted from the file's beginning of use: it rises, and tells a reader where the next record is. So one number
of eight bytes is what makes a purge known. Room is set aside beforehand: a full disk does not hinder a purge.

A record: its end (8 bytes), the length of its payload (8), a digest of both and the payload (8), the payload.
Older records make room for others. A record is settled once its purge has been carried out on all entries.
Before others are forgotten, a walk looks at all entries and gives them greater numbers: the floor. Without
such a walk, entries with smaller numbers count as purged from then on (`lost`).
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Final, TypeAlias

from univocal.store.codec import decode_purge, encode_purge
from univocal.store.file.lasting_thread import LastingThread
from univocal.store.file.own_files import open_file
from univocal.store.purge_selectors import Purge, Selector
from univocal.store.roles import (
    BeyondHorizonError,
    Purges,
    Settled,
    StoreReport,
    StoreUnavailableError,
    Watcher,
    reported,
    unreported,
)

CAPACITY: Final = 4 << 20
# Regions of the contents that have a number: others share theirs.
_COUNTED: Final = 16_384
# The head: a page with its first numbers, which survive a loss of power, and the numbers of regions.
_PAGE: Final = mmap.PAGESIZE
_HEAD: Final = _PAGE + 8 * _COUNTED
_MAGIC: Final = int.from_bytes(b"univocJ3", "little")
_RECORD: Final = struct.Struct("<QQ8s")
_SKIPPED: Final = 2**64 - 1  # for a length: the next record is at the ring's beginning
# The places of the head's numbers.
_NAME, _SIZE, _FIRST, _LAST, _GENERATION, _LOST, _FLOOR, _WRITES, _CHANGED, _STRANGERS, _COMMITTED = range(11)
_REGIONS: Final = _PAGE // 8
# In a length: the purge has been carried out on all entries.
_SETTLED: Final = 1 << 62
_FLAGS: Final = struct.Struct("<Q")
# A ring that is there may be so much larger.
_ROOMY: Final = 8
# As much of the ring makes room at a time.
_PART: Final = 8
# Purges of this process that are not settled, and are known not to be.
_MOST_UNSETTLED: Final = 20_000
# Seconds for which another process may hold the ring, and between two attempts; and between two looks whether
# a walk has made room.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.001
_WAIT: Final = 0.01
# Seconds between two looks whether the journal is where it was.
_IN_PLACE_LOOK: Final = 0.5
# Bytes of the ring that a name takes at least, so that the names of a full one fit into `Journal`.
_NAME_BYTES: Final = 160
# Seconds for which a purge waits until the walk has looked at the entries that others would be lost for.
_PACED: Final = 10.0

State: TypeAlias = tuple[int, int]
"""The state of a part of the contents: the last writing that had ended, and when the file was changed."""
UNKNOWN: Final[State] = -1, -1


class Ring:
    """The mapped journal at `path`; what is no such file is begun anew, and `is_new` says so.

    `is_durable`: what is appended survives a loss of power. With an open `directory` the file is the one of
    that name there. Raises OSError.
    """

    def __init__(
        self, path: Path, capacity: int = CAPACITY, *, is_durable: bool = True, directory: int | None = None
    ) -> None:
        self.path, self._directory = path, directory
        self._capacity, self._is_durable = capacity, is_durable
        self._own: Final = threading.Lock()  # the file's lock is one for all threads of a process
        self._starts: dict[int, int] = {}  # of the purges of this process that are not settled yet
        self._nothing_needed = -1, -1  # the beginning and the floor for which all was settled
        self._file: Final = open_file(path, directory)
        try:
            with self.alone():
                self._capacity = self._there() or capacity
                length = _HEAD + self._capacity
                os.ftruncate(self._file, length)
                os.posix_fallocate(self._file, 0, length)
                self._map = mmap.mmap(self._file, length)
                self._head = memoryview(self._map)[:_HEAD].cast("Q")
                self.is_new = not self._is_whole()
                if self.is_new:
                    self._begin()
        except BaseException:
            os.close(self._file)
            raise

    def _there(self) -> int:
        """The capacity of a journal that is there, unless it is far larger than this is to be; 0 for none."""
        head = os.pread(self._file, 16, 0)
        name, there = struct.unpack("=QQ", head) if len(head) == 16 else (0, 0)
        fits = name == _MAGIC and there <= _ROOMY * self._capacity
        return there if fits and os.fstat(self._file).st_size == _HEAD + there else 0

    def _is_whole(self) -> bool:
        """Tell whether the purges lead from the first to the last.

        One that a killed process had written, but not counted, is counted.
        """
        if self._head[_NAME] != _MAGIC or self._head[_SIZE] != self._capacity:
            return False
        position, last = self.first, self.last
        while position < last:
            record = self._record(position)
            if record is None:
                return False
            position = record[0]
        if position != last:
            return False
        while (record := self._record(position)) is not None:
            position, payload = record
            if payload is not None:
                self._head[_LAST] = position
        return True

    def _begin(self) -> None:
        self._head[_FIRST] = self._head[_LAST] = self._head[_LOST] = self._head[_FLOOR] = 0
        self._write(0, bytes(_RECORD.size))  # or the purges of before would be counted
        self._head[_SIZE] = self._capacity
        self._head[_GENERATION] = time.time_ns()
        self._head[_NAME] = _MAGIC
        self._flush(0, _PAGE)

    def close(self) -> None:
        """Map it no longer."""
        self._head.release()
        self._map.close()
        os.close(self._file)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time; the system takes the lock from one that is killed.

        Raises StoreUnavailableError where another holds it for too long: it stands still.
        """
        until = time.monotonic() + _PATIENCE
        with self._own:
            while True:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise StoreUnavailableError("another process holds the journal") from None
                    time.sleep(_PAUSE)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def is_in_place(self) -> bool:
        """True if the file at the path is still this one."""
        try:
            name = self.path if self._directory is None else self.path.name
            return os.path.samestat(os.stat(name, dir_fd=self._directory), os.fstat(self._file))
        except OSError:
            return False

    @property
    def most(self) -> int:
        """The bytes that a purge may have."""
        return self._capacity // 4 - _RECORD.size

    @property
    def last(self) -> int:
        """The number of the last purge."""
        return self._head[_LAST]

    @property
    def first(self) -> int:
        """The number from which on all purges are there."""
        return self._head[_FIRST]

    @property
    def lost(self) -> int:
        """The number up to which purges are forgotten that may mean entries with a smaller one."""
        return max(self._head[_LOST], self._head[_FLOOR])

    @property
    def generation(self) -> int:
        """The name of the file of entries that goes with this journal."""
        return self._head[_GENERATION]

    def renew(self, generation: int) -> bool:
        """Name another file of entries in the place of one; False if another process has."""
        with self.alone():
            if self._head[_GENERATION] != generation:
                return False
            self._head[_GENERATION] = generation + 1
            self._flush(0, _PAGE)
            return True

    @property
    def committed(self) -> int:
        """A number that changes with each transaction that any process commits."""
        return self._head[_COMMITTED]

    def note_commit(self) -> None:
        """Have all know that what a transaction wrote can be read."""
        self._head[_COMMITTED] = time.monotonic_ns()

    # Contents that stand beside the database
    #
    # A content that was found whole needs no second look while the numbers of its regions are the same and
    # even. Before the first byte is written there, a region gets an odd number, and no number comes again. A
    # reader that (1) sees even numbers, (2) reads a content and finds it whole, (3) reads it later, (4) then
    # sees the same numbers, has read the same bytes: nobody was writing there at (1), and nobody has begun to
    # until (4). The place may belong to another response by then: the row that was read named one that may be
    # served unless a purge means it, as memory's may. A process that is killed while it writes leaves odd
    # numbers, with which each read looks for itself until another has written there. To cut the file short
    # changes no byte: a read gets fewer. Any other program that writes into it changes the time of its last
    # change, which is compared unless univocal is writing.

    @property
    def changed(self) -> int:
        """When univocal has changed the file last, in ns; any other time tells of another program."""
        return self._head[_CHANGED]

    @property
    def writes(self) -> int:
        """The number of the last writing of contents: it is odd while that goes on."""
        return self._head[_WRITES]

    def state(self, regions: Iterable[int]) -> State:
        """Two numbers that change with some regions: of their last writing, and of other programs' writings.

        `UNKNOWN` while univocal writes there.
        """
        last, head = 0, self._head
        for region in regions:
            number: int = head[_REGIONS + region % _COUNTED]
            if number & 1:
                return UNKNOWN
            last = max(last, number)
        return last, head[_STRANGERS]

    def begin_writing(self, changed: int) -> int:
        """Record that contents are written from now on; returns the number. Raises StoreUnavailableError.

        `changed`: when the file was changed last, in ns, as the system says.
        """
        with self.alone():
            if changed != self._head[_CHANGED]:
                self._head[_STRANGERS] += 1
            number = self._head[_WRITES] = max(self._head[_WRITES] + 1, time.time_ns()) | 1
            return number

    def write_in(self, regions: Iterable[int], number: int) -> None:
        """Record that the writing of this number is in some regions, too. Raises StoreUnavailableError."""
        with self.alone():
            for region in regions:
                self._head[_REGIONS + region % _COUNTED] = number

    def end_writing(self, regions: Iterable[int], number: int, changed: int) -> None:
        """Record that all of it is written. Raises StoreUnavailableError."""
        with self.alone():
            for place in [_WRITES, *(_REGIONS + region % _COUNTED for region in regions)]:
                if self._head[place] == number:
                    self._head[place] = number + 1
            self._head[_CHANGED] = changed

    def append(self, payload: bytes, weight: int = 0, patience: float = 0.0) -> int:
        """Add a purge, which all processes know of when this returns; returns its number.

        It takes `weight` bytes at least. Where others that are not settled must make room, it waits up to
        `patience` seconds for the walk. Raises StoreUnavailableError.
        """
        need = _padded(max(_RECORD.size + len(payload), weight))
        if len(payload) > self.most:
            raise StoreUnavailableError("too long for the journal")
        until = time.monotonic() + patience
        while (end := self._appended(payload, need, until)) is None:
            time.sleep(_WAIT)
        return end

    def _appended(self, payload: bytes, need: int, until: float) -> int | None:
        """The number of a purge that is added; None where it waits for the walk."""
        with self.alone():
            start = self.last
            left = self._capacity - start % self._capacity
            if left < need:
                start += left
            end = start + need
            if not self._makes_room(end - self._capacity, time.monotonic() >= until):
                return None
            if start != self.last and left >= _RECORD.size:
                self._write(self.last, _RECORD.pack(start, _SKIPPED, b""))
            self._write(start, _RECORD.pack(end, len(payload), _digest(end, payload)) + payload)
            self._flush_ring(self.last, end)
            self._starts[end] = start
            if len(self._starts) > _MOST_UNSETTLED:
                del self._starts[next(iter(self._starts))]
            self._head[_LAST] = end
            self._flush(0, _PAGE)
            return end

    def _makes_room(self, needed: int, at_any_cost: bool) -> bool:
        """Move the beginning behind a position and some more; False if that would lose entries."""
        if self.first >= needed:
            return True
        lost, first = self._unsettled(self.first, min(needed + self._capacity // _PART, self.last))
        if lost and not at_any_cost:
            return False
        self._head[_LOST] = max(self._head[_LOST], lost)
        self._head[_FIRST] = first
        return True

    def _unsettled(self, position: int, until: int) -> tuple[int, int]:
        """The last of the records from a position on that concerns entries, 0 for none; where they end."""
        last, floor, number = self.last, self._head[_FLOOR], 0
        while position < until:
            left = self._capacity - position % self._capacity
            if left < _RECORD.size:
                position += left
                continue
            end, length, _ = _RECORD.unpack_from(self._map, _HEAD + position % self._capacity)
            if not position < end <= last:
                return last, last  # damage
            if length != _SKIPPED and not length & _SETTLED and end > floor:
                number = end
            position = end
        return number, position

    def settle(self, numbers: Iterable[int]) -> None:
        """Record purges of this process that are carried out on all entries, for good.

        Raises StoreUnavailableError.
        """
        with self.alone():
            for number in numbers:
                start = self._starts.pop(number, -1)
                if start >= self.first:
                    at = _HEAD + start % self._capacity + 8
                    (length,) = _FLAGS.unpack_from(self._map, at)
                    _FLAGS.pack_into(self._map, at, length | _SETTLED)

    def needed(self) -> int:
        """The number that all entries must have before half of a full ring can be forgotten; 0: any."""
        first, floor = self.first, self._head[_FLOOR]
        half = self._capacity // 2
        if self.last - first <= half or (first, floor) == self._nothing_needed:
            return 0
        number, _ = self._unsettled(first, first + half)
        if self.first != first:
            return 0  # it was written over meanwhile
        if not number:
            self._nothing_needed = first, floor
        return number

    @property
    def is_tight(self) -> bool:
        """True if little is left until purges wait for the walk."""
        return self.last - self.first > self._capacity * 3 // 4 and self.needed() > 0

    def raise_floor(self, number: int) -> None:
        """Record the least number that all entries have. Raises StoreUnavailableError."""
        with self.alone():
            self._head[_FLOOR] = max(self._head[_FLOOR], number)
            self._flush(0, _PAGE)

    def follow(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The purges after a number with theirs, in order; b"" for what is damaged.

        Raises BeyondHorizonError if some have made room for others, or the journal was begun anew.
        """
        last = self.last
        if number > last:
            raise BeyondHorizonError
        while number < last:
            record = self._record(number)
            if number < self.first:
                raise BeyondHorizonError
            if record is None:
                yield last, b""
                return
            number, payload = record
            if payload is not None:
                yield number, payload

    def _record(self, start: int) -> tuple[int, bytes | None] | None:
        """The end of a record and its payload, which a skipped end of the buffer has not; None: damage."""
        offset = start % self._capacity
        left = self._capacity - offset
        if left < _RECORD.size:
            return start + left, None
        at = _HEAD + offset
        end, length, digest = _RECORD.unpack_from(self._map, at)
        if length == _SKIPPED:
            return (end, None) if end == start + left else None
        length &= ~_SETTLED
        if length > left - _RECORD.size or not _RECORD.size + length <= end - start <= left:
            return None
        payload = self._map[at + _RECORD.size : at + _RECORD.size + length]
        return (end, payload) if _digest(end, payload) == digest else None

    def _write(self, position: int, octets: bytes) -> None:
        at = _HEAD + position % self._capacity
        self._map[at : at + len(octets)] = octets

    def _flush_ring(self, start: int, end: int) -> None:
        first, last = start % self._capacity, (end - 1) % self._capacity
        if first <= last:
            self._flush(_HEAD + first, last + 1 - first)
        else:
            self._flush(_HEAD, self._capacity)

    def _flush(self, start: int, length: int) -> None:
        if self._is_durable:
            page = start - start % mmap.PAGESIZE
            self._map.flush(page, start + length - page)


def _padded(length: int) -> int:
    return length + -length % 8


def _digest(end: int, payload: bytes) -> bytes:
    return blake2b(b"%d:%b" % (end, payload), digest_size=8).digest()


class FilePurges(Purges):
    """The journal in a ring: no lag, no heartbeat. It is away once somebody has removed its directory."""

    def __init__(
        self, ring: Ring, report: StoreReport = unreported, is_in_place: Callable[[], bool] | None = None
    ) -> None:
        self._ring: Final = ring
        self._is_in_place: Final = is_in_place or (lambda: ring.is_in_place)
        self._report = report
        self._appender: Final = LastingThread("purging", ring.path)
        self._watch: asyncio.Task[None] | None = None

    @property
    def most(self) -> int:
        return self._ring.most

    async def start(self, watcher: Watcher) -> None:
        if self._is_in_place():
            watcher.returned()
        self._watch = asyncio.get_running_loop().create_task(self._look_after(watcher))

    async def _look_after(self, watcher: Watcher) -> None:
        """Another process makes the directory anew, with a journal of its own: of that nothing is heard."""
        while self._is_in_place():
            await asyncio.sleep(_IN_PLACE_LOOK)
            watcher.heard()  # who looks nothing up must not fall behind
        watcher.lost("its directory was removed: start the program again")

    def _append(self, payload: bytes, names: int) -> int:
        number = self._ring.append(payload, names * _NAME_BYTES, _PACED)
        if not self._is_in_place():
            raise StoreUnavailableError("its directory was removed")
        return number

    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        payload, names = encode_purge(selector, now, cause), len(selector.names())
        appended = self._appender.do(self._append, payload, names)
        return await reported(self._report, "publish", appended, (OSError, RuntimeError))

    def last(self) -> int:
        return self._ring.last

    def follow(self, number: int) -> Sequence[Purge]:
        return [decode_purge(each, payload) for each, payload in self._ring.follow(number)]

    def horizon(self) -> int:
        return self._ring.first

    def settled(self) -> Settled:
        first = self._ring.first  # before what may be lost with more of them
        return Settled(first, self._ring.lost)

    def trusted_until(self) -> float:
        return inf

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._appender.close()
