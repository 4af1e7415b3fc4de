"""The entries of a file store: read by one thread, written in batches by another, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from univocal.cache.stored import Stored
from univocal.http.messages import Request
from univocal.store.file.directory import Directory
from univocal.store.file.rows import EntryTable, Put, is_damage
from univocal.store.purge_selectors import Selector
from univocal.store.refusals import Refusals
from univocal.store.roles import (
    Entries,
    FetchLease,
    Judge,
    Numbered,
    StoreReport,
    StoreUnavailableError,
    unreported,
)

__all__ = ["FileEntries"]

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")

# What may wait to be written: bytes, unless one response is larger, and responses. More is not stored.
_MOST_WAITING: Final = 8 << 20
_MOST_PUTS: Final = 5_000
# Operations of one transaction, and seconds in which others come to join the first.
_BATCH: Final = 200
_GATHERING: Final = 0.002
# Seconds for which the turn may still be another's: it is freed when that ends.
_TURN: Final = 10.0
# Seconds after which a row that is read is touched again.
_TOUCHED: Final = 60
# Seconds between two slices of the walk that cleans up, and between two attempts to be the one who walks.
_PACE: Final = 0.1
_IDLE: Final = 5.0


@dataclass(slots=True, eq=False)
class _Work:
    """Something to be done in a transaction, and who waits for it."""

    run: Callable[[EntryTable], Any]
    size: int
    done: asyncio.Future[Any] | None
    result: Any = None

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

    def __init__(self, directory: Directory, disk_bytes: int, report: StoreReport = unreported) -> None:
        self.disk_bytes = disk_bytes
        self.directory, self._report = directory, report
        self._reader: Final = ThreadPoolExecutor(1, "univocal-reader")
        self._read_rows: tuple[int, EntryTable] | None = None
        self._waiting: Final[deque[_Work]] = deque()
        self._size = 0
        self._news: Final = threading.Condition()
        self._ends = False
        self._refusals: Final = Refusals(str(directory.path))
        self._writer: Final = threading.Thread(target=self._write_all, name="univocal-writer", daemon=True)
        self._writer.start()

    # Reading

    async def lookup(
        self,
        key: bytes,
        now: float,
        request: Request | None = None,  # noqa: ARG002
    ) -> Sequence[Numbered]:
        rows = await self._read("lookup", lambda rows: rows.of_key(key))
        stale = [row.id for row in rows if now - row.touched > _TOUCHED]
        if stale:
            with suppress(OSError):
                self._enqueue(_Work(lambda rows: rows.touch(stale, now), 0, None))
        return [row.numbered for row in rows]

    async def count(self, selector: Selector, after: int) -> int | None:
        return await self._read("count", lambda rows: rows.count(selector, after))

    async def _read(self, command: str, read: Callable[[EntryTable], T]) -> T:
        begun, result = time.perf_counter(), "ok"
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, self._read_now, read)
        except (sqlite3.Error, RuntimeError) as error:
            result = "error"
            raise StoreUnavailableError(str(error)) from error
        finally:
            self._report(command, result, time.perf_counter() - begun)

    def _read_now(self, read: Callable[[EntryTable], T]) -> T:
        self._read_rows = generation, rows = self._current(self._read_rows)
        try:
            return read(rows)
        except sqlite3.Error as error:
            self._doubt(error, generation)
            raise

    def _current(self, opened: tuple[int, EntryTable] | None) -> tuple[int, EntryTable]:
        """The generation in force, and its rows. Raises sqlite3.Error."""
        generation = self.directory.ring.generation
        if opened is not None:
            if opened[0] == generation:
                return opened
            opened[1].close()
        try:
            return generation, EntryTable(
                self.directory.entries(generation), is_durable=self.directory.is_durable
            )
        except sqlite3.Error as error:
            self._doubt(error, generation)
            raise

    def _doubt(self, error: sqlite3.Error, generation: int) -> None:
        """Put the file of that generation aside if it is damaged: another process may have begun the next."""
        if is_damage(error):
            try:
                self.directory.put_aside(generation, str(error))
            except (OSError, StoreUnavailableError):
                logger.warning("%s: the database is damaged and cannot be moved away", self.directory.path)

    # Turns

    async def begin(self, lease: FetchLease, now: float) -> float:  # noqa: ARG002
        turns = self.directory.turns
        lease.has_turn = turns.take(lease.key)
        lease.holder = b"" if lease.has_turn else turns.holder(lease.key)
        return 0.0 if lease.has_turn else _TURN

    async def end(self, lease: FetchLease) -> None:
        if lease.has_turn:
            lease.has_turn = False
            self.directory.turns.give(lease.key)

    # Writing

    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        begun, result = time.perf_counter(), "ok"
        put = Put.of(number, stored, now)
        try:
            too_much = 0 < self._size > _MOST_WAITING - put.size  # a large one may wait alone
            if too_much or len(self._waiting) > _MOST_PUTS:
                result = "full"
                return False
            replaced: bool = await self._write(lambda rows: rows.put(put), put.size)
            return replaced
        except StoreUnavailableError:
            result = "full" if self._refusals.lasts else "error"
            raise
        finally:
            self._report("commit", result, time.perf_counter() - begun)
            await self.end(lease)

    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        begun, result = time.perf_counter(), "ok"
        try:
            if await self._read("lookup", lambda rows: any(rows.of_key(key) for key in keys)):
                removed: Sequence[Numbered] = await self._write(lambda rows: rows.take(keys), 0)
                return removed
            return ()
        except StoreUnavailableError:
            result = "error"
            return ()  # the journal says that they are purged
        finally:
            self._report("remove", result, time.perf_counter() - begun)

    async def walk(self, judge: Judge, followed: Callable[[], int]) -> None:
        at = 0
        while not self._ends:
            if not self.directory.turns.lead():
                await asyncio.sleep(_IDLE)
                continue
            try:
                at = await self._clean(at, judge, followed())
            except StoreUnavailableError:
                at = 0
            await asyncio.sleep(_PACE if at else _IDLE)

    async def _clean(self, at: int, judge: Judge, followed: int) -> int:
        """Look at some rows; returns where to go on, 0 at the end."""
        rows = await self._read("walk", lambda rows: rows.after(at))
        if not rows:
            return 0
        now = time.time()
        whole = [(row, until) for row, until, _ in rows if row is not None]
        valid = judge([row.numbered for row, _ in whole])
        gone = [row.id for (row, until), left in zip(whole, valid, strict=True) if not left or until < now]
        numbers = {row.id: row.numbered.number for row, _ in whole}
        dropped = [(each, numbers[each]) for each in gone]
        early = self.directory.ring.last - _LIFTED
        lifted = [(followed, each, old) for each, old in numbers.items() if old < early]
        lifted = [each for each in lifted if each[1] not in gone]
        if dropped or lifted:
            await self._write(lambda rows: rows.tidy(dropped, lifted), 0)
        return rows[-1][2]

    async def _write(self, run: Callable[[EntryTable], Any], size: int) -> Any:
        done = asyncio.get_running_loop().create_future()
        try:
            self._enqueue(_Work(run, size, done))
            return await done
        except Exception as error:
            raise StoreUnavailableError(str(error)) from error

    def _enqueue(self, work: _Work) -> None:
        with self._news:
            if self._ends:
                raise OSError("closed")
            self._waiting.append(work)
            self._size += work.size
            if len(self._waiting) == 1:
                self._news.notify()

    def _write_all(self) -> None:
        """Write until the end, some at a time."""
        opened: tuple[int, EntryTable] | None = None
        while True:
            with self._news:
                while not self._waiting and not self._ends:
                    self._news.wait()
                if not self._waiting:
                    break
            time.sleep(_GATHERING)
            with self._news:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                self._size -= sum(work.size for work in batch)
            try:
                opened = self._current(opened)
                self._write_batch(*opened, batch)
            except Exception as error:
                self._fail(batch, error)  # the thread goes on: later responses are stored
        if opened is not None:
            try:
                opened[1].checkpoint()
            except sqlite3.Error as error:
                logger.info("%s: %s", self.directory.path, error)
            opened[1].close()

    def _write_batch(self, generation: int, rows: EntryTable, batch: list[_Work]) -> None:
        try:
            rows.begin()
            for work in batch:
                work.result = work.run(rows)
            while rows.size > self.disk_bytes and rows.evict():
                pass
            rows.commit()
        except BaseException as error:
            rows.roll_back()
            if isinstance(error, sqlite3.Error):
                self._doubt(error, generation)
            raise
        if any(work.size for work in batch):
            self._refusals.stored()
        _tell(batch, None)

    def _fail(self, batch: list[_Work], error: Exception) -> None:
        self._refusals.refused(error)
        _tell(batch, error)

    async def close(self) -> None:
        with self._news:
            self._ends = True
            self._news.notify()
        await asyncio.to_thread(self._writer.join)
        await asyncio.get_running_loop().run_in_executor(self._reader, self._close_reader)
        self._reader.shutdown()

    def _close_reader(self) -> None:
        if self._read_rows is not None:
            self._read_rows[1].close()
            self._read_rows = None


# Positions of the journal: a row whose number is further back than this gets another.
_LIFTED: Final = 1 << 20


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
        with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
            done.get_loop().call_soon_threadsafe(tell)
