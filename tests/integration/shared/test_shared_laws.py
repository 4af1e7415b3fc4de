"""The laws of purging, over a real Redis that two nodes share; `make laws` tries many examples."""

import asyncio
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from examples import LONG
from integration.shared.conftest import ENGINES, Server
from store.model import Laws, Node, tier_over
from univocal.store.redis.commands import Commands, servers_at
from univocal.store.redis.entries import RedisEntries
from univocal.store.redis.purges import RedisPurges

_REDIS = []


@pytest.fixture(scope="module", autouse=True)
def redis_server():
    """One server for all examples, which begin with an empty one."""
    if not ENGINES:
        pytest.skip("needs redis-server or valkey-server (Debian packages of these names)")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), ENGINES[0])
        server.start()
        _REDIS.append(server)
        yield
        _REDIS.clear()
        server.kill()


class RedisLaws(Laws):
    """A purge is in force at the node that was asked, and at once at one that has heard of it.

    The journal's time is the real one. `rest` waits until both nodes have followed it to its end.
    """

    lag = 0.0

    def __init__(self):
        _REDIS[0].client.flushall()
        self.nodes = []
        super().__init__()

    async def new_node(self, number):
        commands = Commands(servers_at(_REDIS[0].url, 20.0), 20.0, 4)
        entries, purges = RedisEntries(commands, lambda: 8), RedisPurges(commands, time.time, 10.0)
        tier = tier_over(entries, purges, self.clock)
        await tier.start(20.0)
        assert tier.connected
        return Node(tier, purges, entries)

    async def rest(self):
        """Wait for the end of the tiers' tasks, and have the nodes follow."""
        async with asyncio.timeout(20):
            while not self.is_at_rest():  # noqa: ASYNC110  (what it waits for says nothing)
                await asyncio.sleep(0.001)

    def is_at_rest(self):
        if any(node.tier._tasks for node in self.nodes):
            return False
        number = int(_REDIS[0].client.hget(b"univocal:3:head:{journal}", b"number") or 0)
        return all(node.purges.last() >= number for node in self.nodes if node.tier.connected)

    async def stop(self, node):
        await node.tier.aclose()


TestRedisLaws = RedisLaws.TestCase
TestRedisLaws.settings = settings(
    max_examples=100 if LONG else 4,
    stateful_step_count=15,
    deadline=None,
    phases=[Phase.generate],  # a server's timing is not repeated exactly: nothing is shrunk
    suppress_health_check=[HealthCheck.too_slow],
)
