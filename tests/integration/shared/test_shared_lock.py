"""The lock that collapses the nodes' misses into one request is the lease."""

import asyncio
import time

from univocal.store.leases import Lease
from univocal.store.redis import entries

KEY = b"0123456789abcdef http en.example /wiki/A"


def nothing(variants):
    return variants[0] if variants else None


async def test_the_same_for_many_keys_at_once(join, made, named):
    nodes = [await join(), await join(), await join()]
    asked = {}

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


async def test_a_dead_node_blocks_nobody_for_long(join, monkeypatch):
    monkeypatch.setattr(entries, "_LOCK", 200)
    first, second = await join(), await join(times={"patience": 30})
    assert isinstance(await first.store.obtain(KEY, nothing), Lease)
    began = time.monotonic()
    assert isinstance(await second.store.obtain(KEY, nothing), Lease)
    assert 0.1 < time.monotonic() - began < 20  # its patience is thirty
    monkeypatch.undo()
    # Nor does who waits wait longer than it wants to.
    third = await join(times={"patience": 0.1})
    began = time.monotonic()
    assert isinstance(await third.store.obtain(KEY, nothing), Lease)
    assert time.monotonic() - began < 5  # a turn is ten seconds


async def test_whoever_gives_up_leaves_no_turn_behind(join, server):
    first, second = await join(), await join(times={"patience": 60})
    for _ in range(3):
        lease = await first.store.obtain(KEY, nothing)
        assert server.names("*:t:*") != []
        await first.store.release(lease)
        began = time.monotonic()
        lease = await second.store.obtain(KEY, nothing)
        assert isinstance(lease, Lease)
        assert time.monotonic() - began < 9  # a turn is ten seconds
        await second.store.release(lease)
    assert server.names("*:t:*") == []
