"""The entries of a file store in SQLite: one row for a response and its content. Used by one thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from univocal.cache.stored import Selecting, Stored, softened
from univocal.store.codec import (
    decode,
    encode,
    encode_softened,
    netstring,
    netstrings,
    usable_until,
    variant,
)
from univocal.store.purge_selectors import (
    Everything,
    Keys,
    Pattern,
    Prefix,
    Selector,
    Tags,
    Variants,
    located,
    url_of,
)
from univocal.store.roles import Numbered

__all__ = ["EntryTable", "Lift", "Put", "Row", "is_damage"]

# Seconds for which another process may be writing.
_PATIENCE: Final = 2.0
_CACHE: Final = 2_048  # KiB
# As many rows are evicted, or looked at by a walk, at a time.
SLICE: Final = 200
# Responses of one key.
_MOST_VARIANTS: Final = 64

_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, number INTEGER NOT NULL, touched INTEGER NOT NULL, usable_until REAL NOT NULL,
    response_time REAL NOT NULL, key BLOB NOT NULL, variant BLOB NOT NULL, tags BLOB NOT NULL,
    digest BLOB NOT NULL, described BLOB NOT NULL, seal BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS named ON entries (key, variant);
CREATE INDEX IF NOT EXISTS by_age ON entries (touched);
CREATE INDEX IF NOT EXISTS tagged ON entries (tags, number) WHERE tags <> x'';
"""
_PUT: Final = """
INSERT INTO entries
    (number, touched, usable_until, response_time, key, variant, tags, digest, described, seal, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key, variant) DO UPDATE SET number = excluded.number, touched = excluded.touched,
    usable_until = excluded.usable_until, response_time = excluded.response_time, tags = excluded.tags,
    digest = excluded.digest, described = excluded.described, seal = excluded.seal, body = excluded.body
    WHERE excluded.response_time >= response_time
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
    body: bytes

    @classmethod
    def of(cls, number: int, stored: Stored, now: float) -> Put:
        """The row of a response."""
        described, body = encode(stored), stored.body
        tags = b"".join(map(netstring, sorted(stored.tags)))
        seal = _sealed(body)
        digest = _digest(stored.key, described, seal)
        times = int(now), usable_until(stored), stored.response_time
        return cls(number, *times, stored.key, variant(stored.vary), tags, digest, described, seal, body)

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return 200 + len(self.key) + len(self.described) + len(self.body)


class Row(NamedTuple):
    """A row that was read: its identity, when it was touched, and the response."""

    id: int
    touched: int
    numbered: Numbered


class Lift(NamedTuple):
    """A row that gets another number, and what a soft purge has left of its response, if one has."""

    id: int
    old: int
    number: int
    left: Stored | None


class EntryTable:
    """A connection to the file at `path`. Raises sqlite3.Error; `is_damage` says which of them is one."""

    def __init__(self, path: Path, *, is_durable: bool = True) -> None:
        self._sql: Final = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute(f"PRAGMA synchronous = {'NORMAL' if is_durable else 'OFF'}")
            self._sql.execute(f"PRAGMA cache_size = -{_CACHE}")
            self._sql.execute(f"PRAGMA journal_size_limit = {16 << 20}")
            if self._value("PRAGMA user_version") != _VERSION:
                self._sql.executescript(f"DROP TABLE IF EXISTS entries; PRAGMA user_version = {_VERSION}")
            self._sql.executescript(_SCHEMA)
            self.page: Final[int] = self._sql.execute("PRAGMA page_size").fetchone()[0]
            self._files: Final = [path, path.with_name(path.name + "-wal")]
            self._places: Final = [_place(each) for each in self._files]
        except BaseException:
            self._sql.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._sql.close()

    @property
    def is_in_place(self) -> bool:
        """True while the database and its log are the files that were opened."""
        return [_place(each) for each in self._files] == self._places

    def sync(self) -> None:
        """Have what was written survive a loss of power."""
        self._sql.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def checkpoint(self) -> None:
        """Bring what was written into the file itself."""
        self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading

    def of_key(self, key: bytes) -> list[Row]:
        """The responses of a key that are whole, newest first; a row that is not is removed."""
        rows = self._sql.execute(
            "SELECT id, touched, number, digest, described, seal, body FROM entries WHERE key = ?"
            " ORDER BY response_time DESC",
            (key,),
        ).fetchall()
        read = list[Row]()
        for identity, touched, number, digest, described, seal, body in rows:
            is_whole = _digest(key, described, seal) == digest and _sealed(body) == seal
            stored = decode(key, described, body) if is_whole else None
            if stored is not None:
                read.append(Row(identity, touched, Numbered(number, stored)))
        return read

    def described(self, key: bytes) -> list[Numbered]:
        """The responses of a key without content."""
        rows = self._sql.execute("SELECT number, described FROM entries WHERE key = ?", (key,)).fetchall()
        read = [(number, decode(key, described, None)) for number, described in rows]
        return [Numbered(number, stored, False) for number, stored in read if stored is not None]

    def after(self, identity: int) -> list[tuple[Row | None, float, int]]:
        """Some rows after one, without content: each with `usable_until` and its identity; None: damaged."""
        rows = self._sql.execute(
            "SELECT id, touched, number, usable_until, key, described FROM entries WHERE id > ?"
            " ORDER BY id LIMIT ?",
            (identity, SLICE),
        ).fetchall()
        read = list[tuple[Row | None, float, int]]()
        for each, touched, number, until, key, described in rows:
            stored = decode(key, described, None)
            row = None if stored is None else Row(each, touched, Numbered(number, stored, False))
            read.append((row, until, each))
        return read

    def count(self, selector: Selector, after: int) -> int | None:
        """The responses with at least a number that a selector means; None for one that is not counted."""
        match selector:
            case Everything():
                return int(self._value("SELECT count(*) FROM entries WHERE number >= ?", after))
            case Prefix(names):
                return sum(self._value(_COUNT_PREFIX, after, len(name), name) for name in names)
            case Tags(names, _, b""):
                rows = self._sql.execute(_COUNT_TAGS, (after,))
                return sum(int(count) for tags, count in rows if not names.isdisjoint(netstrings(tags, 0)))
            case Tags(names, _, origin):
                rows = self._sql.execute(_KEYS_OF_TAGS, (after,))
                begin = origin + b" "
                return sum(
                    located(key).startswith(begin) and not names.isdisjoint(netstrings(tags, 0))
                    for key, tags in rows
                )
            case Pattern(_, search):
                keys = self._sql.execute("SELECT key FROM entries WHERE number >= ?", (after,))
                return sum(1 for (key,) in keys if search(url_of(key)))
            case _:
                return None

    def _value(self, statement: str, *values: object) -> int:
        value: int = self._sql.execute(statement, values).fetchone()[0]
        return value

    # Writing, in one transaction each

    def begin(self) -> None:
        """Begin a batch."""
        self._sql.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End a batch."""
        self._sql.execute("COMMIT")

    def roll_back(self) -> None:
        """Drop a batch."""
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

    def put(self, row: Put) -> bool:
        """Write a response, unless a newer one is there; True if one was in its place."""
        there = self._sql.execute("SELECT variant FROM entries WHERE key = ?", (row.key,)).fetchall()
        self._sql.execute(_PUT, row)
        if len(there) >= _MOST_VARIANTS:
            self._sql.execute(
                "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE key = ?"
                " ORDER BY touched DESC, id DESC LIMIT -1 OFFSET ?)",
                (row.key, _MOST_VARIANTS),
            )
        return (row.variant,) in there

    def settle(self, selector: Selector, number: int, now: float) -> None:
        """Carry out a purge of this number on the rows that it names."""
        for key, vary, until in _named(selector):
            rows = self._sql.execute(
                "SELECT id, number, variant, described FROM entries"
                " WHERE key = ? AND number < ? AND response_time <= ?",
                (key, number, until),
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
        self._sql.executemany("DELETE FROM entries WHERE id = ? AND number = ?", dropped)
        for each in lifted:
            self._lift(each)

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
        """Take note that memory has read these rows."""
        self._sql.executemany(
            "UPDATE entries SET touched = ? WHERE id = ?", [(int(now), each) for each in identities]
        )

    @property
    def size(self) -> int:
        """The bytes in use."""
        pages = self._value("PRAGMA page_count") - self._value("PRAGMA freelist_count")
        return pages * self.page

    def evict(self) -> int:
        """Remove some of the rows that were not written or read for the longest time."""
        return self._sql.execute(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY touched, id LIMIT ?)", (SLICE,)
        ).rowcount


_COUNT_PREFIX: Final = """
SELECT count(*) FROM entries WHERE number >= ? AND substr(key, instr(key, x'20') + 1, ?) = ?
"""
_COUNT_TAGS: Final = """
SELECT tags, count(*) FROM entries INDEXED BY tagged WHERE tags <> x'' AND number >= ? GROUP BY tags
"""
_KEYS_OF_TAGS: Final = "SELECT key, tags FROM entries INDEXED BY tagged WHERE tags <> x'' AND number >= ?"


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether an error says that the file is not SQLite's, or not whole."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _place(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _named(selector: Selector) -> list[tuple[bytes, Selecting | None, float]]:
    """The keys that a purge names, each with its selecting header fields and the latest receipt, if named."""
    match selector:
        case Keys(names):
            return [(key, None, inf) for key in names]
        case Variants(names, until):
            return [(key, vary, until) for key, vary in names]
        case _:
            return []


def _digest(key: bytes, described: bytes, seal: bytes) -> bytes:
    return blake2b(netstring(key) + netstring(described) + seal, digest_size=16).digest()


def _sealed(body: bytes) -> bytes:
    """The digest of a content."""
    return blake2b(body, digest_size=16).digest()
