"""A row that was read some time ago gives its response or none, whatever others write into its place."""

import os
import sqlite3
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.file.test_file_store import key, response
from support import open_files, stored_response
from univocal.store.file.content import Content
from univocal.store.file.ring import Ring
from univocal.store.file.rows import Described, EntryTable, Put, Recent, Written

LIMIT = 220 << 10  # of which the database takes some 60 KiB, and its log as much: contents soon make room
LOG = 64 << 10
FSTAT = os.fstat

puts = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(3_000, 30_000), st.booleans()), min_size=1, max_size=4
)
batches = st.lists(
    st.tuples(st.integers(0, 1), puts, st.sampled_from(["ends", "fails", "is killed"])),
    min_size=2,
    max_size=9,
)


class Process:
    """A table with a ring of its own, as each process has them."""

    def __init__(self, directory, limit):
        self.ring = Ring(directory / "journal", 4096, is_durable=False)
        self.table = EntryTable(
            directory / "entries-1.db", is_durable=False, limit=limit, log=LOG, ring=self.ring
        )

    def close(self):
        """Close both, as its end does."""
        self.table.close()
        self.ring.close()


def timeless(file):
    """The status of a file whose time of change says nothing."""
    return os.stat_result(tuple(FSTAT(file))[:10], {"st_ctime_ns": 0})


def room_of(table):
    """The units that rows have and that are free, in order: each is there once."""
    places = [place for (place,) in table._sql.execute("SELECT place FROM entries")]
    extents = [each for place in places for each in struct.iter_unpack("<QQ", place)]
    extents += table._sql.execute("SELECT first, units FROM free").fetchall()
    return [unit for first, units in sorted(extents) for unit in range(first, first + units)]


@pytest.mark.parametrize("times", [1, 16], ids=["in one region", "in several"])
@given(batches)
def test_a_known_row_gives_its_content_or_none(times, batches):
    """Between any two writes of other processes, be they confirmed, dropped or broken off."""
    # No clock helps: the writings' numbers alone tell them.
    with tempfile.TemporaryDirectory() as name, patch.object(os, "fstat", timeless):
        reader, *writers = (Process(Path(name), times * LIMIT) for _ in range(3))
        known = dict[bytes, Described]()

        def look():
            for seal, row in list(known.items()):
                stored = reader.table.whole(row, waits=True)
                if stored is None:
                    del known[seal]
                else:
                    assert Put.of(1, stored, 0.0).seal == seal
            for each in "abcdef":
                known.update((row.seal, row) for row, _ in reader.table.of_key(key(each)))

        for number, batch, end in batches:
            table = writers[number].table
            table.begin()
            table.make_room(0)
            for path, size, evicts in batch:
                if evicts:
                    table.evict(20)
                put = Put.of(1, response(path, os.urandom(times * size)), time.time())
                (written,) = table.put([put])
                look()
                if written is not None and written.known is not None:
                    known[put.seal] = written.known
            if end == "ends":
                table.commit()
                assert room_of(table) == [*range(table._content.units)]
            elif end == "fails":
                table.roll_back()
            else:
                writers[number].close()
                writers[number] = Process(Path(name), times * LIMIT)
            look()
        for each in (reader, *writers):
            each.close()


def test_a_response_evicted_for_its_successor_is_freed_once(tmp_path):
    """The longest unused is evicted, be it the one whose place is being taken."""
    process = Process(tmp_path, LIMIT)
    table = process.table
    for path in 2 * "abcdef":
        table.begin()
        table.make_room(0)
        put = Put.of(1, response(path, os.urandom(20_000)), time.time())
        was_there = bool(table._there({put.key}))
        assert [written and written.replaced for written in table.put([put])] == [was_there]
        table.commit()
        assert room_of(table) == [*range(table._content.units)]
    assert table.evicted
    process.close()


def test_shrinking_cuts_off_nothing_that_another_process_writes(tmp_path):
    """Be that written just when the file is cut: then it waits."""
    writer, shrinking = Process(tmp_path, 40 * LIMIT), Process(tmp_path, 4 * LIMIT)
    writer.table._sql.execute("PRAGMA busy_timeout = 0")
    known, cut = list[Written](), os.ftruncate

    def write(paths):
        writer.table.begin()
        writer.table.make_room(0)
        puts = [Put.of(1, response(path, path.encode() * 30_000), time.time()) for path in paths]
        known.extend(writer.table.put(puts))

    def cutting(file, length):
        with suppress(sqlite3.OperationalError):  # it is locked
            if not known:
                write("ghi")
        cut(file, length)
        if writer.table._sql.in_transaction:
            writer.table.commit()

    for path in 10 * "abcdef":
        write([path + str(len(known))])
        writer.table.commit()
    known.clear()
    with patch.object(os, "ftruncate", cutting):
        shrinking.table.shrink()
    write("jkl")
    writer.table.commit()
    for each in known:
        stored = writer.table.whole(each.known, waits=True)
        assert stored.body == each.known.stored.key[-1:] * 30_000
    for each in (writer, shrinking):
        each.close()


@pytest.mark.pure("a method is replaced")
def test_shrinking_looks_at_each_row_twice_at_most(tmp_path, monkeypatch):
    """Before it cuts the file, and as it does."""
    writer, shrinking = Process(tmp_path, 100 * LIMIT), Process(tmp_path, 24 * LIMIT)
    number, looked, is_beyond = 2_000, [], Content.is_beyond
    for at in range(0, number, 40):  # the rows of 100 fill the log's 16 pages, or need one more
        writer.table.begin()
        writer.table.make_room(0)
        puts = [Put.of(1, response(str(at + each), bytes(4_000)), time.time()) for each in range(40)]
        assert all(writer.table.put(puts))
        writer.table.commit()
    monkeypatch.setattr(Content, "is_beyond", lambda *place: looked.append(place) or is_beyond(*place))
    shrinking.table.shrink()
    left = shrinking.table.holding()[0]
    assert number // 4 < left < number // 4 * 3
    assert len(looked) <= number + left
    for each in (writer, shrinking):
        each.close()


@pytest.mark.pure("a method is replaced")
def test_a_table_that_cannot_be_opened_leaves_no_file_open(tmp_path):
    def fails(_):
        raise sqlite3.OperationalError("database is locked")

    EntryTable(tmp_path / "entries-1.db").close()
    before = open_files()
    with patch.object(EntryTable, "_note_size", fails):
        for _ in range(3):
            with pytest.raises(sqlite3.OperationalError):
                EntryTable(tmp_path / "entries-1.db")
    assert open_files() <= before


@pytest.fixture
def row():
    stored = stored_response()
    return Described(1, 0, 7, stored, b"", len(stored.body), b"")


def test_a_row_is_known_for_a_minute(row):
    recent = Recent()
    recent.put(b"a", [row], 0.0)
    assert recent.get(b"a", 60.0) == [row]
    assert recent.get(b"a", 60.1) is None
    assert recent.get(b"a", 0.0) is None


def test_the_rows_that_were_read_first_give_way(row):
    recent = Recent(limit=10_000)
    for number in range(100):
        recent.put(b"%d" % number, [row], 0.0)
    known = [number for number in range(100) if recent.get(b"%d" % number, 0.0)]
    assert known == list(range(known[0], 100))
    assert 0 < known[0] < 99
