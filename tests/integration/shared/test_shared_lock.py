"""The lock that collapses the nodes' misses into one request is the lease; what it costs in commands."""

import asyncio
import time

import pytest

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


async def test_a_released_lease_leaves_no_turn_behind(join, server):
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


# The commands that Redis carries out for what happens most often, those within scripts included


def commands(server):
    """The commands since the last time, but for those of the heartbeat and of this question."""
    told = server.client.info("commandstats")
    server.client.config_resetstat()
    ours = {"xread", "hget", "info", "config|resetstat", "ping", "client|setinfo", "select"}
    counted = {name.removeprefix("cmdstat_"): each["calls"] for name, each in told.items()}
    return sum(calls for name, calls in counted.items() if name not in ours)


@pytest.fixture
async def node(join, made):
    """A node whose scripts Redis knows."""
    joined, other = await join(times={"heartbeat": 5.0}), await join(times={"heartbeat": 5.0})
    lease = await joined.store.obtain(KEY + b"warm", lambda _: None)
    await joined.store.commit(lease, made(KEY + b"warm"))
    await other.read(KEY + b"warm")
    await other.purge(KEY + b"warm")
    await joined.store.release(await joined.store.obtain(KEY + b"warm", lambda _: None))
    return joined


async def test_a_stored_miss_takes_eight_commands(node, made, server):
    commands(server)
    lease = await node.store.obtain(KEY, lambda _: None)
    assert await node.store.commit(lease, made(more=[(b"xkey", b"red blue green")]))
    assert commands(server) == 8


async def test_an_unstored_response_takes_six_commands(node, server):
    commands(server)
    lease = await node.store.obtain(KEY, lambda _: None)
    await node.store.release(lease)
    assert commands(server) == 6
