"""The entries of a file store in SQLite: one row for a response; content stands in it or beside the database.

A table is used by one thread at a time.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from univocal.cache.stored import Stored, filled, softened
from univocal.store.codec import decode, encode, encode_softened, netstring, netstrings, usable_until, variant
from univocal.store.file.content import SCHEMA, UNIT, Content, regions_of, units_of
from univocal.store.file.ring import UNKNOWN, Ring, State
from univocal.store.leases import Numbered
from univocal.store.memory import MOST_VARIANTS
from univocal.store.purge_selectors import Selector
from univocal.store.roles import StoreUnavailableError

# Seconds for which a row is known: then what other processes stored is looked at again.
_KNOWN: Final = 60.0
# Bytes that all of them may take, and those of one besides its content and its names.
_LIMIT: Final = 16 << 20
_COST: Final = 1_300


@dataclass(slots=True, eq=False)
class Described:
    """A row: the response without the content that stands at a place beside the database.

    `whole_at`: the state of that, see ring.py, in which it was found whole, good until `whole_until`, in
    seconds of a clock that only goes on. It was the same at `seen`.
    """

    id: int
    touched: int
    number: int
    stored: Stored
    seal: bytes
    length: int
    place: bytes
    whole_at: State = UNKNOWN
    whole_until: float = 0.0
    seen: State = UNKNOWN


class Recent:
    """The rows of the keys that were read last, each for some seconds (by any clock that only goes on)."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit: Final = limit
        self._octets = 0
        self._known: Final[OrderedDict[bytes, tuple[float, int, list[Described]]]] = OrderedDict()

    def get(self, key: bytes, now: float) -> list[Described] | None:
        """The rows of a key, newest first; None if they are not known."""
        known = self._known.get(key)
        if known is None:
            return None
        if now - known[0] > _KNOWN:
            self.forget(key)
            return None
        return known[2]

    def put(self, key: bytes, rows: list[Described], now: float) -> None:
        """Know the rows of a key, which were read just now."""
        self.forget(key)
        cost = sum(_COST + len(key) + len(each.stored.head) + len(each.stored.body) for each in rows)
        self._known[key] = now, cost, rows
        self._octets += cost
        while self._octets > self._limit:
            self._octets -= self._known.popitem(last=False)[1][1]

    def forget(self, key: bytes) -> None:
        """Know a key no longer: its rows are being changed."""
        known = self._known.pop(key, None)
        if known is not None:
            self._octets -= known[1]

    def clear(self) -> None:
        """Know nothing."""
        self._known.clear()
        self._octets = 0


# Seconds for which another process may be writing.
PATIENCE: Final = 2.0
# Seconds between two attempts to begin a log, or to shorten a full one.
_PAUSE: Final = 0.001
_CACHE: Final = 2_048  # KiB
_INCREMENTAL: Final = 2  # as SQLite numbers it
# As many rows are evicted, or looked at by a walk, at a time.
SLICE: Final = 200
# Bytes of a row, besides its key, its head, its names and its content.
_ROW: Final = 500
# Bytes of a content that stands in its row.
_IN_ROW: Final = 2 << 10
# Rounds of eviction that make room for the rows of one batch.
_ROUNDS: Final = 10
# And rounds that make room for the contents of one batch, where the database has taken it.
_MOST_ROUNDS: Final = 100
# Rows that are evicted at a time where a store is nearly as small as it is to be.
_FEW: Final = 20
# Seconds for which a content that was found whole needs no second look while none writes there: a disk may
# lose what it had.
_WHOLE: Final = 10.0
# Attempts to make room for a content.
_ATTEMPTS: Final = 4
# The part of the limit to which a store shrinks that has more.
_KEPT: Final = 0.9
_NO_LIMIT: Final = 1 << 62
# Numbers of vacuums: `PRAGMA application_id` has 31 bits without its sign.
_VACUUMS: Final = 1 << 31
# Bytes that a row writes into the log, about.
LOGGED: Final = 16 << 10

_VERSION: Final = 4
_OLDER: Final = "DROP TABLE IF EXISTS entries; DROP TABLE IF EXISTS free; DROP TABLE IF EXISTS content;"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, number INTEGER NOT NULL, touched INTEGER NOT NULL, usable_until REAL NOT NULL,
    response_time REAL NOT NULL, key BLOB NOT NULL, variant BLOB NOT NULL, tags BLOB NOT NULL,
    digest BLOB NOT NULL, described BLOB NOT NULL, seal BLOB NOT NULL, length INTEGER NOT NULL,
    place BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS named ON entries (key, variant);
CREATE INDEX IF NOT EXISTS by_use ON entries (touched);
CREATE INDEX IF NOT EXISTS tagged ON entries (tags, number) WHERE tags <> x'';
"""
_PUT: Final = """
INSERT INTO entries
    (number, touched, usable_until, response_time, key, variant, tags, digest, described, seal, id, length,
    place, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key, variant) DO UPDATE SET number = excluded.number, touched = excluded.touched,
    usable_until = excluded.usable_until, response_time = excluded.response_time, tags = excluded.tags,
    digest = excluded.digest, described = excluded.described, seal = excluded.seal, length = excluded.length,
    place = excluded.place, body = excluded.body
"""


class Put(NamedTuple):
    """A response to be written, as the columns of its row."""

    number: int
    touched: int
    usable_until: float
    response_time: float
    key: bytes
    variant: bytes
    tags: bytes
    digest: bytes
    described: bytes
    seal: bytes
    stored: Stored

    @classmethod
    def of(cls, number: int, stored: Stored, now: float) -> Put:
        """The row of a response."""
        described, seal = encode(stored), _sealed(stored.body)
        tags = b"".join([netstring(tag) for tag in sorted(stored.tags)])
        digest = _digest(stored.key, described, seal)
        times = int(now), usable_until(stored), stored.response_time
        return cls(number, *times, stored.key, variant(stored.vary), tags, digest, described, seal, stored)


class Written(NamedTuple):
    """The result of a response's writing: True if it replaced one, and its row, unless its key has others."""

    replaced: bool
    known: Described | None


def sizes_of(stored: Stored) -> tuple[int, int]:
    """The bytes of a row, about, before it is made, and those of content that is too large for it."""
    names = sum([len(name) + len(value or b"") for name, value in stored.vary]) + sum(map(len, stored.tags))
    told = (stored.etag, stored.last_modified, stored.strong, stored.language)
    names += sum([len(each or b"") for each in told])
    row, content = _ROW + len(stored.key) + len(stored.head) + 2 * names, len(stored.body)
    return (row, content) if content > _IN_ROW else (row + content, 0)


class Walked(NamedTuple):
    """A row that a walk meets; its response without content, if purges that the row's number does not cover
    may mean it."""

    id: int
    number: int
    usable_until: float
    stored: Stored | None


class Lift(NamedTuple):
    """A row that gets another number, and what a soft purge has left of its response, if one has."""

    id: int
    old: int
    number: int
    left: Stored | None


class EntryTable:
    """A connection to the file at `path`, and the content beside it.

    Both together are of at most `limit` bytes, and the log of `log` bytes, about. `patience`: seconds for
    which another process may be writing. The `ring` tells others of it; without one, each content that is
    read is looked at. `generation` is that of the `ring` when it was opened. Raises OSError, sqlite3.Error;
    `damage_of` knows damage.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_durable: bool = True,
        limit: int = _NO_LIMIT,
        log: int = 4 << 20,
        patience: float = PATIENCE,
        ring: Ring | None = None,
        generation: int = 0,
    ) -> None:
        self.generation: Final = generation
        self.limit, self._log, self._patience = limit, log, patience
        self._ring: Final = ring
        self._writing = 0  # the number of the writing under way
        self._written: set[int] = set()  # its regions
        self._vacuums = self._size = self._least = 0
        self._refused = 0  # bytes of contents that found no room in the last batch
        self._lost = ""  # the reason for which the files count as lost
        self.evicted = 0  # rows that made room for others
        self.unwritten: OSError | None = None
        self._put: list[Described] = []  # in this transaction
        self._slice: Final = min(SLICE, log // LOGGED)
        self._sql: Final = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            if self._value("PRAGMA auto_vacuum") != _INCREMENTAL:  # setting it waits for any other's write
                self._sql.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._begin_log(time.monotonic() + patience)
            self._sql.execute(f"PRAGMA synchronous = {'NORMAL' if is_durable else 'OFF'}")
            self._sql.execute(f"PRAGMA cache_size = -{_CACHE}")
            self._sql.execute(f"PRAGMA journal_size_limit = {log}")
            self.page: Final[int] = self._sql.execute("PRAGMA page_size").fetchone()[0]
            self._vacuumed: Final = log // 4 // self.page
            self._sql.execute(f"PRAGMA wal_autocheckpoint = {log // 2 // self.page}")
            if self._value("PRAGMA user_version") != _VERSION:
                self._begin_anew()
            content = path.with_suffix(".content")
            self._files: Final = [path, path.with_name(path.name + "-wal"), content]
            self._note_size()
            # The last that may fail: who could not open a table does not close it.
            self._content: Final = Content(content, self._sql, self._announce, is_in_memory=not is_durable)
            self._places: Final = [_place(each) for each in self._files]
        except BaseException as error:
            self._sql.close()
            if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes a damaged schema
                damage = sqlite3.DatabaseError("the schema is damaged")
                damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damage from None
            raise

    def _begin_anew(self) -> None:
        """Make the tables, unless another process has."""
        self._sql.execute("BEGIN IMMEDIATE")
        if self._value("PRAGMA user_version") != _VERSION:
            for statement in (_OLDER + _SCHEMA + SCHEMA).split(";"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version = {_VERSION}")
        self._sql.execute("COMMIT")

    def close(self) -> None:
        """Close the files."""
        self._sql.close()
        self._content.close()

    def loss(self) -> str:
        """The reason for which the files are not those that were opened, or damaged; "" while they are whole.

        The first reason stays: a table is closed for it, and asked again until its file is put aside.
        """
        if not self._lost:
            try:
                self._lost = self._loss_by_now()
            except sqlite3.Error as error:
                self._lost = damage_of(error)
                if not self._lost:
                    raise
        return self._lost

    def _loss_by_now(self) -> str:
        if [_place(each) for each in self._files] != self._places:
            return "its file was removed"
        size = self._files[0].stat().st_size
        if size < self._least and self._value("PRAGMA application_id") == self._vacuums:
            return "its file was cut short"
        if size != self._size:
            self._note_size()
        return ""

    def _note_size(self) -> None:
        """Note the bytes that the database keeps at least until the next `_vacuum` of any process."""
        self._sql.execute("BEGIN")
        try:
            pages, self._vacuums = self._value("PRAGMA page_count"), self._value("PRAGMA application_id")
        finally:
            if self._sql.in_transaction:  # an error may have ended it
                self._sql.execute("ROLLBACK")
        self._size = self._files[0].stat().st_size
        self._least = min(self._size, pages * self.page)

    def _vacuum(self) -> None:
        """Give some unused pages back, and tell all processes that the database will be shorter."""
        number = time.monotonic_ns() % _VACUUMS
        try:
            self._sql.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id = {number};"
                f"PRAGMA incremental_vacuum({self._vacuumed}); COMMIT"
            )
        except BaseException:
            self.roll_back()
            raise

    @property
    def _log_size(self) -> int:
        return self._files[1].stat().st_size

    def sync(self) -> None:
        """Have what was written survive a loss of power."""
        self._sql.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def checkpoint(self) -> None:
        """Bring what was written into the file itself."""
        self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading

    def of_key(self, key: bytes) -> list[tuple[Described, Stored]]:
        """The rows of a key that are whole, newest first, each with its response."""
        read = [(row, self.whole(row, waits=True)) for row in self.described_of(key)]
        return [(row, stored) for row, stored in read if stored is not None]

    def described_of(self, key: bytes) -> list[Described]:
        """The rows of a key, newest first, that are whole but for content that stands beside the database."""
        rows, read = self._sql.execute(_OF_KEY, (key,)).fetchall(), list[Described]()
        if len(rows) > 1:
            rows.sort(key=itemgetter(0), reverse=True)
        for _, identity, touched, number, digest, described, seal, length, place, in_row in rows:
            if _digest(key, described, seal) == digest and (place or _sealed(in_row) == seal):
                stored = decode(key, described, None if place else in_row)
                if stored is not None:
                    read.append(Described(identity, touched, number, stored, seal, length, place))
        return read

    def whole(self, row: Described, *, waits: bool) -> Stored | None:
        """The response of a row, which may have been read some time ago; None if its content is no more.

        Raises BlockingIOError where that takes a wait that is not wished.
        """
        if not row.place:
            return filled(row.stored, row.stored.body)
        content = self._content
        now = time.monotonic()
        if now < row.whole_until:
            body = content.read(row.place, row.length, waits=waits)
            if self._is_as_it_was(row) and len(body) == row.length:
                return filled(row.stored, body)
        state = self._state(row.place)
        body = content.read(row.place, row.length, waits=waits)
        if _sealed(body) != row.seal:
            return None
        self._note(row, state, now)
        return filled(row.stored, body)

    def _note(self, row: Described, state: State, now: float) -> None:
        """Note that a row was whole in a state."""
        row.whole_at, row.whole_until = state, 0.0 if state == UNKNOWN else now + _WHOLE

    def _is_as_it_was(self, row: Described) -> bool:
        """Tell whether no process has written where a row's content stands since it was found whole."""
        ring = self._ring
        if ring is None:
            return False
        seen = ring.writes, self._content.changed  # no process has written since, if both are the same
        if seen == row.seen:
            return True
        if row.whole_at != self._state(row.place):
            return False
        if not seen[0] & 1 and seen[1] == ring.changed:
            row.seen = seen
        return True

    def _state(self, place: bytes) -> State:
        """The state of a place: a content that was whole is, while this is the same and known."""
        ring = self._ring
        if ring is None or (self._content.changed != ring.changed and not ring.writes & 1):
            return UNKNOWN
        return ring.state(regions_of(place))

    def described(self, key: bytes) -> list[Numbered]:
        """The responses of a key without content."""
        rows = self._sql.execute("SELECT number, described FROM entries WHERE key = ?", (key,)).fetchall()
        read = [(number, decode(key, described, None)) for number, described in rows]
        return [Numbered(number, stored, False) for number, stored in read if stored is not None]

    def after(self, identity: int, followed: int) -> list[Walked]:
        """Some rows after one; `followed`: the number of the last purge."""
        rows = self._sql.execute(_AFTER, (followed, followed, identity, self._slice)).fetchall()
        return [
            Walked(each, number, until, None if key is None else decode(key, described, None))
            for each, number, until, key, described in rows
        ]

    def count(self, selector: Selector, after: int) -> int | None:
        """The responses with at least a number that a selector means; None for one that is not counted."""
        if selector.means_all:
            return int(self._value("SELECT count(*) FROM entries WHERE number >= ?", after))
        tags, prefixes = selector.tags(), selector.prefixes()
        if tags is None:
            counts = [self._value(_COUNT_PREFIX, after, len(prefix), prefix) for prefix in prefixes]
            return sum(counts) if counts else None
        statement = _KEYS_OF_TAGS if prefixes else _COUNT_TAGS
        rows = self._sql.execute(statement, (after,))
        return sum(
            int(count)
            for key, held, count in rows
            if (key is None or selector.may_mean(key)) and not tags.isdisjoint(netstrings(held, 0))
        )

    def _value(self, statement: str, *values: object) -> int:
        value: int = self._sql.execute(statement, values).fetchone()[0]
        return value

    # Writing, in one transaction each

    def begin(self) -> None:
        """Begin a batch, behind a log that is not too long."""
        self._shorten_log()
        refused, self._refused = self._refused, 0
        if refused:
            self._make_room_beside(refused)
        self._sql.execute("BEGIN IMMEDIATE")
        self._content.begin(0)

    def _shorten_log(self) -> None:
        """Bring the log into the database once it is long.

        SQLite refuses at once while another process does the same. That one waits for the end of each
        transaction that others begin, so a log that is full is waited for.
        """
        until = time.monotonic() + self._patience
        while self._log_size > self._log // 2:
            self.checkpoint()
            if self._log_size <= self._log or time.monotonic() > until:
                break
            time.sleep(_PAUSE)

    def _make_room_beside(self, needed: int) -> None:
        """Have the database give so many bytes to contents that did not find room."""
        before = self._value("PRAGMA page_count")
        for _ in range(_MOST_ROUNDS):
            rows = self._sql.execute(_OLDEST, (self._slice,)).fetchall()
            self._shorten_log()  # which the pages that are given back have made longer
            if not rows or self._log_size > self._log:
                break
            self._evict_alone(rows)
            self._vacuum()
            needed -= sum(units_of(place) for _, place in rows) * UNIT
            if (before - self._value("PRAGMA page_count")) * self.page >= needed:
                break

    def make_room(self, growth: int) -> None:
        """Limit the database's growth in this batch to so many bytes, and the content to the rest.

        Raises OSError while a process that stands still keeps the log from being shortened.
        """
        if self._log_size > 2 * self._log:
            raise OSError(errno.ENOSPC, "another process keeps the log")
        pages, units = self._value("PRAGMA page_count"), self._content.units
        most = (self.limit - pages * self.page - self._log) // UNIT  # the database may go on growing a while
        allowed = max(pages, (self.limit - max(units, most) * UNIT) // self.page)
        for _ in range(_ROUNDS):
            left = allowed - pages + self._value("PRAGMA freelist_count")
            if left * self.page >= growth or not self.evict():
                break
        self._content.bound(most)
        self._sql.execute(f"PRAGMA max_page_count = {allowed}")

    def _begin_log(self, until: float) -> None:
        """Have a log beside the database. SQLite does not wait for another that begins it as well."""
        while True:
            try:
                self._sql.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def shrink(self) -> None:
        """Evict what is beyond the limit, and give its room back to the file system."""
        pages, units = self._value("PRAGMA page_count"), self._content.units
        taken = max(1, pages * self.page + self._content.size)
        if taken <= self.limit:
            return
        last = int(units * _KEPT * max(0, self.limit) / taken)
        after = 0
        while rows := self._beyond(last, SLICE, after):
            self._evict_alone(rows)
            after = rows[-1][0]
        spare = max(0, self.limit - last * UNIT)
        while self.size > spare and (
            rows := self._sql.execute(_OLDEST, (SLICE if self.size > 3 * spare else _FEW,)).fetchall()
        ):
            self._evict_alone(rows)
        self.begin()
        self._drop(self._beyond(last))
        self._content.end()
        self._content.cut(last)
        self._sql.execute("COMMIT")
        self.begin()  # or what another process writes meanwhile would be cut off
        self._content.bound(0)
        self.commit()
        while (before := self._value("PRAGMA freelist_count")) > 0:
            self._vacuum()
            self.checkpoint()
            if self._value("PRAGMA freelist_count") >= before:
                break

    def _beyond(self, last: int, most: int = -1, after: int = 0) -> list[tuple[int, bytes]]:
        """Rows after one whose content is not within so many units."""
        rows = self._sql.execute(_PLACES, (after,))
        found = (each for each in rows if self._content.is_beyond(each[1], last))
        return list(islice(found, most if most >= 0 else None))

    def _evict_alone(self, rows: Sequence[tuple[int, bytes]]) -> None:
        self.begin()
        self._drop(rows)
        self.evicted += len(rows)
        self.commit()

    def commit(self) -> None:
        """End a batch."""
        self._content.end()
        self._end_writing()
        now = time.monotonic()
        for row in self._put:  # no other process writes until the transaction ends
            self._note(row, self._state(row.place), now)
        self._put = []
        self._sql.execute("COMMIT")
        if self._ring is not None:
            self._ring.note_commit()

    def roll_back(self) -> None:
        """Drop a batch."""
        self._put = []
        self._end_writing()
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

    def _announce(self, regions: set[int]) -> None:
        """Have readers look at what they find in some regions. Raises StoreUnavailableError."""
        if self._ring is None:
            return
        if not self._writing:
            self._writing = self._ring.begin_writing(self._content.changed)
        others = regions - self._written
        if others:
            self._written |= others
            self._ring.write_in(others, self._writing)

    def _end_writing(self) -> None:
        """Have readers rely on what they find whole: nothing more is written in this transaction."""
        number, regions = self._writing, self._written
        self._writing, self._written = 0, set()
        if self._ring is not None and number:
            with suppress(StoreUnavailableError):  # until another writing each content is looked at
                self._ring.end_writing(regions, number, self._content.changed)

    def put(self, rows: Sequence[Put]) -> list[Written | None]:
        """Write responses, each unless a newer one is there; None for one whose content has no room.

        `unwritten` is why the contents of none could be written, if so.
        """
        self.unwritten, evicted, keys = None, self.evicted, {row.key for row in rows}
        there = before = self._there(keys)
        places = [self._placed(len(row.stored.body)) for row in rows]
        if self.evicted != evicted:  # what made room may be what is replaced
            there = self._there(keys)
        try:
            self._content.write(
                (place, row.stored.body) for place, row in zip(places, rows, strict=True) if place
            )
        except OSError as error:
            self.unwritten = error
            for place in places:
                self._content.free(place or b"")
            places = [None if place else place for place in places]
        written, put = list[Written | None](), list[tuple[object, ...]]()
        last = self._value("SELECT ifnull(max(id), 0) FROM entries")
        for place, row in zip(places, rows, strict=True):
            others = there.setdefault(row.key, {})
            identity, response_time, older = others.get(row.variant, (0, -inf, b""))
            if place is None or response_time > row.response_time:
                self._content.free(place or b"")
                written.append(None if place is None else Written(True, None))
                continue
            self._content.free(older)
            replaced, last = identity > 0 or row.variant in before.get(row.key, ()), last + 1
            identity = identity or last
            others[row.variant] = identity, row.response_time, place
            body = b"" if place else row.stored.body
            put.append((*row[:-1], identity, len(row.stored.body), place, body))
            known = self._known_from(row, identity, place) if len(others) == 1 else None
            written.append(Written(replaced, known))
        self._sql.executemany(_PUT, put)
        for key, variants in there.items():
            if len(variants) > MOST_VARIANTS:
                self._drop(self._sql.execute(_OTHER_VARIANTS, (key, MOST_VARIANTS)).fetchall())
        return written

    def _there(self, keys: Iterable[bytes]) -> dict[bytes, dict[bytes, tuple[int, float, bytes]]]:
        """The rows of some keys, by their variants: identity, response time and place of each."""
        there, names = dict[bytes, dict[bytes, tuple[int, float, bytes]]](), list(keys)
        asked = _OF_KEYS.format(",".join("?" * len(names)))
        for key, named, identity, response_time, place in self._sql.execute(asked, names):
            there.setdefault(key, {})[named] = identity, response_time, place
        return there

    def _known_from(self, row: Put, identity: int, place: bytes) -> Described:
        """A row that is being written, as it will be read."""
        stored = filled(row.stored, b"") if place else row.stored
        length = len(row.stored.body)
        known = Described(identity, row.touched, row.number, stored, row.seal, length, place)
        self._put.append(known)
        return known

    def _placed(self, length: int) -> bytes | None:
        """A place for a content that is too large for its row, with room that others make for it."""
        if length <= _IN_ROW:
            return b""
        for _ in range(_ATTEMPTS):
            place = self._content.take(length)
            if place is not None:
                return place
            if self._refused or not self.evict(-(-length // UNIT)):
                break
        # The database has taken the room, and gives some back before the next batch.
        self._refused += length
        return None

    def _drop(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Remove rows, each with its identity and the place of its content."""
        self._sql.executemany("DELETE FROM entries WHERE id = ?", [(each,) for each, _ in rows])
        for _, place in rows:
            self._content.free(place)

    def settle(self, selector: Selector, number: int, now: float) -> None:
        """Carry out a purge of this number on the rows that it names."""
        for key, vary in selector.places():
            rows = self._sql.execute(
                "SELECT id, number, variant, described FROM entries"
                " WHERE key = ? AND number < ? AND response_time <= ?",
                (key, number, selector.received),
            ).fetchall()
            one = None if vary is None else variant(vary)
            meant = [row for row in rows if one is None or row[2] == one]
            read = [(each, old, decode(key, described, None)) for each, old, _, described in meant]
            if selector.soft:
                # The number stays: purges between the two have not been asked about.
                left = [
                    Lift(each, old, old, softened(one, now)) for each, old, one in read if one is not None
                ]
                self.tidy((), left)
            else:
                self.tidy([(each, old) for each, old, _ in read], ())

    def tidy(self, dropped: Iterable[tuple[int, int]], lifted: Iterable[Lift]) -> None:
        """Remove rows (identity, number), and change others, if they still have their numbers."""
        for each in dropped:
            self._drop(
                self._sql.execute(
                    "SELECT id, place FROM entries WHERE id = ? AND number = ?", each
                ).fetchall()
            )
        for lift in lifted:
            self._lift(lift)

    def _lift(self, each: Lift) -> None:
        self._sql.execute(
            "UPDATE entries SET number = ? WHERE id = ? AND number = ?", (each.number, each.id, each.old)
        )
        if each.left is None:
            return
        row = self._sql.execute(
            "SELECT described, seal FROM entries WHERE id = ? AND number = ?", (each.id, each.number)
        ).fetchone()
        if row is not None:
            described = encode_softened(row[0], each.left)
            digest, until = _digest(each.left.key, described, row[1]), usable_until(each.left)
            self._sql.execute(
                "UPDATE entries SET described = ?, digest = ?, usable_until = ? WHERE id = ?",
                (described, digest, until, each.id),
            )

    def touch(self, identities: Sequence[int], now: float) -> None:
        """Record the rows that memory has read."""
        self._sql.executemany(
            "UPDATE entries SET touched = ? WHERE id = ?", [(int(now), each) for each in identities]
        )

    @property
    def size(self) -> int:
        """The bytes in use."""
        pages = self._value("PRAGMA page_count") - self._value("PRAGMA freelist_count")
        return pages * self.page

    def evict(self, units: int = 0) -> int:
        """Remove some of the rows that were not written or read for the longest time, and return how many.

        With `units` no more than those that have so many together.
        """
        rows, freed = self._sql.execute(_OLDEST, (self._slice,)).fetchall(), 0
        for count, (_, place) in enumerate(rows, 1):
            freed += units_of(place)
            if units and freed >= units:
                del rows[count:]
                break
        self._drop(rows)
        self.evicted += len(rows)
        return len(rows)

    def holding(self) -> tuple[int, int]:
        """The number of rows, and the bytes of both files."""
        return self._value("SELECT count(*) FROM entries"), self.size + self._content.size


_OF_KEY: Final = """
SELECT response_time, id, touched, number, digest, described, seal, length, place, body FROM entries
WHERE key = ?
"""
_OF_KEYS: Final = "SELECT key, variant, id, response_time, place FROM entries WHERE key IN ({})"
_AFTER: Final = """
SELECT id, number, usable_until, CASE WHEN number < ? THEN key END, CASE WHEN number < ? THEN described END
FROM entries WHERE id > ? ORDER BY id LIMIT ?
"""
_PLACES: Final = "SELECT id, place FROM entries WHERE place <> x'' AND id > ? ORDER BY id"
_OLDEST: Final = "SELECT id, place FROM entries ORDER BY touched, id LIMIT ?"
_OTHER_VARIANTS: Final = """
SELECT id, place FROM entries WHERE key = ? ORDER BY touched DESC, id DESC LIMIT -1 OFFSET ?
"""
_COUNT_PREFIX: Final = """
SELECT count(*) FROM entries WHERE number >= ? AND substr(key, instr(key, x'20') + 1, ?) = ?
"""
_COUNT_TAGS: Final = """
SELECT NULL, tags, count(*) FROM entries INDEXED BY tagged WHERE tags <> x'' AND number >= ? GROUP BY tags
"""
_KEYS_OF_TAGS: Final = "SELECT key, tags, 1 FROM entries INDEXED BY tagged WHERE tags <> x'' AND number >= ?"


_CUT_SHORT: Final = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


def damage_of(error: sqlite3.Error) -> str:
    """The damage that an error tells of (not SQLite's, not whole, without our tables), or ""."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    if code in _CUT_SHORT:
        return "its file was removed or cut short"
    return str(error) if code & 0xFF in _DAMAGE else ""


def _place(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _digest(key: bytes, described: bytes, seal: bytes) -> bytes:
    return sha256(netstring(key) + netstring(described) + seal).digest()[:16]


def _sealed(body: bytes) -> bytes:
    """The digest of a content, by what most processors calculate fastest."""
    return sha256(body).digest()[:16]
