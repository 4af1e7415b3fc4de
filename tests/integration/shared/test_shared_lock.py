"""The lock that collapses the nodes' misses into one request is the lease."""

from __future__ import annotations

import asyncio
import time

from univocal.store.leases import Lease
from univocal.store.purge_selectors import Tags
from univocal.store.redis import entries

KEY = b"0123456789abcdef http en.example /wiki/A"


def nothing(variants):
    return variants[0] if variants else None


async def test_many_misses_on_many_nodes_are_one_request(join, made):
    nodes = [await join(), await join(), await join()]
    asked = []

    async def origin():
        asked.append(1)
        await asyncio.sleep(0.1)
        return made()

    got = await asyncio.gather(*(node.get(KEY, origin) for node in nodes for _ in range(10)))
    assert got == [b"content"] * 30
    assert len(asked) == 1


async def test_the_same_for_many_keys_at_once(join, made, named):
    nodes = [await join(), await join(), await join()]
    asked: dict[bytes, int] = {}

    async def once(node, name):
        async def origin():
            asked[name] = asked.get(name, 0) + 1
            await asyncio.sleep(0)
            return made(name)

        assert await node.get(name, origin) == b"content"

    names = [named(f"/{number}") for number in range(40)]
    await asyncio.gather(*(once(node, name) for name in names for node in nodes))
    assert set(asked.values()) == {1}
    assert len(asked) == 40


async def test_nobody_waits_in_line_for_what_is_not_stored(join):
    nodes = [await join(times={"patience": 30}) for _ in range(3)]
    first = await nodes[0].store.obtain(KEY, nothing)
    asked, everybody = [], asyncio.Event()

    async def fetched(node):
        lease = await node.store.obtain(KEY, nothing)
        assert isinstance(lease, Lease)
        asked.append(1)
        if len(asked) == 15:
            everybody.set()
        await everybody.wait()
        await node.store.release(lease)

    waiting = asyncio.gather(*(fetched(node) for node in nodes for _ in range(5)))
    await asyncio.sleep(0.1)
    assert asked == []
    await nodes[0].store.release(first)
    await asyncio.wait_for(waiting, 20)


async def test_a_dead_node_blocks_nobody_for_long(join, monkeypatch):
    monkeypatch.setattr(entries, "_TURN", 200)
    first, second = await join(), await join(times={"patience": 30})
    assert isinstance(await first.store.obtain(KEY, nothing), Lease)
    began = time.monotonic()
    assert isinstance(await second.store.obtain(KEY, nothing), Lease)
    assert 0.1 < time.monotonic() - began < 10
    monkeypatch.undo()
    # Nor does who waits wait longer than it wants to.
    third = await join(times={"patience": 0.1})
    began = time.monotonic()
    assert isinstance(await third.store.obtain(KEY, nothing), Lease)
    assert time.monotonic() - began < 5  # a turn is ten seconds


async def test_an_unsatisfying_result_is_not_awaited_again(join, made):
    nodes = [await join(times={"patience": 30}) for _ in range(3)]
    lease = await nodes[0].store.obtain(KEY, nothing)
    waiting = [asyncio.create_task(node.store.obtain(KEY, lambda variants: None)) for node in nodes * 2]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting)
    await nodes[0].store.commit(lease, made())
    got = await asyncio.wait_for(asyncio.gather(*waiting), 3.0)
    assert all(isinstance(one, Lease) for one in got)


async def test_a_url_purge_ends_the_turn_and_waiters_fetch_anew(join, made):
    first, second = await join(), await join()
    old = await first.store.obtain(KEY, nothing)
    waiting = asyncio.create_task(second.store.obtain(KEY, nothing))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await first.purge()
    new = await asyncio.wait_for(waiting, 1.0)
    assert isinstance(new, Lease)
    assert not await first.store.commit(old, made(body=b"old"))
    assert await second.store.commit(new, made(body=b"new"))
    assert await first.read() == await second.read() == [b"new"]


async def test_a_turn_ends_once_the_purge_is_in_force(join, made, monkeypatch):
    first, second = await join(), await join()
    await first.store.obtain(KEY, nothing)
    waiting = asyncio.create_task(second.store.obtain(KEY, nothing))
    purges = first.tier._purges
    publish = purges.publish

    async def late(*arguments):
        await asyncio.sleep(0.5)  # several times as long as whoever waits looks away
        assert not waiting.done()
        return await publish(*arguments)

    monkeypatch.setattr(purges, "publish", late)
    await first.purge()
    assert await second.store.commit(await asyncio.wait_for(waiting, 5.0), made())
    assert await first.read() == [b"content"]


async def test_a_purge_of_a_tag_leaves_the_lock(join, made):
    first, second = await join(), await join()
    lease = await first.store.obtain(KEY, nothing)
    await second.store.purge(Tags(frozenset((b"red",))), time.time())
    waiting = asyncio.create_task(second.store.obtain(KEY, nothing))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await first.store.commit(lease, made())
    assert (await waiting).body == b"content"


async def test_leases_that_are_not_alone_neither_wait_nor_block(join, made):
    first, second = await join(), await join()
    lease = await first.store.begin(KEY)
    other = await second.store.obtain(KEY, nothing)
    assert isinstance(other, Lease)
    assert await first.store.commit(lease, made(body=b"1"))
    assert await second.store.commit(other, made(body=b"2"))
    assert await first.read() == [b"2"]


async def test_a_released_lease_stores_nothing(join, made):
    node = await join()
    lease = await node.store.begin(KEY)
    await node.store.release(lease)
    await node.store.release(lease)
    assert not await node.store.commit(lease, made())


async def test_whoever_gives_up_leaves_no_turn_behind(join, server):
    first, second = await join(), await join()
    for _ in range(3):
        lease = await first.store.obtain(KEY, nothing)
        assert server.names("*:t:*") != []
        await first.store.release(lease)
        began = time.monotonic()
        lease = await second.store.obtain(KEY, nothing)
        assert isinstance(lease, Lease)
        assert time.monotonic() - began < 4  # the patience of a node is five seconds
        await second.store.release(lease)
    assert server.names("*:t:*") == []
