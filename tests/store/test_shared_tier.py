"""Memory over a shared store, one danger at a time: what `test_shared.py` finds by chance alone."""

import asyncio

import pytest

from store.model import BOUND, DETACHED, KEYS, START, ModelEntries, ModelPurges, ModelServer
from support import stored_response
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store import roles, shared
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Purge, Tags, Variants
from univocal.store.roles import StoreUnavailableError
from univocal.store.shared import SharedTier

KEY = KEYS[0]
RED = Tags(frozenset((b"red",)))


class One:
    """One node over a store in this process."""

    def __init__(self, memory=None):
        self.now = START
        self.server = ModelServer()
        self.purges = ModelPurges(self.server, lambda: self.now)
        self.memory = memory or MemoryStore()
        self.entries = ModelEntries(self.server, self.purges)
        self.tier = SharedTier(self.memory, lambda: (self.entries, self.purges), lambda: self.now, DETACHED)

    def response(self, body=b"body"):
        fields = [(b"cache-control", b"max-age=60"), (b"xkey", b"red")]
        return stored_response(*fields, name=KEY, body=body, at=self.now)

    async def end(self, lease):
        ended = asyncio.get_running_loop().create_future()
        self.tier.end(lease, lambda: ended.set_result(None))
        await ended
        self.tier.memory.leases.release(lease)

    async def put(self, body=b"body"):
        lease = self.tier.begin(KEY, self.now)
        is_kept = self.tier.commit(lease, self.response(body))
        await self.end(lease)
        return is_kept

    def another_purges(self, selector=RED):
        """Another node purges, and this one hears of it without looking."""
        number = self.server.purges[-1].number + 1 if self.server.purges else 1
        self.server.purges.append(Purge(number, self.now, selector, b""))
        self.purges.deliver()

    def found(self):
        return [bytes(one.body) for one in self.tier.lookup(KEY, self.now)]

    async def filled(self):
        """The contents that the store is found to have for a request."""
        lease, shown = self.tier.begin(KEY, self.now), list[bytes]()
        done = asyncio.get_running_loop().create_future()

        def judge(servable, _):
            shown[:] = [bytes(one.body) for one in servable]
            return True

        self.tier.fill(lease, Request(b"GET", b"/", []), judge, done.set_result, joined=False)
        await done
        await self.end(lease)
        return shown

    @property
    def in_store(self):
        return [bytes(one.body) for _, one in self.server.rows.get(KEY, {}).values()]


@pytest.fixture
async def node():
    one = One()
    await one.tier.start()
    return one


async def test_a_response_purged_before_its_write_is_not_written(node):
    lease = node.tier.begin(KEY, node.now)
    assert node.tier.commit(lease, node.response())
    node.another_purges()
    await node.end(lease)
    assert (node.found(), node.in_store) == ([], [])


@pytest.mark.parametrize("size", [4, 30_000], ids=["fits into memory", "does not"])
async def test_a_response_purged_before_its_commit_is_not_kept(size):
    node = One(MemoryStore(20_000, 1_000_000, is_part=True))
    await node.tier.start()
    lease = node.tier.begin(KEY, node.now)
    node.another_purges()
    assert not node.tier.commit(lease, node.response(bytes(size)))
    await node.end(lease)
    assert (node.found(), node.in_store) == ([], [])


async def test_an_older_response_in_the_store_replaces_none_in_memory(node):
    """The store was away for a moment, and has not got the newer one."""
    assert await node.put(b"older")
    node.now += 1
    node.entries.commits_come_late = True
    assert await node.put(b"newer")
    assert node.in_store == [b"older"]
    await node.filled()
    assert node.found() == [b"newer"]


async def test_a_dropped_variant_is_not_read_again(node):
    """A 304 with no-store drops one so: the purge is on its way, and the store still has the response."""
    assert await node.put()
    lease = node.tier.begin(KEY, node.now)
    node.tier.drop(lease, Variants(frozenset(((KEY, ()),)), node.now), node.now)
    assert node.in_store == [b"body"]
    assert await node.filled() == []
    await node.end(lease)
    node.now += 1
    assert await node.put(b"newer")
    assert await node.filled() == node.found() == [b"newer"]


async def test_a_fetch_after_a_purge_that_ended_another_is_stored(node, monkeypatch):
    """Another worker of the program has confirmed the purge, and this one has not heard of it yet."""
    assert await node.put()
    server, begin = node.server, node.entries.begin
    server.are_siblings, server.fetch_locks[KEY] = True, b"another"

    async def begins(fetch, now):
        if fetch.holder:
            server.purges.append(Purge(1, now, RED, b""))
            server.in_force, server.fetch_locks[KEY] = 1, b"a third"
        return await begin(fetch, now)

    async def reaches(number, seconds):
        node.purges.deliver()
        node.tier.heard()

    monkeypatch.setattr(node.entries, "begin", begins)
    monkeypatch.setattr(node.purges, "reach", reaches)
    lease, filled = node.tier.begin(KEY, node.now), asyncio.get_running_loop().create_future()
    node.tier.fill(lease, Request(b"GET", b"/", []), lambda *_: False, filled.set_result, joined=True)
    assert not await filled
    assert node.tier.commit(lease, node.response(b"newer"))
    await node.end(lease)
    assert node.found() == await node.filled() == [b"newer"]


@pytest.mark.parametrize(("silence", "found"), [(BOUND - 0.01, [b"body"]), (BOUND, [])])
async def test_memory_is_trusted_for_a_bounded_silence(node, silence, found):
    assert await node.put()
    node.purges.deliver()
    node.now += silence
    assert node.found() == found


async def test_a_loss_empties_memory(node):
    assert await node.put()
    node.tier.lost("a test")
    assert node.found() == []


async def test_a_return_empties_memory(node):
    node.tier.lost("a test")
    assert await node.put()
    assert node.found() == [b"body"]
    node.tier.returned()
    await asyncio.wait_for(node.tier._there.wait(), 1)
    assert (node.found(), node.in_store) == ([], [])


async def test_a_return_forgets_no_count_of_purged_names(node):
    """The walk hurries once that has grown by so many: it is not to wait until it is as great again."""
    for _ in range(3):
        node.another_purges()
    assert node.found() == []
    assert node.tier._journal.noted == 3
    node.server.purges[:] = node.server.purges[2:]
    node.server.horizon = 2
    node.tier.lost("a test")
    node.tier.returned()
    await asyncio.wait_for(node.tier._there.wait(), 1)
    assert node.tier._journal.noted == 3


@pytest.mark.pure("a constant is replaced")
@pytest.mark.parametrize("work", ["walk", "horizon", "publish"])
async def test_background_work_survives_any_error(node, monkeypatch, caplog, work):
    """Of each kind of it one log line tells, however often it comes."""
    monkeypatch.setattr(shared, "_AGAIN", 0.01)
    part, errors = (node.entries if work == "walk" else node.purges), [LookupError("odd")] * 3
    real, done = getattr(part, work), asyncio.Event()

    def fails(*arguments):
        if errors:
            raise errors.pop()
        done.set()
        return real(*arguments)

    monkeypatch.setattr(part, work, fails)
    node.tier.lost("a test")
    if work == "publish":
        with pytest.raises(RefusedError):
            await node.tier.purge(RED, node.now)
    else:
        node.tier._walk = None
    node.tier.returned()
    await asyncio.wait_for(done.wait(), 5)
    await asyncio.wait_for(node.tier._there.wait(), 5)
    assert caplog.text.count("LookupError: odd") == 1


@pytest.mark.pure("a constant is replaced")
async def test_attempts_to_open_a_store_survive_any_error(monkeypatch, caplog):
    monkeypatch.setattr(roles, "AGAIN", 0.01)
    node, errors = One(), [OSError("full"), LookupError("odd"), OSError("full")]

    def opens():
        if errors:
            raise errors.pop()
        return node.entries, node.purges

    absent = roles.Absent("full", opens)
    node.tier.adopt(absent, absent)
    await node.tier.start(5)
    assert node.tier.connected
    assert caplog.text.count("Traceback") == caplog.text.count("LookupError: odd") == 1


async def test_a_fault_in_the_journal_ends_no_watch(node, monkeypatch, caplog):
    monkeypatch.setattr(node.purges, "follow", lambda _: 1 // 0)
    node.another_purges()
    node.tier.heard()
    assert caplog.text.count("ZeroDivisionError") == 1


async def test_a_gap_in_the_journal_empties_memory(node):
    assert await node.put()
    node.another_purges()
    node.server.purges[:] = [Purge(9, node.now, Everything(), b"")]
    node.server.horizon = 8
    node.purges.deliver()
    assert node.found() == []


async def test_a_response_larger_than_a_part_is_only_shared():
    node = One(MemoryStore(20_000, 1_000_000, is_part=True))
    await node.tier.start()
    assert await node.put(b"small")
    assert await node.put(bytes(30_000))
    assert node.found() == []  # nor is what it replaced
    assert node.in_store == [bytes(30_000)]
    assert not await One(MemoryStore(20_000, 1_000_000)).put(bytes(30_000))


async def test_alone_no_response_outlives_the_time_for_unheard_purges(node):
    node.tier.lost("a test says so")
    lease = node.tier.begin(KEY, node.now)
    node.now += DETACHED - 1
    assert node.tier.commit(lease, node.response())
    assert [one.fresh_until for one in node.tier.lookup(KEY, node.now)] == [START + DETACHED]
    node.now += 1
    late = node.tier.begin(KEY, START)
    assert not node.tier.commit(late, node.response(b"late"))
    assert node.found() == [b"body"]
    for each in (lease, late):
        await node.end(each)


async def test_a_store_that_fails_within_a_count_is_told_of(node, monkeypatch):
    async def fails(selector, after):
        raise StoreUnavailableError

    monkeypatch.setattr(node.entries, "count", fails)
    with pytest.raises(RefusedError):
        await node.tier.count(RED)
    assert await node.tier.purge(RED, node.now) == 0  # only its number is not known
