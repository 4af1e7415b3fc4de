"""The threads of a file store: one reads entries, another writes them in batches to the table (`rows.py`)."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from univocal.cache.stored import Stored
from univocal.http.messages import Request
from univocal.store.codec import decode_purge
from univocal.store.file.directory import Directory
from univocal.store.file.lasting_thread import LastingThread
from univocal.store.file.rows import (
    LOGGED,
    PATIENCE,
    Described,
    EntryTable,
    Lift,
    Put,
    Recent,
    Written,
    damage_of,
    sizes_of,
)
from univocal.store.leases import FetchLease, Numbered, concerns
from univocal.store.purge_selectors import Selector
from univocal.store.roles import (
    BeyondHorizonError,
    Entries,
    LeftOf,
    Overflow,
    Refusals,
    StoreReport,
    StoreStats,
    StoreUnavailableError,
    reported,
    unreported,
)

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")

# The most that waits to be written: bytes, unless one response is larger, and responses. More is not stored.
_MOST_WAITING: Final = 8 << 20
_MOST_PUTS: Final = 5_000
# Operations of one transaction, and seconds in which others come to join the first.
_BATCH: Final = 200
_GATHERING: Final = 0.002
# Seconds for which another may still have the lock: it is released when that ends.
_LOCK: Final = 10.0
# The log's part of `disk_bytes`, and bytes of it; bytes that are set aside for its index and small files.
_LOG_PART: Final = 16
_LEAST_LOG: Final = 256 << 10
_MOST_LOG: Final = 4 << 20
_SPARE: Final = 128 << 10
# Bytes by which the database's indexes may grow with a row.
_AROUND: Final = 1 << 10
# Seconds that a read in the event loop may take: after a longer one, another thread reads for some seconds.
_SLOW: Final = 0.005
_SLOW_FOR: Final = 1.0
_THREAD: Final[int] = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
# Seconds between two looks whether the database is in its place.
_LOOK: Final = 0.25
# Seconds after which a row that is read is touched again.
_TOUCHED: Final = 60
# Purges that are carried out before what was written is brought to the disk, and seconds for which they wait.
_SETTLED: Final = 500
_SYNCED: Final = 5.0
# Seconds between two slices of the walk that cleans up, and between two attempts to be the one who walks.
_PACE: Final = 0.1
_IDLE: Final = 5.0


@dataclass(slots=True, eq=False)
class _Work:
    """Something to be done in a transaction, and who waits for it.

    If it gives a `Put`, that is written together with those of the batch, and the result is that of it.
    """

    run: Callable[[EntryTable], Any]
    size: int
    done: asyncio.Future[Any] | None
    result: Any = None
    settles: int = 0  # the number of a purge that this carries out
    growth: int = 0  # bytes by which the database may grow
    is_again: bool = False  # there was no room for it in the batch before

    def tell(self, error: Exception | None) -> None:
        """Tell who waits; in the event loop."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(error)


class FileEntries(Entries):
    """The rows of a directory, of at most `disk_bytes`; what is longest unused makes room."""

    glances = True

    def __init__(self, directory: Directory, disk_bytes: int, report: StoreReport = unreported) -> None:
        self.disk_bytes = disk_bytes
        self.directory, self._report = directory, report
        self._reader: Final = LastingThread("reading", directory.path)
        self._read_rows: EntryTable | None = None
        self._at_hand: EntryTable | None = None  # for the event loop, which waits for nothing
        self._offered: EntryTable | None = None  # the same, which the thread that reads opens anew
        self._exchange: Final = threading.Lock()
        self._recent: Final = Recent()
        self._missed = b"", -1  # the last key that a glance found nothing of, and the last commit by then
        self._committed = -1  # the last commit when something was read for a fetch
        self._first = -1  # the journal's, by which they were read
        self._slow_until = self._looked = 0.0
        self._blocks = 0  # that a disk has been asked for
        self._log: Final = min(max(disk_bytes // _LOG_PART, _LEAST_LOG), _MOST_LOG)
        self._waiting: Final[deque[_Work]] = deque()
        self._size = 0
        self._news: Final = threading.Condition()
        self._ends = False
        self._refusals: Final = Refusals(str(directory.path))
        self._overflow: Final = Overflow(str(directory.path))
        self._batch: list[_Work] = []
        self._carried_out: list[int] = []  # the purges of these numbers, since `_synced`
        self._synced = time.monotonic()
        self._writer: threading.Thread | None = None  # begun with the first write: a fork may come before
        self._evicted = 0

    @property
    def evictions(self) -> int:
        return self._evicted

    async def holding(self) -> StoreStats:
        return StoreStats(*await self._read("holding", lambda rows: rows.holding()), self.disk_bytes)

    # Reading

    async def lookup(
        self,
        key: bytes,
        now: float,
        request: Request | None = None,  # noqa: ARG002
    ) -> Sequence[Numbered]:
        numbered = self.glance(key, now, anew=True)
        if numbered is None:
            read = await self._read("lookup", lambda rows: rows.of_key(key))
            self._touch([row for row, _ in read], now)
            numbered = [Numbered(row.number, stored) for row, stored in read]
        return numbered

    def glance(self, key: bytes, now: float, *, anew: bool = False) -> Sequence[Numbered] | None:
        begun = time.perf_counter()
        try:
            rows = self._rows_at_hand(begun)
            if rows is None:
                return None
            if anew:
                self._committed = self.directory.ring.committed
                if self._missed == (key, self._committed):
                    return []
            elif (known := self._recent.get(key, begun)) is not None:
                numbered = self._whole(rows, known, now)
                if len(numbered) == len(known):
                    return numbered
            if begun < self._slow_until:
                return None
            committed = self.directory.ring.committed  # before it is read
            numbered = self._read_at_hand(rows, key, now, begun)
            if not numbered:
                self._missed = key, committed
            return numbered
        except (sqlite3.Error, OSError):
            return None

    def _read_at_hand(self, rows: EntryTable, key: bytes, now: float, begun: float) -> list[Numbered]:
        """The responses of a key, which the event loop's thread asks the database for."""
        known = rows.described_of(key)
        if known:
            self._recent.put(key, known, begun)
        numbered = self._whole(rows, known, now)
        seconds = time.perf_counter() - begun
        if seconds > _SLOW and self._has_read_disk():
            self._slow_until = begun + _SLOW_FOR
        self._report("lookup", "ok", seconds)
        return numbered

    def _has_read_disk(self) -> bool:
        """Tell whether the event loop's thread has waited for a disk since the last call."""
        before, self._blocks = self._blocks, resource.getrusage(_THREAD).ru_inblock
        return self._blocks != before

    def _rows_at_hand(self, begun: float) -> EntryTable | None:
        ring = self.directory.ring
        if self._offered is not None:
            if self._at_hand is not None:
                self._at_hand.close()
            with self._exchange:
                self._at_hand, self._offered = self._offered, None
            self._recent.clear()
            self._has_read_disk()  # what was read until now was not read for a request
        rows = self._at_hand
        if rows is None or rows.generation != ring.generation:
            return None
        if ring.first != self._first:
            self._recent.clear()  # the purges that are forgotten were carried out on the rows by then
            self._first = ring.first
        if begun - self._looked > _LOOK:
            if rows.loss():
                return None
            self._looked = begun
        return rows

    def _whole(self, rows: EntryTable, described: list[Described], now: float) -> list[Numbered]:
        read = list[Numbered]()
        for each in described:
            stored = rows.whole(each, waits=False)
            if stored is not None:
                read.append(Numbered(each.number, stored))
        self._touch(described, now)
        return read

    def _touch(self, rows: Sequence[Described], now: float) -> None:
        stale = [row for row in rows if now - row.touched > _TOUCHED]
        if stale and len(self._waiting) < _MOST_PUTS // 2:  # else it goes without
            identities = [row.id for row in stale]
            for row in stale:
                row.touched = int(now)
            with suppress(OSError):
                self._enqueue(_Work(lambda rows: rows.touch(identities, now), 0, None))

    async def count(self, selector: Selector, after: int) -> int | None:
        return await self._read("count", lambda rows: rows.count(selector, after))

    async def _read(self, command: str, read: Callable[[EntryTable], T]) -> T:
        failures = (sqlite3.Error, RuntimeError, OSError)
        return await reported(self._report, command, self._reader.do(self._read_now, read), failures)

    def _read_now(self, read: Callable[[EntryTable], T]) -> T:
        self._read_rows = rows = self._current(self._read_rows)
        at_hand = self._offered or self._at_hand
        if at_hand is None or at_hand.generation != rows.generation:
            with suppress(sqlite3.Error, OSError):
                opened = self._opened(rows.generation, patience=0.0)
                with self._exchange:
                    unused, self._offered = self._offered, opened
                if unused is not None:
                    unused.close()
        try:
            return read(rows)
        except sqlite3.Error as error:
            self._doubt(error, rows.generation)
            raise

    def _current(self, opened: EntryTable | None) -> EntryTable:
        """The rows of the generation in force. Raises sqlite3.Error."""
        generation = self.directory.ring.generation
        if opened is not None:
            loss = opened.loss() if opened.generation == generation else ""
            if opened.generation == generation and not loss:
                return opened
            opened.close()
            if loss:
                self._put_aside(generation, loss)
                generation = self.directory.ring.generation
        try:
            return self._opened(generation)
        except sqlite3.Error as error:
            self._doubt(error, generation)
            raise

    def _opened(self, generation: int, patience: float = PATIENCE) -> EntryTable:
        around = self.directory.other_bytes + 2 * self._log + _SPARE
        return EntryTable(
            self.directory.entries(generation),
            is_durable=self.directory.is_durable,
            limit=self.disk_bytes - around,
            log=self._log,
            patience=patience,
            ring=self.directory.ring,
            generation=generation,
        )

    def _doubt(self, error: sqlite3.Error, generation: int) -> None:
        """Put the file of that generation aside if it is damaged: another process may have begun the next."""
        if reason := damage_of(error):
            self._put_aside(generation, reason)

    def _put_aside(self, generation: int, reason: str) -> None:
        try:
            self.directory.put_aside(generation, reason)
        except (OSError, StoreUnavailableError):
            logger.warning("%s: the database is damaged and cannot be moved away", self.directory.path)

    # Fetch locks

    def take(self, lease: FetchLease) -> bool:
        lease.has_lock = self.directory.fetch_locks.take(lease.key)
        if self.directory.ring.committed != self._committed:
            self._give(lease)  # it may have been stored before the lock was free
        return lease.has_lock

    async def begin(self, lease: FetchLease, now: float) -> float:  # noqa: ARG002
        locks = self.directory.fetch_locks
        lease.has_lock = locks.take(lease.key)
        lease.holder = b"" if lease.has_lock else locks.holder(lease.key)
        return 0.0 if lease.has_lock else _LOCK

    async def end(self, lease: FetchLease) -> None:
        self._give(lease)

    def _give(self, lease: FetchLease) -> None:
        if lease.has_lock:
            lease.has_lock = False
            self.directory.fetch_locks.give(lease.key)

    # Writing

    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        begun, result, written = time.perf_counter(), "ok", Written(False, None)
        row, beside = sizes_of(stored)
        size = row + beside
        try:
            too_much = 0 < self._size > _MOST_WAITING - size  # a large one may wait alone
            if too_much or len(self._waiting) > _MOST_PUTS:
                result = "full"
                self._overflow.dropped()
                return False
            if size > self.disk_bytes // 2:
                result = "full"
                return False
            run = partial(self._put_of, lease, number, stored, now)
            written = await self._write(run, size, 2 * row + _AROUND) or written
            return written.replaced
        except StoreUnavailableError:
            result = "full" if self._refusals.lasts else "error"
            raise
        finally:
            known = written.known
            if known is None or known.number < self.directory.ring.first:
                self._recent.forget(stored.key)
            else:
                self._recent.put(stored.key, [known], begun)
            self._report("commit", result, time.perf_counter() - begun)
            self._give(lease)

    def _put_of(self, lease: FetchLease, since: int, stored: Stored, now: float, _: EntryTable) -> Put | None:
        """The row of a response, unless a purge means it that was put in force since its number was noted.

        Such a purge is carried out by this thread or another process's, after this transaction or before.
        """
        number = since
        try:
            for number, payload in self.directory.ring.follow(since):
                purge = decode_purge(number, payload, None)
                if purge.cause != lease.token and concerns(purge.selector, lease.key, stored):
                    return None
        except BeyondHorizonError:
            return None
        try:
            return Put.of(number, stored, now)
        except Exception:  # the others of its batch are stored
            logger.exception("%s: a response cannot be stored", self.directory.path)
            return None

    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        try:
            return await self._read(
                "remove", lambda rows: [each for key in keys for each in rows.described(key)]
            )
        except StoreUnavailableError:
            return ()  # the journal says that they are purged

    async def settle(self, selector: Selector, number: int, now: float, *, waits: bool) -> None:
        if selector.keys() is None:
            return
        done = asyncio.get_running_loop().create_future() if waits else None
        with suppress(Exception):  # the journal says that they are purged
            self._enqueue(_Work(lambda rows: rows.settle(selector, number, now), 0, done, settles=number))
            if done is not None:
                await done

    async def walk(self, left_of: LeftOf, followed: Callable[[], int], noted: Callable[[], int]) -> None:  # noqa: ARG002
        with suppress(StoreUnavailableError):
            await self._write(lambda _: None)  # it is cut to its bound by then: readers would hinder that
        with suppress(StoreUnavailableError):
            await self._read("walk", lambda _: None)  # from now on a glance finds something
        at, needed, ring = 0, 0, self.directory.ring
        while not self._ends:
            self._overflow.tell()  # nothing may come after a burst that would have it told
            if not self.directory.fetch_locks.lead():
                await asyncio.sleep(_IDLE)
                continue
            fails = False
            try:
                if at == 0 and (needed := ring.needed()):
                    await self._write(lambda _: None)  # what is written from now on has a greater number
                at = await self._clean(at, left_of, followed(), needed)
                if at == 0 and needed:
                    await self._write(lambda _: None)  # what was lifted is written
                    ring.raise_floor(needed)
            except StoreUnavailableError:
                at, fails = 0, True
            if fails:
                await asyncio.sleep(_PACE)  # a full journal lets it rest for no time
            await self._rest(at)

    async def _rest(self, at: int) -> None:
        """Pause within a walk, or between two; not while purges wait for it."""
        if at:
            await asyncio.sleep(0 if self.directory.ring.is_tight else _PACE)
            return
        for _ in range(int(_IDLE / _PACE)):
            if self.directory.ring.is_tight:
                break
            await asyncio.sleep(_PACE)

    async def _clean(self, at: int, left_of: LeftOf, followed: int, needed: int = 0) -> int:
        """Look at some rows; returns where to go on, 0 at the end.

        Those that purges have left get the number `followed` if they have less than is needed.
        """
        rows = await self._read("walk", lambda rows: rows.after(at, followed))
        now, lifted = time.time(), list[Lift]()
        usable = [(row, row.stored) for row in rows if row.stored is not None and row.usable_until >= now]
        left = left_of([Numbered(row.number, stored, False) for row, stored in usable])
        dropped = [(row.id, row.number) for row in rows if row.usable_until < now]
        for (row, before), after in zip(usable, left, strict=True):
            if after is None:
                dropped.append((row.id, row.number))
            elif row.number < needed:
                lifted.append(Lift(row.id, row.number, followed, None if after is before else after))
        if dropped or lifted:
            await self._write(lambda rows: rows.tidy(dropped, lifted))
        return rows[-1].id if rows else 0

    async def _write(self, run: Callable[[EntryTable], Any], size: int = 0, growth: int = 0) -> Any:
        done = asyncio.get_running_loop().create_future()
        try:
            self._enqueue(_Work(run, size, done, growth=growth))
            return await done
        except Exception as error:
            raise StoreUnavailableError(str(error)) from error

    def _enqueue(self, work: _Work) -> None:
        with self._news:
            if self._ends:
                raise OSError("closed")
            self._waiting.append(work)
            self._size += work.size
            if self._writer is None or not self._writer.is_alive():
                self._writer = threading.Thread(target=self._write_on, name="univocal-writer", daemon=True)
                self._writer.start()
            if len(self._waiting) == 1:
                self._news.notify()

    def _write_on(self) -> None:
        """Write until the end. If this thread is ended before, no one waits, and the next write begins
        another."""
        try:
            self._write_all()
        except BaseException as error:
            with self._news:
                left = [*self._batch, *self._waiting]
                self._waiting.clear()
                self._size, self._writer = 0, None
            logger.warning("%s: the writing thread ended (%r), another begins", self.directory.path, error)
            self._fail(left, StoreUnavailableError(f"the writing thread ended: {error!r}"))

    def _write_all(self) -> None:
        """Write until the end, some at a time."""
        opened: EntryTable | None = None
        try:
            with suppress(sqlite3.Error, OSError):
                opened = self._bounded(opened)
            while self._next_batch():
                try:
                    opened = self._bounded(opened)
                    self._write_batch(opened, self._batch)
                except Exception as error:
                    self._fail(self._batch, error)  # the thread goes on: later responses are stored
                self._batch = []
            if opened is not None:
                try:
                    opened.checkpoint()
                except sqlite3.Error as error:
                    logger.info("%s: %s", self.directory.path, error)
        finally:
            if opened is not None:
                opened.close()

    def _bounded(self, opened: EntryTable | None) -> EntryTable:
        """The rows in force: a program that starts may find more than it is allowed by now."""
        current = self._current(opened)
        if opened is not current:
            try:
                current.shrink()
            except BaseException:
                current.close()  # or each batch on a full disk would leave a descriptor
                raise
        return current

    def _next_batch(self) -> bool:
        """Wait for what is to be written; False at the end."""
        with self._news:
            while not self._waiting and not self._ends:
                self._news.wait()
            if not self._waiting:
                return False
        time.sleep(_GATHERING)
        with self._news:
            self._batch, growth, most = [], 0, min(_BATCH, self._log // LOGGED)
            while self._waiting and len(self._batch) < most and growth < self._log // 2:
                self._batch.append(self._waiting.popleft())
                growth += self._batch[-1].growth
            self._size -= sum(work.size for work in self._batch)
        return True

    def _write_batch(self, rows: EntryTable, batch: list[_Work]) -> None:
        try:
            rows.begin()
            if growth := sum(work.growth for work in batch):
                rows.make_room(growth)
            again = [work for work in batch if not self._run(work, rows)]
            again += self._store([work for work in batch if isinstance(work.result, Put)], rows)
            rows.commit()
            if rows.generation != self.directory.ring.generation:  # its file was put aside meanwhile
                for work in batch:
                    if isinstance(work.result, Written):
                        work.result = Written(work.result.replaced, None)
        except BaseException as error:
            rows.roll_back()
            if isinstance(error, sqlite3.Error):
                self._doubt(error, rows.generation)
            raise
        if any(work.size for work in batch if work not in again):
            self._refusals.stored()
        self._evicted += rows.evicted
        rows.evicted = 0
        _tell([work for work in batch if work not in again], None)
        with self._news:
            self._waiting.extendleft(again)
            self._size += sum(work.size for work in again)
        self._carried_out += [work.settles for work in batch if work.settles]
        self._settle(rows)

    def _store(self, puts: list[_Work], rows: EntryTable) -> list[_Work]:
        """Write the responses of a batch; returns those without room, which the next batch may have."""
        written = rows.put([work.result for work in puts]) if puts else []
        error = rows.unwritten or OSError(errno.ENOSPC, "disk_bytes are too few for it")
        for work, result in zip(puts, written, strict=True):
            work.result = result
        return [work for work in puts if work.result is None and self._is_for_later(work, error)]

    def _run(self, work: _Work, rows: EntryTable) -> bool:
        """Do something; False if it found no room, which the next batch may have."""
        try:
            work.result = work.run(rows)
        except OSError as error:
            return not self._is_for_later(work, error)
        return True

    def _is_for_later(self, work: _Work, error: OSError) -> bool:
        """True if what found no room is to be tried once more; else it is refused."""
        if work.is_again:
            self._refusals.refused(error)
            return False
        work.is_again = True
        return True

    def _settle(self, rows: EntryTable) -> None:
        """Report the purges that were carried out to the journal, once they survive a loss of power."""
        is_soon = len(self._carried_out) < _SETTLED and time.monotonic() - self._synced < _SYNCED
        if not self._carried_out or (self.directory.is_durable and is_soon):
            return
        self._synced = time.monotonic()
        if self.directory.is_durable:
            rows.sync()
        with suppress(StoreUnavailableError):
            self.directory.ring.settle(self._carried_out)
        self._carried_out = []

    def _fail(self, batch: list[_Work], error: Exception) -> None:
        self._refusals.refused(error)
        _tell(batch, error)

    async def close(self) -> None:
        with self._news:
            self._ends = True
            self._news.notify()
            writer = self._writer
        if writer is not None:
            await asyncio.to_thread(writer.join)
        with suppress(RuntimeError):
            await self._reader.do(lambda: None)  # all that was begun is read
        self._reader.close()
        for each in (self._read_rows, self._at_hand, self._offered):
            if each is not None:
                each.close()
        self._read_rows = self._at_hand = self._offered = None
        self.directory.close()


def _tell(batch: list[_Work], error: Exception | None) -> None:
    """Have the event loop tell all who wait for a batch, in one call."""
    waiting = [work for work in batch if work.done is not None]
    if not waiting:
        return

    def tell() -> None:
        for work in waiting:
            work.tell(error)

    done = waiting[0].done
    if done is not None:
        with suppress(RuntimeError):  # the loop is closed: no call waits any longer
            done.get_loop().call_soon_threadsafe(tell)
