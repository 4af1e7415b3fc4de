"""A store in a directory: shared by processes, warm after their end, whole or gone, bounded, and locked."""

import asyncio
import errno
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
import pytest

from support import eventually, idle, stored_response
from univocal import CacheMiddleware
from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, RefusedError
from univocal.http.messages import Received, Request
from univocal.judge.admission import Gate, plan_of
from univocal.judge.hits import Hit, Hits
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.store import roles
from univocal.store.address import file_tier
from univocal.store.codec import encode, encode_purge
from univocal.store.file import rows as rows_module
from univocal.store.file.content import Content
from univocal.store.file.directory import Directory, new_in_memory
from univocal.store.file.entries import FileEntries, _Work
from univocal.store.file.ring import FilePurges
from univocal.store.file.rows import EntryTable, Put, Written, sizes_of
from univocal.store.leases import FetchLease, Numbered
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags, Variants
from univocal.store.roles import EVERY, STEADY, StoreUnavailableError
from univocal.store.shared import SharedTier

T = TypeVar("T")

REQUEST = Request(b"GET", b"/", [])
# Seconds: more than a busy machine takes, and less than a tier waits for another's fetch that is `PATIENT`.
LATE, PATIENT = 30, 300.0
Open = Callable[..., Awaitable[SharedTier]]


def key(path):
    return b"0123456789abcdef http en.example /" + path.encode()


def response(path, body=b"content", tags=b"t", age=0.0):
    return stored_response((b"xkey", tags), name=key(path), body=body, at=time.time() - age)


@pytest.fixture
async def opened(tmp_path):
    tiers = list[SharedTier]()

    async def go(disk_bytes=64 << 20, patience=5.0, name="store", max_bytes=256 << 20):
        memory = MemoryStore(max_bytes, is_part=True)
        tier = file_tier(tmp_path / name, memory, time.time, disk_bytes)
        tier._patience = patience
        await tier.start()
        tiers.append(tier)
        return tier

    yield go
    for tier in tiers:
        if tier.connected:
            await tier.aclose()


async def store(tier, *responses):
    ends = list[tuple[Any, asyncio.Future[None]]]()
    for stored in responses:
        lease = tier.begin(stored.key, time.time())
        tier.commit(lease, stored)
        ended = asyncio.get_running_loop().create_future()
        tier.end(lease, lambda ended=ended: ended.set_result(None))
        ends.append((lease, ended))
    for lease, ended in ends:
        await ended
        tier.memory.leases.release(lease)


async def served(tier, path, *, joined=False):
    """The contents that a node serves: from its memory, or from the store."""
    held = tier.lookup(key(path), time.time())
    if held:
        return [one.body for one in held]
    found = list[bytes]()

    def judge(servable, askable):
        found[:] = [one.body for one in servable]
        return bool(found)

    lease = tier.begin(key(path), time.time())
    done = asyncio.get_running_loop().create_future()
    tier.fill(lease, REQUEST, judge, done.set_result, joined=joined)
    await done
    tier.end(lease, lambda: None)
    tier.memory.leases.release(lease)
    return found


def write(tier, stored):
    """Store a response as another process does, at once."""
    entries = tier._entries
    with closing(entries._opened(entries.directory.ring.generation)) as table:
        table.begin()
        table.make_room(0)
        table.put([Put.of(entries.directory.ring.last, stored, time.time())])
        table.commit()


@pytest.mark.pure("methods are replaced")
@pytest.mark.parametrize("behind", ["a glance", "a look up", "a wait"])
async def test_a_response_stored_before_a_lock_is_free_is_found(opened, monkeypatch, behind):
    """Between what a request reads and the lock that it takes for its fetch."""
    first, second = await opened(), await opened()
    await eventually(lambda: second._entries.glance(key("other"), time.time()) is not None)
    entries, locks = second._entries, first._entries.directory.fetch_locks
    glance, lookup, holder = entries.glance, entries.lookup, entries.directory.fetch_locks.holder
    done = []

    def end_fetch():
        if not done:
            write(first, response("a"))
            done.append(locks.give(key("a")))

    def glanced(*arguments, **named):
        found = glance(*arguments, **named)
        end_fetch()
        return found

    async def looked_up(*arguments):
        found = await lookup(*arguments)
        end_fetch()
        return found

    holders = []

    def held(name):
        holders.append(name)
        if len(holders) > 1:
            end_fetch()
        return holder(name)

    assert locks.take(key("a"))
    if behind == "a glance":
        monkeypatch.setattr(entries, "glance", glanced)
    elif behind == "a look up":
        monkeypatch.setattr(entries, "glance", lambda *_, **__: None)
        monkeypatch.setattr(entries, "lookup", looked_up)
    else:
        monkeypatch.setattr(entries.directory.fetch_locks, "holder", held)
    assert await served(second, "a", joined=True) == [b"content"]
    assert done


async def test_only_if_cached_finds_what_another_process_has_stored(opened):
    async def page(scope, receive, send):
        fields = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"content"})

    first, second = [httpx.ASGITransport(CacheMiddleware(page, store=await opened())) for _ in range(2)]
    async with httpx.AsyncClient(transport=first) as one, httpx.AsyncClient(transport=second) as other:
        await one.get("http://a.example/")
        asked, late = {"Cache-Control": "only-if-cached"}, time.monotonic() + LATE
        while (answer := await other.get("http://a.example/", headers=asked)).status_code != 200:
            assert time.monotonic() < late
            await asyncio.sleep(0.01)
        assert answer.text == "content"
        assert (await other.get("http://a.example/none", headers=asked)).status_code == 504


# Each means the response at "a".
SELECTORS = [
    Keys(frozenset((key("a"),))),
    Tags(frozenset((b"t",))),
    Prefix(frozenset((b"http en.",))),
    Everything(),
]


@pytest.mark.parametrize("selector", SELECTORS)
async def test_a_purge_is_in_force_in_all_processes_at_once(opened, selector):
    first, second = await opened(), await opened()
    await store(first, response("a"))
    assert await served(second, "a") == [b"content"]
    assert await first.purge(selector, time.time()) == 1
    assert second.lookup(key("a"), time.time()) == ()
    assert await served(second, "a") == []
    assert await second.purge(selector, time.time()) == 0


async def test_a_purge_too_long_for_the_journal_is_published(opened):
    tier = await opened(4 << 20)
    await store(tier, response("a"))
    for long in (b"x" * 2_000, b"x" * 100_000):
        keys = Keys(frozenset((key("a"), *(key(f"{number}") + long for number in range(64)))))
        assert await tier.purge(keys, time.time()) == (1 if len(long) < 10_000 else 0)
        assert not await served(tier, "a")


@pytest.mark.parametrize("soft", [False, True])
async def test_a_purge_of_one_variant_leaves_the_others(opened, soft):
    first, second = await opened(), await opened()
    german, french = [
        stored_response(
            (b"vary", b"accept-language"), name=key("a"), request=[field], body=body, at=time.time()
        )
        for body in (b"de", b"fr")
        for field in [(b"accept-language", body)]
    ]
    await store(first, german, french)
    purge = Variants(frozenset(((german.key, german.vary),)), time.time(), soft=soft)
    assert await first.purge(purge, time.time()) >= 1
    assert sorted(await served(second, "a")) == ([b"de", b"fr"] if soft else [b"fr"])
    fresh = {one.body for one in second.lookup(key("a"), time.time()) if one.fresh_until > time.time()}
    assert fresh == {b"fr"}


async def test_responses_fetched_before_a_purge_elsewhere_are_not_stored(opened):
    first, second = await opened(), await opened()
    lease = first.begin(key("a"), time.time())
    await second.purge(Tags(frozenset((b"t",))), time.time())
    assert not first.commit(lease, response("a"))
    first.end(lease, lambda: None)
    assert await served(second, "a") == []


async def test_a_replaced_response_is_served_by_no_process(opened):
    first, second = await opened(), await opened()
    await store(first, response("a", b"old", age=1))
    assert await served(second, "a") == [b"old"]
    await store(first, response("a", b"new"))
    await asyncio.sleep(0.05)
    assert await served(second, "a") == [b"new"]
    assert await served(first, "a") == [b"new"]


async def test_a_store_is_warm_when_it_is_opened_again(opened):
    first = await opened()
    await store(first, *(response(str(number)) for number in range(500)))
    await first.purge(Keys(frozenset((key("7"),))), time.time())
    again = await opened()
    assert await served(again, "499") == [b"content"]
    assert await served(again, "7") == []
    assert await again.count(Tags(frozenset((b"t",)))) == 499


WRITER = """
import asyncio, sys, time
sys.path[:0] = {path!r}
from store.file.test_file_store import *
async def main():
    tier = file_tier(Path({directory!r}), MemoryStore(), time.time)
    await tier.start()
    await store(tier, response("purged"))
    for number in range(100_000):
        await store(tier, response(str(number), b"%d" % number * 1000))
        if number == 50:
            await tier.purge(Keys(frozenset((key("purged"),))), time.time())
            print("ready", flush=True)
asyncio.run(main())
"""


@pytest.fixture
def writing(tmp_path):
    """Another process that has stored 51 responses, and goes on."""
    program = WRITER.format(path=sys.path, directory=str(tmp_path / "store"))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


async def test_entries_and_purges_of_a_killed_process_survive(opened, writing):
    await asyncio.sleep(0.2)
    writing.kill()
    writing.wait()
    tier = await opened()
    assert await served(tier, "purged") == []
    for number in range(51):
        assert await served(tier, str(number)) == [b"%d" % number * 1000]


async def test_a_process_that_stands_still_delays_nobody_for_long(opened, writing):
    tier = await opened()
    writing.send_signal(signal.SIGSTOP)
    assert await served(tier, "3") == [b"3" * 1000]
    await asyncio.wait_for(tier.purge(Keys(frozenset((key("3"),))), time.time()), LATE)
    assert await served(tier, "3") == []


async def test_a_store_is_opened_while_another_process_writes(opened, tmp_path):
    await store(await opened(), response("a"))
    with rows(tmp_path / "store") as sql:
        sql.execute("BEGIN IMMEDIATE")
        unasked = await opened()
        assert await served(await opened(), "a") == [b"content"]
        await eventually(lambda: unasked.glance(key("a"), time.time()))


IMPORTS = """
import multiprocessing, os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from univocal.store.address import file_tier
from univocal.store.memory import MemoryStore
"""
OPENS = IMPORTS + "file_tier(Path({directory!r}), MemoryStore(), time.time)"
# Each runs a program: in a session of its own, beside the first as one shell starts it, or in a container.
SURROUNDINGS = {
    "another session": ([], True),
    "the same process group": ([], False),
    "another container": (["unshare", "--pid", "--fork", "--mount-proc"], False),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
async def test_a_second_program_is_refused(opened, tmp_path, surroundings):
    await opened()
    before, own_session = SURROUNDINGS[surroundings]
    if before and subprocess.run([*before, "true"], capture_output=True, check=False).returncode:  # noqa: ASYNC221
        pytest.skip("a container needs root")
    ended = subprocess.run(  # noqa: ASYNC221
        [*before, sys.executable, "-c", OPENS.format(path=sys.path, directory=str(tmp_path / "store"))],
        capture_output=True,
        text=True,
        start_new_session=own_session,
        check=False,
        timeout=60,
    )
    assert "a directory that no other program uses" in ended.stderr
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


CHILDREN = (
    IMPORTS
    + """
def open_it(directory):
    file_tier(Path(directory), MemoryStore(), time.time)
    os._exit(7)
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    if {first!r} == "parent":
        held = file_tier(Path({directory!r}), MemoryStore(), time.time)
    made = [context.Process(target=open_it, args=({directory!r},)) for _ in range(2)]
    for each in made: each.start()
    for each in made: each.join()
    print([each.exitcode for each in made])
"""
)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("first", ["parent", "child"])
def test_processes_that_share_work_share_a_directory(tmp_path, method, first):
    file = tmp_path / "program.py"
    directory = str(tmp_path / "store")
    file.write_text(CHILDREN.format(path=sys.path, directory=directory, method=method, first=first))
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout == "[7, 7]\n", ended.stderr


FORKED = (
    IMPORTS
    + """
import asyncio
from univocal.store.purge_selectors import Keys
async def work(tier, name):
    await tier.start()
    locks = tier._entries.directory.fetch_locks
    numbers = [await tier._purges.publish(Keys(frozenset((b"a",))), 1.0) for _ in range(200)]
    print(name, locks.take(b"key"), *numbers, flush=True)
    sys.stdin.read()
    await tier.aclose()
if __name__ == "__main__":
    tier = file_tier(Path({directory!r}), MemoryStore(), time.time)
    if os.fork():
        name = "one" if os.fork() else "other"
        if name == "one":
            os.wait(), os.wait()
            os._exit(0)
    else:
        name = "one"
    asyncio.run(work(tier, name))
"""
)


def test_processes_forked_behind_a_store_share_no_lock(tmp_path):
    """A server forks in this way if it loads the application first."""
    file = tmp_path / "program.py"
    file.write_text(FORKED.format(path=sys.path, directory=str(tmp_path / "store")))
    command = [sys.executable, file]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        told = [process.stdout.readline().split() for _ in range(2)]
        process.stdin.close()
    assert {name for name, *_ in told} == {"one", "other"}
    assert {is_taken for _, is_taken, *_ in told} == {"True", "False"}
    numbers = [number for _, _, *each in told for number in each]
    assert len(numbers) == len(set(numbers)) == 400


def test_threads_that_list_a_directory_all_see_all_of_it(tmp_path):
    directory = Directory(tmp_path / "store", is_durable=False)
    for number in range(300):
        (tmp_path / "store" / f"beside-{number}").write_bytes(b"content")
    expected = directory.other_bytes
    with ThreadPoolExecutor(4) as threads:
        found = {*threads.map(lambda _: directory.other_bytes, range(200))}
    directory.close()
    assert found == {expected}


def test_a_link_to_a_directory_is_refused(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    if os.geteuid():
        pytest.skip("who is not root may be directed by root")
    with pytest.raises(ConfigurationError, match="it is a link"):
        file_tier(tmp_path / "link", MemoryStore(), time.time)
    assert not [*(tmp_path / "there").iterdir()]


@pytest.mark.parametrize("whose", ["store", ""])
def test_a_directory_of_another_user_is_refused(tmp_path, whose):
    if os.geteuid():
        pytest.skip("who is not root cannot give a directory away")
    (tmp_path / "home" / "store").mkdir(parents=True)
    os.chown(tmp_path / "home" / whose, 1000, 1000)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        file_tier(tmp_path / "home" / "store", MemoryStore(), time.time)
    assert not [*(tmp_path / "home" / "store").iterdir()]


@pytest.mark.parametrize(("mode", "is_mount", "taken"), [(0o777, 0, 0), (0o1777, 0, 1), (0o777, 1, 1)])
def test_a_directory_that_others_may_exchange_is_refused(tmp_path, monkeypatch, mode, is_mount, taken):
    """Kubernetes' emptyDir, which all may write to, is a mount: who may is whoever it is given to."""
    if os.geteuid():
        pytest.skip("who is not root writes what is this user's alone")
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(mode)
    monkeypatch.setattr(os.path, "ismount", lambda path: bool(is_mount) and Path(path).name == "all")
    with nullcontext() if taken else pytest.raises(PermissionError, match="all may exchange what is in"):
        Directory(tmp_path / "all" / "store").close()


@pytest.mark.parametrize("name", ["lock", "journal", "turns"])
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_file_that_is_a_link_is_refused(tmp_path, name, kind):
    (tmp_path / "store").mkdir()
    (tmp_path / "other").write_bytes(b"another program's")
    if kind == "hard":
        (tmp_path / "store" / name).hardlink_to(tmp_path / "other")
    else:
        (tmp_path / "store" / name).symlink_to(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="can be written"):
        file_tier(tmp_path / "store", MemoryStore(), time.time)
    assert (tmp_path / "other").read_bytes() == b"another program's"


def remove(directory):
    """Remove a directory in which a writing thread may make a file meanwhile."""
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)


async def test_a_later_process_does_not_make_a_removed_directory_anew(tmp_path, caplog):
    """One directory for the life of the program: another's purges would not be heard."""
    path = tmp_path / "store"
    first = file_tier(path, MemoryStore(), time.time, program=(b"p", True))
    await first.start()
    remove(path)
    later = [file_tier(path, MemoryStore(), time.time, program=(b"p", False))]
    other = file_tier(path, MemoryStore(), time.time, program=(b"q", True))
    later.append(file_tier(path, MemoryStore(), time.time, program=(b"p", False)))
    for tier in [first, *later]:
        await tier.start(0.1)
        with pytest.raises(RefusedError):
            await tier.purge(Everything(), time.time())
        assert not tier.connected or tier is first
    await other.start()
    assert await other.purge(Everything(), time.time()) == 0
    for tier in [first, *later, other]:
        await tier.aclose()
    assert "the writing thread ended" not in caplog.text


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="can be written"):
        file_tier(tmp_path / "file" / "store", MemoryStore(), time.time)


def rows(directory):
    (file,) = directory.glob("entries-*.db")
    return closing(sqlite3.connect(file, isolation_level=None))


async def test_a_row_that_is_not_whole_is_gone(opened, tmp_path):
    tier = await opened()
    await store(tier, response("a"), response("b"))
    with rows(tmp_path / "store") as sql:
        sql.execute("UPDATE entries SET body = x'00' WHERE key = ?", (key("a"),))
    other = await opened()
    assert await served(other, "a") == []
    assert await served(other, "b") == [b"content"]


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [(b"", b"damaged" * 4096), (b"entries", b"\x84ntries"), (b"CREATE", b"CR\x84ATE")],
    ids=["all of it", "a table's name", "a table's definition"],
)
async def test_a_damaged_file_is_put_aside_and_begun_anew(opened, tmp_path, caplog, whole, damaged):
    tier = await opened()
    await store(tier, response("a"))
    await tier.aclose()
    (file,) = (tmp_path / "store").glob("entries-*.db")
    file.write_bytes(file.read_bytes().replace(whole, damaged) if whole else damaged)
    again = await opened()
    assert await served(again, "a") == []
    await store(again, response("b"))
    assert "moved to damaged.db" in caplog.text
    assert (tmp_path / "store" / "damaged.db").exists()
    assert await served(await opened(), "b") == [b"content"]


@pytest.mark.parametrize(("found", "kept"), [(0, False), (3 << 19, False), (1 << 19, True)])
async def test_a_large_damaged_file_takes_no_room_of_responses(opened, tmp_path, caplog, found, kept):
    """The file was found at the start, or put aside now."""
    (aside := tmp_path / "store" / "damaged.db").parent.mkdir(0o700)
    if found:
        aside.write_bytes(bytes(found))
    tier = await opened(disk_bytes=4 << 20, max_bytes=1 << 20)
    if not found:
        await store(tier, *(response(str(number), bytes(1_900)) for number in range(1_250)))
        await tier.aclose()
        (file,) = (tmp_path / "store").glob("entries-*.db")
        with file.open("r+b") as damaged:
            damaged.write(bytes(1_000))
        tier = await opened(disk_bytes=4 << 20, max_bytes=1 << 20)
    for _ in range(3):
        await store(tier, *(response(f"{number}a", bytes(9_000)) for number in range(100)))
    assert (await tier.holding()).responses > 75
    assert "nothing more is stored" not in caplog.text
    assert ("have no room for it" in caplog.text, aside.exists()) == (not kept, kept)


@pytest.mark.parametrize("size", [0, 4_000])
async def test_a_database_cut_while_two_write_is_begun_anew(opened, tmp_path, caplog, size):
    """Though its log and the connections' caches still have what was there."""
    tiers = [await opened() for _ in range(2)]
    for number in range(40):
        await store(tiers[number % 2], response(str(number)))
    (file,) = (tmp_path / "store").glob("entries-*.db")
    os.truncate(file, size)
    for tier in tiers:
        await store(tier, response("last"))
    assert caplog.text.count("(its file was cut short): moved to damaged.db") == 1
    assert await served(await opened(), "last") == [b"content"]


async def test_a_database_emptied_after_a_write_elsewhere_is_begun_anew(opened, tmp_path, caplog):
    """No connection has cached the page that tells how long the file should be."""
    tier = await opened()
    await store(tier, *(response(str(number)) for number in range(40)))
    assert await served(tier, "none") == []
    with rows(tmp_path / "store") as sql:
        sql.execute("UPDATE entries SET touched = touched + 1")
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (file,) = (tmp_path / "store").glob("entries-*.db")
    os.truncate(file, 0)
    for name in ("first", "last"):
        await store(tier, response(name))
    assert caplog.text.count("moved to damaged.db") == 1
    assert await served(await opened(), "last") == [b"content"]


@pytest.mark.pure("a method is replaced")
async def test_a_damaged_database_is_put_aside_as_soon_as_possible(opened, tmp_path, caplog, monkeypatch):
    """A process that stands still may hold the journal for some seconds."""
    tier = await opened()
    await store(tier, *(response(str(number)) for number in range(40)))
    assert await served(tier, "none") == []
    with rows(tmp_path / "store") as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (file,) = (tmp_path / "store").glob("entries-*.db")
    os.truncate(file, 100)
    with monkeypatch.context() as patched:
        patched.setattr(Directory, "put_aside", failing(errno.EAGAIN))
        await store(tier, response("first"))
        assert await served(tier, "none") == []
    assert "cannot be moved away" in caplog.text
    await store(tier, response("last"))
    assert caplog.text.count("moved to damaged.db") == 1
    assert await served(await opened(), "last") == [b"content"]


async def test_room_that_a_process_gives_back_is_no_damage(opened, tmp_path, caplog):
    tiers = [await opened(disk_bytes=4 << 20) for _ in range(2)]
    for number in range(200):
        await store(tiers[number % 2], response(str(number), bytes(1_900)))
    with rows(tmp_path / "store") as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await store(tiers[0], response("a"))
    (file,) = (tmp_path / "store").glob("entries-*.db")
    with rows(tmp_path / "store") as sql, closing(EntryTable(file)) as table:
        sql.execute("DELETE FROM entries WHERE id % 2")
        before = file.stat().st_size
        table._vacuum()
        table.checkpoint()
        assert file.stat().st_size < before
    for tier in tiers:
        await store(tier, response("a"))
        assert await served(await opened(), "a") == [b"content"]
    assert not caplog.text


async def test_a_log_cut_while_two_write_is_begun_anew(opened, tmp_path, caplog):
    tiers = [await opened() for _ in range(2)]
    for number in range(40):
        await store(tiers[number % 2], response(str(number), bytes(9000)))
    (log,) = (tmp_path / "store").glob("*-wal")
    os.truncate(log, 33)
    for number in range(40, 80):
        await store(tiers[number % 2], response(str(number)))
    assert "moved to damaged.db" in caplog.text
    assert await served(await opened(), "79") == [b"content"]


async def test_a_store_stays_within_its_bytes_and_keeps_used_entries(opened, tmp_path):
    tier = await opened(disk_bytes=2 << 20)
    for number in range(60):
        await store(tier, response(str(number), bytes(100_000)))
    assert sum(file.stat().st_size for file in (tmp_path / "store").glob("*.db")) < 4 << 20
    holding = await tier.holding()
    assert 0 < holding.bytes <= holding.max_bytes == 2 << 20
    assert tier.evictions > 0
    assert holding.responses + tier.evictions == 60
    other = await opened()
    assert await served(other, "59") != []
    assert await served(other, "0") == []


async def test_evictions_are_counted_before_anybody_hears_of_a_batch(opened, monkeypatch):
    tier, loop, told = await opened(disk_bytes=2 << 20), asyncio.get_running_loop(), list[int]()
    real = loop.call_soon_threadsafe

    def tells(*arguments, **options):
        if threading.current_thread().name == "univocal-writer":
            told.append(tier.evictions)
        return real(*arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", tells)
    for number in range(40):
        await store(tier, response(str(number), bytes(100_000)))
        holding = await tier.holding()
        assert holding.responses + told[-1] == number + 1
    assert tier.evictions > 0


def sizes_in(directory):
    sizes = dict[str, tuple[int, int]]()
    for name in os.listdir(directory):
        with suppress(FileNotFoundError):
            status = os.stat(directory / name)
            sizes[name] = status.st_size, status.st_ctime_ns
    return sizes


def bytes_in(directory):
    """The bytes in a directory, once no file changes between two looks."""
    before, sizes = {}, sizes_in(directory)
    while sizes != before:
        before, sizes = sizes, sizes_in(directory)
    return sum(size for size, _ in sizes.values())


class Watched:
    """The most bytes that a directory had, as a thread saw it again and again."""

    def __init__(self, path):
        self.path, self.most, self.ends = path, 0, False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.ends:
            self.most = max(self.most, bytes_in(self.path))
            time.sleep(0.001)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()


RANDOM = os.urandom(1 << 20)


def incompressible(size):
    start = random.randrange(len(RANDOM) - size)
    return RANDOM[start : start + size]


SIZES = {"small": [300], "large": [100_000], "mixed": [700, 20_000, 1_500, 3_000, 250_000, 9_000]}


# Small responses do not fill 32 MiB: more of them would say no more than those in the least.
@pytest.mark.long
@pytest.mark.parametrize(
    ("mebibytes", "sizes"), [(4, "small"), (8, "large"), (8, "mixed"), (32, "large"), (32, "mixed")]
)
async def test_disk_bytes_bound_all_that_is_in_the_directory(opened, tmp_path, sizes, mebibytes):
    """While two processes fill it with 1.5 times as much, purge, replace, and once it is to have less."""
    bound, least = mebibytes << 20, 4 << 20
    first, second = await opened(disk_bytes=bound), await opened(disk_bytes=bound)
    stored, number = 0, 0
    with Watched(tmp_path / "store") as watched:
        while stored < 1.5 * bound and number < 4_800:
            some = [
                response(f"{number + each}", incompressible(SIZES[sizes][each % len(SIZES[sizes])]))
                for each in range(48)
            ]
            await asyncio.gather(store(first, *some[:24]), store(second, *some[24:]))
            stored, number = stored + sum(len(one.body) for one in some), number + len(some)
            if number % 480 == 0:
                await first.purge(Keys(frozenset((some[0].key,))), time.time())
                await store(second, response(f"{number - 5}", os.urandom(2_100)))
        await store(first, some[-1])
    assert watched.most <= bound
    third = await opened(disk_bytes=bound)
    assert await served(third, str(number - 1)) != []
    for tier in (first, second, third):
        await tier.aclose()
    again = await opened(disk_bytes=least)
    await eventually(lambda: bytes_in(tmp_path / "store") <= least)
    for each in reversed(range(number)):
        if left := await served(again, str(each)):
            break
    assert left
    with Watched(tmp_path / "store") as watched:
        for some in range(10):
            await store(
                again, *(response(f"new{20 * some + each}", os.urandom(20_000)) for each in range(20))
            )
        await store(again, response("new199", os.urandom(20_000)))
    assert watched.most <= least
    assert await served(await opened(disk_bytes=least), "new199") != []


@pytest.mark.pure("a method is replaced")
async def test_content_without_room_is_stored_by_the_next_batch(opened, monkeypatch, caplog):
    """The database has the room, and gives some back in between; what finds none then is told."""
    tier, take, failures = await opened(), Content.take, list[int]()

    def finds_none(self, length):
        if length == 30_000 or not failures:
            failures.append(1)
            return None
        return take(self, length)

    monkeypatch.setattr(Content, "take", finds_none)
    await store(tier, response("later", b"l" * 20_000))
    assert failures
    assert not caplog.text
    assert await served(await opened(), "later") == [b"l" * 20_000]
    await store(tier, response("never", b"n" * 30_000))
    assert "cannot be written" in caplog.text
    assert await served(await opened(), "never") == []


@pytest.mark.pure("a method is replaced")
async def test_a_disk_that_stays_full_is_logged_once(opened, monkeypatch, caplog):
    """Each response is tried twice, and the first try has stored nothing."""
    tier, now = await opened(), 0.0
    monkeypatch.setattr(tier._entries._refusals, "_clock", lambda: now)
    monkeypatch.setattr(Content, "write", failing(errno.ENOSPC))
    for number in range(4):
        now += 2 * STEADY
        await store(tier, response(str(number), bytes(9_000)))
    assert caplog.text.count("cannot be written") == 1
    assert "can be written again" not in caplog.text


async def test_a_content_that_is_not_whole_is_gone(opened, tmp_path):
    tier = await opened()
    bodies = {name: os.urandom(20_000) for name in "abc"}
    await store(tier, *(response(name, body) for name, body in bodies.items()))
    (file,) = (tmp_path / "store").glob("*.content")
    octets = bytearray(file.read_bytes())
    octets[octets.index(bodies["a"]) + 10_000] ^= 1
    del octets[octets.index(bodies["c"]) + 19_000 :]
    file.write_bytes(octets)
    other = await opened()
    assert await served(other, "a") == await served(other, "c") == []
    assert await served(other, "b") == [bodies["b"]]
    await store(tier, response("a", b"new" * 10_000), response("c", b"newer" * 10_000))
    other = await opened()
    assert [await served(other, name) for name in "ac"] == [[b"new" * 10_000], [b"newer" * 10_000]]


async def warm(tier):
    """Give the event loop a connection of its own to the database, as after a first read."""
    entries = tier._entries
    async with asyncio.timeout(LATE):
        while entries._at_hand is None and entries._offered is None:
            await entries.lookup(b"another", time.time())
    # Behind the write of its start: a fetch during which any process commits looks again, and waits.
    await entries._write(lambda _: None)


@pytest.fixture
def no_disk_is_slow(monkeypatch):
    """However long a read takes, the next ones are tried within the call."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(resource, "getrusage", lambda _: usage)


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_response_on_disk_is_a_hit_within_the_call(opened):
    """It says that it was not in memory, where it is from then on; a purged one is none."""
    first, second = await opened(), await opened()
    hits = Hits(Gate(Runtime.everywhere(builtin_profiles()["asgi"], Rules()), second))
    plan, received = plan_of((b"host",)), Received(b"GET", b"/a", b"http", None)
    assert plan is not None

    def hit():
        found = hits.find(received, plan, [b"en.example"], time.time())
        return (found.stored.body, found.hit_fields.handling.detail) if isinstance(found, Hit) else None

    await warm(second)
    assert hit() is None
    named = hits._gate.admit(received, [(b"host", b"en.example")], time.time()).canonical
    body = os.urandom(20_000)
    await store(first, replace(response("a", body), key=named.key))
    assert await eventually(hit) == (body, "shared")
    assert hit() == (body, "")
    await first.purge(Keys(frozenset((named.key,))), time.time())
    assert hit() is None


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_full_memory_takes_in_only_what_comes_back_soon(opened):
    """Responses that are read once displace none that are hit."""
    first, second = await opened(), await opened(max_bytes=100_000)
    await store(first, *(response(str(number), os.urandom(20_000)) for number in range(20)))
    await warm(second)
    lately = [str(number) for number in range(20)]

    async def in_memory(*names):
        for name in names:
            assert await eventually(lambda name=name: second.glance(key(name), time.time()))
        return [name for name in lately if second.memory.lookup(key(name))]

    assert await in_memory(*lately) == lately[:4]
    assert "9" not in await in_memory("9")  # more than memory holds were read since
    assert "9" in await in_memory("9")
    await first.purge(Keys(frozenset((key("8"), key("9")))), time.time())
    assert second.glance(key("8"), time.time()) == second.glance(key("9"), time.time()) == []


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_miss_asks_the_database_once(opened):
    """The fetch that follows a glance goes by what it found; a later one looks again."""
    first, tier = await opened(), await opened()
    await warm(tier)
    await served(tier, "other")
    entries, statements = tier._entries, list[str]()
    entries._at_hand._sql.set_trace_callback(statements.append)

    async def fetches():
        statements.clear()
        return not tier.glance(key("a"), time.time()) and not await served(tier, "a")

    async with asyncio.timeout(LATE):  # a slow machine takes more than a moment
        while not await fetches() or len(statements) != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)  # so that the time above can end
    await store(first, response("a"))
    assert await eventually(lambda: tier._entries.glance(key("a"), time.time()))
    assert await served(tier, "a") == [b"content"]


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_known_row_is_served_without_the_database(opened, tmp_path):
    """Until this process stores another, its content is changed by any hand, or the journal has forgotten."""
    first, second = [await opened(disk_bytes=2 << 20) for _ in range(2)]
    entries, bodies = second._entries, {name: os.urandom(20_000) for name in "abcd"}
    assert isinstance(entries, FileEntries)
    await store(first, *(response(name, body, age=9.0) for name, body in bodies.items()))
    await warm(second)

    def at_hand(name):
        second.memory.purge(Everything(), time.time())
        return [one.body for one in second.glance(key(name), time.time())]

    async def is_at_hand(name, body):
        assert await eventually(lambda: at_hand(name)) == [body]

    for name, body in bodies.items():
        await is_at_hand(name, body)
    statements = list[str]()
    entries._at_hand._sql.set_trace_callback(statements.append)
    assert [at_hand(name) for name in bodies] == [[body] for body in bodies.values()]
    assert not statements
    await store(second, response("a", b"new"))
    await is_at_hand("a", b"new")
    (file,) = (tmp_path / "store").glob("entries-*.content")
    with file.open("r+b") as content:
        content.seek(file.read_bytes().index(bodies["b"]) + 9_000)
        content.write(b"other")
    assert at_hand("b") == []
    assert statements
    await first.purge(Keys(frozenset((key("c"),))), time.time())
    purged = first._followed
    others = frozenset(key(f"other/{number}") for number in range(200))
    while first._entries.directory.ring.first < purged:
        await first.purge(Keys(others), time.time())
    assert at_hand("c") == []
    await is_at_hand("d", bodies["d"])


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_own_stored_responses_are_served_without_the_database(opened, monkeypatch):
    """Nor is its content looked at: this process has written it. Many are written by few calls."""
    writes, pwritev = list[int](), os.pwritev
    tier, bodies = await opened(), {f"{number}": os.urandom(20_000) for number in range(60)}
    await warm(tier)
    await store(tier, response("0"))
    assert await eventually(lambda: tier._entries.glance(key("0"), time.time()))

    def counted(file, pieces, at):
        writes.append(len(pieces))
        return pwritev(file, pieces, at)

    monkeypatch.setattr(os, "pwritev", counted)
    entries, statements = tier._entries, list[str]()
    with entries._news:  # so that all wait for the writing thread, however fast that is
        storing = [asyncio.ensure_future(store(tier, response(name, body))) for name, body in bodies.items()]
        await idle()
    await asyncio.gather(*storing)
    assert len(writes) < len(bodies) / 3
    entries._at_hand._sql.set_trace_callback(statements.append)
    read = {
        name: [row.stored.body for row in entries.glance(key(name), time.time()) or ()] for name in bodies
    }
    assert read == {name: [body] for name, body in bodies.items()}
    assert not statements


async def test_a_row_of_a_file_put_aside_is_not_known(opened):
    """Its place may be another response's in the next file."""
    tier = await opened()
    entries, done = tier._entries, asyncio.get_running_loop().create_future()
    ring, lease, one = entries.directory.ring, FetchLease(key("a"), b"token"), response("a", bytes(20_000))
    with entries._news:  # so that both are of one batch
        put = partial(entries._put_of, lease, 0, one, time.time())
        entries._enqueue(_Work(put, 20_000, done, growth=4_000))
        entries._enqueue(_Work(lambda _: ring.renew(ring.generation), 0, None))
    assert await done == Written(False, None)


@pytest.mark.pure("replaces a method")
@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_row_purged_while_its_commit_resumes_is_not_known(opened, monkeypatch):
    """Another process purges it, and the journal has forgotten the purge by then."""
    first, second = await opened(8 << 20), await opened(8 << 20)
    await warm(first)
    entries, other = first._entries, second._entries
    assert isinstance(other, FileEntries)
    write, written, resumes = entries._write, asyncio.Event(), asyncio.Event()

    async def late(*of):
        result = await write(*of)
        if isinstance(result, Written):
            written.set()
            await resumes.wait()
        return result

    monkeypatch.setattr(entries, "_write", late)
    storing = asyncio.create_task(store(first, response("a")))
    await written.wait()
    await second.purge(Keys(frozenset((key("a"),))), time.time())
    ring, purged = other.directory.ring, other.directory.ring.last
    for number in count():
        if ring.first > purged:
            break
        other._synced = 0.0  # what is purged is settled at once
        names = frozenset(key(f"{number}-{each}") for each in range(50))
        await second.purge(Keys(names), time.time())
    before = first.glance(key("a"), time.time())
    resumes.set()
    await storing
    assert not before
    assert not first.glance(key("a"), time.time())


@pytest.mark.pure("replaces a method")
@pytest.mark.usefixtures("no_disk_is_slow")
async def test_memory_takes_in_nothing_that_a_forgotten_purge_means(opened, monkeypatch):
    tier = await opened()
    old, new = (
        stored_response((b"vary", b"x"), name=key("a"), request=[(b"x", one)]) for one in (b"1", b"2")
    )
    for number in range(3):
        await tier.purge(Keys(frozenset((key(f"{number}"),))), time.time())
    last = tier._followed
    found = [Numbered(1, old, True), Numbered(last, new, True)]
    monkeypatch.setattr(tier._entries, "glance", lambda *_, **__: found)
    valid = tier._valid

    def trimmed(*of):
        tier._journal.trim(last - 1, 0)  # by a purge of another process, just now
        return valid(*of)

    monkeypatch.setattr(tier, "_valid", trimmed)
    assert tier.glance(key("a"), time.time(), keeps=True) == [new]
    assert not tier.memory.lookup(key("a"))


@pytest.mark.pure("replaces a module's clock")
@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_known_content_is_looked_at_again_after_a_pause(opened, monkeypatch):
    tier, now, looked = await opened(), [time.monotonic()], list[bytes]()
    await warm(tier)
    monkeypatch.setattr(rows_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    await store(tier, response("a", bytes(5_000)))
    tier._entries.glance(key("a"), time.time())
    sealed = rows_module._sealed
    monkeypatch.setattr(rows_module, "_sealed", lambda body: looked.append(body) or sealed(body))
    for seconds, times in ((1, 0), (40, 1), (1, 1), (40, 2)):
        now[0] += seconds
        tier._entries.glance(key("a"), time.time())
        assert len(looked) == times


@pytest.mark.pure("replaces a function")
@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_known_content_is_not_looked_at_for_distant_neighbours(opened, monkeypatch):
    tier, looked = await opened(), list[bytes]()
    await warm(tier)
    for name in "ab":
        await store(tier, response(name, os.urandom(100_000)))
    assert tier._entries.glance(key("a"), time.time())
    sealed = rows_module._sealed
    monkeypatch.setattr(rows_module, "_sealed", lambda body: looked.append(body) or sealed(body))
    body = os.urandom(100_000)
    await store(tier, response("c", body))
    for _ in range(2):
        assert tier._entries.glance(key("a"), time.time())
    assert looked == [body]  # as it is stored


@pytest.mark.pure("replaces a method")
async def test_a_response_that_cannot_be_written_down_fails_no_other(opened, monkeypatch, caplog):
    tier, made = await opened(), Put.of
    names = [response(name, name.encode()) for name in "abc"]

    def of(number, stored, now):
        if stored.body == b"b":
            raise ValueError("a fault")
        return made(number, stored, now)

    monkeypatch.setattr(Put, "of", of)
    await asyncio.gather(*(store(tier, each) for each in names))
    tier.memory.purge(Everything(), time.time())
    assert [bool(await served(tier, name)) for name in "abc"] == [True, False, True]
    assert "cannot be stored" in caplog.text


@pytest.mark.parametrize("etag", [b"", b'"1"', b'"%b"' % (b"e" * 6_000)])
def test_a_row_takes_no_more_than_was_foreseen(etag):
    stored = stored_response((b"etag", etag), (b"last-modified", b"Sun, 20 Sep 2026 10:43:20 GMT"))
    assert sizes_of(stored)[0] >= len(encode(stored)) + len(stored.key) + len(stored.body)


async def test_content_without_room_costs_no_small_response(opened, monkeypatch):
    tier = await opened()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    await store(tier, response("large", bytes(50_000)), *(response(f"{number}") for number in range(20)))
    assert (await tier.holding()).responses == 20


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_fetch_that_has_the_lock_begins_within_the_call(opened):
    """If another process fetches the same, it waits instead, and has that response."""
    first, second = await opened(), await opened(patience=PATIENT)
    lease, told = first.begin(key("a"), time.time()), list[bool]()
    await warm(first)
    await warm(second)
    first.fill(lease, REQUEST, lambda *_: False, told.append, joined=True)
    assert told == [False]
    waiting = asyncio.create_task(served(second, "a", joined=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.commit(lease, response("a"))
    first.end(lease, lambda: None)
    assert await asyncio.wait_for(waiting, LATE) == [b"content"]


@pytest.mark.usefixtures("no_disk_is_slow")
async def test_a_content_is_read_at_once_or_off_the_loop(opened, monkeypatch):
    """A read that would wait, one that this file system cannot promise, and one that was slow."""
    tier = await opened()
    await store(tier, *(response(name, name.encode() * 20_000) for name in "abcd"))
    other = await opened()
    entries = other._entries
    assert await served(other, "a") == [b"a" * 20_000]
    await warm(other)
    assert await eventually(lambda: entries.glance(key("b"), time.time()))

    for error in (BlockingIOError(), OSError(95, "not supported")):

        def fails(*_, error=error):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", fails)
            assert entries.glance(key("b"), time.time()) is None
            assert [row.stored.body for row in await entries.lookup(key("b"), time.time())] == [b"b" * 20_000]


async def test_an_unexpected_fault_of_one_write_stops_no_later_one(opened, monkeypatch):
    first, second = await opened(), await opened()
    real, writer = time.monotonic, "univocal-writer"
    with monkeypatch.context() as patched:
        patched.setattr(
            time, "monotonic", lambda: real() if threading.current_thread().name != writer else 1 // 0
        )
        await asyncio.wait_for(store(first, response("a")), LATE)
    await asyncio.wait_for(store(first, response("b")), LATE)
    assert await served(second, "b") == [b"content"]


@pytest.mark.parametrize("fault", [RuntimeError("fault"), SystemExit(1)], ids=["an error", "an end"])
@pytest.mark.parametrize("name", ["sleep", "monotonic"], ids=["before a batch", "in a batch"])
async def test_a_writing_thread_that_ends_is_begun_again(opened, monkeypatch, caplog, fault, name):
    """Waiting callers hear of its end, also another process that waits for the lock."""
    first, second = await opened(), await opened(patience=PATIENT)
    real = getattr(time, name)

    def ends(*arguments):
        if threading.current_thread().name == "univocal-writer":
            raise fault
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(time, name, ends)
        lease = first.begin(key("a"), time.time())
        done = asyncio.get_running_loop().create_future()
        first.fill(lease, REQUEST, lambda *_: False, done.set_result, joined=True)
        assert not await done
        waiting = asyncio.create_task(served(second, "a", joined=True))
        first.commit(lease, response("a"))
        ended = asyncio.Event()
        first.end(lease, ended.set)
        await asyncio.wait_for(ended.wait(), LATE)
        assert await asyncio.wait_for(waiting, LATE) == []
    await asyncio.wait_for(store(first, response("b")), LATE)
    assert await served(second, "b") == [b"content"]
    if isinstance(fault, SystemExit) or name == "sleep":
        assert caplog.text.count("the writing thread ended") >= 1
    await asyncio.wait_for(first.aclose(), LATE)


@pytest.mark.parametrize("kind", ["reading", "purging", "reading as it closes"])
async def test_a_thread_that_ends_is_begun_again(opened, caplog, kind):
    """An error outside what it does, as of memory, ends it; those who wait for it hear of that."""
    tier, waits = await opened(), threading.Event()
    entries, purges = tier._entries, tier._purges
    thread = purges._appender if kind == "purging" else entries._reader
    thread._pool.submit(waits.wait).add_done_callback(lambda _: sys.exit(1))

    def calls():
        if kind == "reading":
            return entries.count(Everything(), 0)
        return purges.publish(Everything(), 0.0) if kind == "purging" else tier.aclose()

    lost = [asyncio.ensure_future(calls()) for _ in range(3)]
    await asyncio.sleep(0)
    waits.set()
    async with asyncio.timeout(LATE):
        results = await asyncio.gather(*lost, return_exceptions=True)
        if tier.connected:
            assert [type(each) for each in results] == [StoreUnavailableError] * 3
            assert await calls() is not None
    assert caplog.text.count("thread ended, another begins") == 1


@pytest.mark.parametrize("ends", ["", "-wal", "-*"])
async def test_a_database_that_is_removed_is_begun_anew(opened, tmp_path, caplog, ends):
    first, second = await opened(), await opened()
    await store(first, response("a"))
    for file in (tmp_path / "store").glob(f"entries-*.db{ends}"):
        file.unlink()
    await store(first, response("b"), response("c"))
    assert "its file was removed" in caplog.text
    assert caplog.text.count("the store starts empty") == 1
    assert await served(second, "c") == [b"content"]
    assert await first.purge(Tags(frozenset((b"t",))), time.time()) >= 2
    assert await served(second, "b") == await served(second, "c") == []
    third = await opened()
    await store(second, response("d"))
    assert await served(third, "d") == [b"content"]


async def test_a_full_disk_stores_nothing_and_purges_go_on(opened, tmp_path, caplog):
    if os.getuid() != 0:
        pytest.skip("a disk of its own needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=False)  # noqa: ASYNC221
    if mounted.returncode:
        pytest.skip("a disk of its own cannot be mounted here")
    try:
        tier = await opened(name="disk/store")
        for number in range(40):
            await store(tier, response(str(number), os.urandom(100_000)))
        assert "nothing more is stored there" in caplog.text
        assert caplog.text.count("nothing more is stored there") == 1
        assert await served(tier, "39") != []  # of its own memory
        assert await tier.purge(Tags(frozenset((b"t",))), time.time()) == 40
        assert await served(tier, "0") == await served(tier, "39") == []
        await tier.aclose()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)  # noqa: ASYNC221


async def walked(tier):
    entries = tier._entries
    at = await entries._clean(0, tier._left_of, tier._followed, needed=1 << 62)
    while at:
        at = await entries._clean(at, tier._left_of, tier._followed, needed=1 << 62)


@pytest.mark.parametrize("selector", SELECTORS)
async def test_a_softly_purged_response_stays_stored_and_stale(opened, selector):
    """It stays so once the walk has looked at it, where no memory has it, and when the purge is forgotten."""
    first = await opened()
    await store(first, response("a"))
    assert await first.purge(replace(selector, soft=True), time.time()) == 1
    for tier in (first, await opened()):
        await walked(tier)
        other = await opened()
        assert await served(other, "a") == [b"content"]
        (stale,) = other.lookup(key("a"), time.time())
        assert stale.fresh_until <= time.time()
    other._journal.forget(0)
    (row,) = await other._entries.lookup(key("a"), time.time())
    assert row.stored.fresh_until <= time.time()
    assert await first.purge(selector, time.time()) == 1
    assert await served(await opened(), "a") == []


async def test_a_soft_purge_brings_nothing_back(opened):
    first = await opened()
    await store(first, response("a"))
    await first.purge(Tags(frozenset((b"t",))), time.time())
    await first.purge(Keys(frozenset((key("a"),)), soft=True), time.time())
    await store(first, response("b"))  # behind which the purges have been carried out
    assert await served(await opened(), "a") == []


SMALL_RING = 4 << 10


@pytest.fixture
async def beside(tmp_path):
    """Open one directory with a small journal several times."""
    made = list[tuple[SharedTier, Directory]]()

    async def go():
        directory = Directory(tmp_path / "store", is_durable=False, capacity=SMALL_RING)
        entries, purges = FileEntries(directory, 64 << 20), FilePurges(directory.ring)
        tier = SharedTier(MemoryStore(), lambda: (entries, purges), time.time)
        await tier.start()
        made.append((tier, directory))
        return tier

    yield go
    for tier, directory in made:
        await tier.aclose()
        directory.close()


def others(kind, number):
    match kind:
        case "URL":
            return Keys(frozenset((key(f"other/{number}"),)))
        case "tag":
            return Tags(frozenset((b"other%d" % number,)))
        case "prefix":
            return Prefix(frozenset((b"http en.example /other/%d/" % number,)))
        case _:
            return Variants(frozenset(((key(f"other/{number}"), ()),)), time.time())


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", ["URL", "tag", "prefix", "replaced"])
async def test_purges_of_other_responses_cost_no_stored_response(beside, kind, soft):
    """Many times as many as the journal holds; and what was purged before them stays purged."""
    first, second = await beside(), await beside()
    await store(first, *(response(str(number)) for number in range(20)))
    assert await second.purge(Keys(frozenset((key("7"),))), time.time()) == 1
    assert await first.purge(Keys(frozenset((key("8"),)), soft=True), time.time()) == 1
    for number in range(100):
        await first.purge(replace(others(kind, number), soft=soft), time.time())
    third = await beside()
    assert await served(third, "7") == await served(second, "7") == []
    left = [number for number in range(20) if await served(third, str(number))]
    assert left == [number for number in range(20) if number != 7]
    (stale,) = third.lookup(key("8"), time.time())
    assert stale.fresh_until <= time.time()


async def test_a_response_fetched_before_many_purges_is_not_stored(beside):
    """One of them means it, and the journal has forgotten that."""
    first, second = await beside(), await beside()
    lease = first.begin(key("a"), time.time())
    for number in range(100):
        await second.purge(Keys(frozenset((key("a" if number == 3 else f"other/{number}"),))), time.time())
    first.commit(lease, response("a"))
    ended = asyncio.Event()
    first.end(lease, ended.set)
    await ended.wait()
    assert await served(second, "a") == await served(first, "a") == []


async def test_a_late_write_is_checked_against_new_purges(opened):
    """A purge that came between the look at the journal and the transaction."""
    tier = await opened()
    entries = tier._entries
    number = tier._followed
    for path, selector, stays in (
        ("a", Keys(frozenset((key("a"),))), False),
        ("b", Tags(frozenset((b"t",))), False),
        ("c", Keys(frozenset((key("other"),))), True),
    ):
        await tier.purge(selector, time.time())
        stored = response(path)
        assert not await entries.commit(FetchLease(stored.key, b"token"), number, stored, time.time())
        assert bool(await entries.lookup(stored.key, time.time())) is stays
        number = tier._followed


@pytest.mark.pure("a method is replaced")
async def test_rows_outlive_purges_that_the_walking_process_never_heard(opened, monkeypatch):
    """It is idle while others' purges fill the journal: rows get a number beyond all that are forgotten."""
    walks = list[Callable[[], int]]()

    async def walk(_, __, followed, *___):
        walks.append(followed)

    monkeypatch.setattr(FileEntries, "walk", walk)
    tier = await opened()
    await store(tier, response("a"))
    entries, ring = tier._entries, tier._entries.directory.ring
    assert isinstance(entries, FileEntries)
    other = encode_purge(Keys(frozenset((key("other"),))), time.time(), b"")
    while not ring.is_tight:
        ring.append(other, weight=(1 << 20) - 8)
    needed = ring.needed()
    await entries._clean(0, tier._left_of, walks[0](), needed)
    ring.raise_floor(needed)
    assert await served(await opened(), "a") == [b"content"]


async def test_expired_and_purged_rows_are_removed_in_the_background(opened, tmp_path):
    tier = await opened()
    tags = [b"gone", b"stays"]
    await store(tier, *(response(str(number), tags=tags[number % 2]) for number in range(20)))
    await tier.purge(Tags(frozenset((b"gone",))), time.time())
    with rows(tmp_path / "store") as sql:
        sql.execute("UPDATE entries SET usable_until = 1 WHERE key = ?", (key("1"),))
        entries = tier._entries
        await entries._clean(0, tier._left_of, tier._followed)
        left = {row[0] for row in sql.execute("SELECT key FROM entries")}
    assert left == {key(str(number)) for number in range(3, 20, 2)}


@pytest.mark.parametrize("is_full", [False, True])
def test_a_directory_in_memory_whose_program_was_killed_is_removed(tmp_path, monkeypatch, is_full):
    monkeypatch.setattr("univocal.store.file.directory.SHARED_MEMORY", tmp_path)
    left = new_in_memory()
    (left / "lock").write_text("name")
    new, making, begun, made_late = (left.with_name(f"{left.name}{number}") for number in range(4))
    for each in (new, making, begun, made_late):
        each.mkdir()
    for each in (making, made_late):
        (each / "lock").touch()
    for each in (begun, made_late):
        os.utime(each, (0, 0))
    if is_full:
        monkeypatch.setattr(
            "univocal.store.file.directory._free",
            lambda base: 0 if base == left.parent and left.exists() else 1 << 30,
        )
    made = new_in_memory()
    assert (made.parent, made != left) == (left.parent, True)
    made.rmdir()
    assert [each.exists() for each in (left, begun, made_late)] == [False, False, False]
    assert [each.exists() for each in (new, making)] == [True, True]


def test_a_directory_in_memory_needs_no_temporary_files(tmp_path, monkeypatch):
    """A container that is read-only has memory alone."""
    monkeypatch.setattr("univocal.store.file.directory.SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    new_in_memory().rmdir()


async def test_damage_that_two_processes_meet_costs_one_file(opened):
    """The second one meets it in the old file, when the first has begun the next."""
    tier = await opened()
    entries = tier._entries
    directory = entries.directory
    old = directory.ring.generation
    damage = sqlite3.DatabaseError("database disk image is malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT

    def read(_):
        directory.put_aside(old, "the other process says so")
        raise damage

    with pytest.raises(StoreUnavailableError):
        await entries._read("lookup", read)
    assert directory.ring.generation == old + 1


async def test_a_journal_that_went_back_loses_no_purge(opened, tmp_path):
    """Flipped bits in its head: the next purges would get numbers that responses were stored with."""
    tier = await opened()
    for name in (b"u", b"v"):
        await tier.purge(Tags(frozenset((name,))), time.time())
    await store(tier, response("a"))
    await tier.aclose()
    journal = tmp_path / "store" / "journal"
    octets = bytearray(journal.read_bytes())
    octets[24:32] = bytes(8)
    journal.write_bytes(octets)
    again = await opened()
    await again.purge(Tags(frozenset((b"t",))), time.time())
    assert await served(again, "a") == []


async def test_a_process_whose_directory_was_removed_goes_on_alone(opened, tmp_path, caplog):
    """The next one begins another journal, of which this one would not hear."""
    first = await opened()
    await store(first, response("a"))
    remove(tmp_path / "store")
    with pytest.raises(RefusedError):
        await first.purge(Tags(frozenset((b"u",))), time.time())
    await eventually(lambda: not first.connected)
    assert "its directory was removed" in caplog.text
    second = await opened()
    await second.purge(Tags(frozenset((b"t",))), time.time())
    assert await served(first, "a") == []
    await first.aclose()


async def test_a_full_disk_at_the_start_is_tried_again(opened, monkeypatch, caplog):
    monkeypatch.setattr(roles, "AGAIN", 0.05)
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
        tier = await opened()
        await store(tier, response("a"))
        assert len(tier.lookup(key("a"), time.time())) == 1
        assert not tier.connected
        with pytest.raises(RefusedError):
            await tier.purge(Tags(frozenset((b"t",))), time.time())
    await eventually(lambda: tier.connected)
    await store(tier, response("b"))
    await tier.aclose()
    again = await opened()
    assert [bool(await served(again, name)) for name in "ab"] == [False, True]
    said = [record.getMessage() for record in caplog.records]
    assert "No space left on device): this node caches alone" in said[0]
    assert " is back, after " in said[1]


async def test_workers_wait_for_the_directory_that_another_makes(tmp_path, monkeypatch):
    """The process that leads has found no room for it at the start."""
    monkeypatch.setattr(roles, "AGAIN", 0.05)
    tiers = list[SharedTier]()
    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", failing(errno.ENOSPC))
        for leads in (True, False, False):
            tier = file_tier(tmp_path / "store", MemoryStore(), time.time, program=(b"a program", leads))
            await tier.start()
            tiers.append(tier)
        await asyncio.sleep(0.2)
        assert not any(tier.connected for tier in tiers)
    await eventually(lambda: all(tier.connected for tier in tiers))
    await store(tiers[1], response("a"))
    assert len(await served(tiers[2], "a")) == 1
    await tiers[0].purge(Everything(), time.time())
    assert await served(tiers[2], "a") == []
    for tier in tiers:
        await tier.aclose()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EROFS))
    with pytest.raises(ConfigurationError, match="a directory that can be written"):
        file_tier(tmp_path / "store", MemoryStore(), time.time)


def failing(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


async def test_a_removed_directory_costs_nobody_else_a_descriptor(opened, tmp_path):
    """A file that is closed twice is another's by then: a client's connection, or the log."""
    tier = await opened()
    await store(tier, response("a"))
    remove(tmp_path / "store")
    others = []
    for name in "bcdef":
        assert await served(tier, name) == []
        await store(tier, response(name))
        others += [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    await tier.aclose()
    for other in others:
        os.close(other)


async def test_nothing_is_written_to_a_directory_that_another_made_anew(opened, tmp_path):
    """Its rows would have numbers of another journal there: no purge would mean them."""
    tier = await opened()
    await store(tier, response("a"))
    # Moved first: SQLite, which opens a file anew meanwhile, may have read the old path before the new mkdir.
    (tmp_path / "store").rename(tmp_path / "removed")
    (tmp_path / "store").mkdir()
    remove(tmp_path / "removed")
    for name in "bc":
        await store(tier, response(name))
        assert await served(tier, name) == [b"content"]
    await tier.aclose()
    assert os.listdir(tmp_path / "store") == []


async def test_a_large_response_is_written_only_where_nothing_waits(tmp_path, caplog):
    """The queue is bounded, and the log says so; one response above the bound is not refused for good."""
    results, stands, go_on = list[str](), threading.Event(), threading.Event()

    def held(_):
        stands.set()
        go_on.wait()

    def commit(path, size):
        stored = response(path, bytes(size))
        return asyncio.ensure_future(
            entries.commit(FetchLease(stored.key, path.encode()), 0, stored, time.time())
        )

    directory = Directory(tmp_path / "store", is_durable=False)
    entries = FileEntries(directory, 64 << 20, lambda _, result, __: results.append(result))
    try:
        first = asyncio.ensure_future(entries._write(held, 0))
        assert await asyncio.to_thread(stands.wait, LATE)  # the writer has it
        alone, beside, small = commit("alone", 9 << 20), commit("beside", 9 << 20), commit("small", 100)
        await asyncio.sleep(0)
        assert results == ["full", "full"]
        go_on.set()
        await asyncio.gather(first, alone, beside, small)
        assert sorted(results) == ["full", "full", "ok"]
        assert "come faster than they can be written: some are not stored" in caplog.text
        assert await entries.lookup(key("alone"), time.time())
        assert not await entries.lookup(key("beside"), time.time())
        results.clear()
        await commit("small", 100)
        await commit("beside", 9 << 20)
        assert results == ["ok", "ok"]
        assert await entries.lookup(key("beside"), time.time())
        assert entries._overflow._since is not None
        entries._overflow._since -= EVERY
        walking = asyncio.create_task(entries.walk(lambda _: [], lambda: 0, lambda: 0))
        await eventually(lambda: " 2 responses came too fast" in caplog.text)
        walking.cancel()
    finally:
        go_on.set()
        await entries.close()
        directory.close()


@pytest.mark.pure("a method is replaced")
async def test_a_disk_too_full_to_shrink_takes_no_descriptors(opened, monkeypatch, tmp_path):
    def opened_here():
        links = Path("/proc/self/fd").iterdir()
        return sum(str(tmp_path) in os.readlink(each) for each in links if each.is_symlink())

    def shrinks(_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(EntryTable, "shrink", shrinks)
    tier = await opened()
    await store(tier, response("a"))
    before = opened_here()
    for number in range(20):
        await store(tier, response(f"{number}"))
    assert opened_here() < before + 15  # some are those of tables that are read at the same time


@pytest.mark.pure("a method is replaced")
async def test_a_full_disk_leaves_the_walk_its_pauses(opened, monkeypatch):
    """It leaves them also while a nearly full journal would have it hurry."""
    tier, tries = await opened(), []

    async def cleans(*_):
        tries.append(None)
        raise StoreUnavailableError("full")

    monkeypatch.setattr(type(tier._entries.directory.ring), "is_tight", True)
    monkeypatch.setattr(tier._entries, "_clean", cleans)
    await eventually(lambda: tries)
    tries.clear()
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(tries) <= 2
