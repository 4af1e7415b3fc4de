"""The commands that Redis carries out for what happens most often, those within scripts included."""

import pytest

KEY = b"0123456789abcdef http en.example /wiki/A"


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


async def test_what_could_not_be_stored_takes_six(node, server):
    commands(server)
    lease = await node.store.obtain(KEY, lambda _: None)
    await node.store.release(lease)
    assert commands(server) == 6
