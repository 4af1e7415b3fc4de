"""A real Redis, and a Valkey where there is one; nodes, each a memory store and the shared one behind it."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from support import eventually
from tests.redis_server import RedisServer
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.http.messages import Fields, Request, Response
from univocal.store.address import RedisSettings, redis_tier
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Selector
from univocal.store.roles import StoreUnavailableError
from univocal.store.shared import SharedTier

KEY = b"0123456789abcdef http en.example /wiki/A"
ENGINES = [engine for engine in ("redis-server", "valkey-server") if shutil.which(engine)]
TIMES = {"heartbeat": 0.2, "command": 2.0, "patience": 5.0}


def key(path: str) -> bytes:
    return b"0123456789abcdef http en.example " + path.encode()


def response(
    name: bytes = KEY, body: bytes = b"content", more: Fields | None = None, asked: Fields | None = None
) -> Stored:
    """A response that is fresh for a minute."""
    now = time.time()
    fields = [(b"cache-control", b"max-age=60"), *(more or [])]
    begun = may_store(
        name, Fetched(Request(b"GET", b"/", asked or []), Response(200, fields), now, now), Rules()
    )
    assert isinstance(begun, Stored)
    done = complete(begun, body)
    assert done is not None
    return done


class Server(RedisServer):
    """A server, and what is stored there."""

    def names(self, pattern: str = "*") -> list[bytes]:
        return sorted(self.client.scan_iter(pattern))

    def entry(self, name: bytes = KEY) -> bytes:
        return b"univocal:3:e:{%b}" % name


class Store:
    """A tier, as the tests speak to it: what takes a continuation there is awaited here."""

    def __init__(self, tier: SharedTier) -> None:
        self.tier = tier

    @property
    def connected(self) -> bool:
        return self.tier.connected

    @property
    def trusted_until(self) -> float:
        return self.tier._purges.trusted_until()

    @property
    def bound(self) -> float:
        return self.tier._purges.bound

    async def start(self, patience: float) -> None:
        await self.tier.start(patience)

    async def aclose(self) -> None:
        await self.tier.aclose()

    async def begin(self, name: bytes) -> Any:
        return self.tier.begin(name, time.time())

    async def commit(self, lease: Any, stored: Stored) -> bool:
        """Store, and tell whether memory or all nodes have it."""
        kept = self.tier.commit(lease, stored)
        await self.release(lease)
        return kept

    async def release(self, lease: Any) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.tier.end(lease, lambda: ended.set_result(None))
        await ended
        self.tier.memory.leases.release(lease)

    async def lookup(self, name: bytes, now: float = 0.0, request: Request | None = None) -> Sequence[Stored]:
        """The responses that the shared store has and that may be used; memory has them from now on."""
        tier = self.tier
        if not tier.connected:
            return ()
        tier._follow()
        try:
            numbered = await tier._entries.lookup(name, now or time.time(), request)
        except StoreUnavailableError:
            return ()
        tier._take_in(numbered)
        return tier._valid(numbered)

    async def obtain(self, name: bytes, judge: Callable[[Sequence[Stored]], Any]) -> Any:
        """The verdict of `judge` on the stored responses; where that is None, the lease of a fetch."""
        verdicts: list[Any] = []

        def judged(held: Sequence[Stored], _: Sequence[Stored]) -> bool:
            verdicts.append(judge(held))
            return verdicts[-1] is not None

        lease = self.tier.begin(name, time.time())
        filled = asyncio.get_running_loop().create_future()
        self.tier.fill(lease, Request(b"GET", b"/", []), judged, filled.set_result, joined=True)
        if not await filled:
            return lease
        await self.release(lease)
        return verdicts[-1]

    async def purge(self, selector: Selector, now: float = 0.0, *, sparing: Any = None) -> int:
        return await self.tier._publish(selector, now or time.time(), sparing, counts=True)

    async def count(self, selector: Selector) -> int:
        return await self.tier.count(selector)


@dataclass
class Node:
    """One process, as it were."""

    memory: MemoryStore
    store: Store

    @property
    def tier(self) -> SharedTier:
        return self.store.tier

    async def put(self, stored: Stored) -> bool:
        return await self.store.commit(await self.store.begin(stored.key), stored)

    def bodies(self, name: bytes = KEY) -> list[bytes]:
        """The fresh bodies in memory."""
        now = time.time()
        return [one.body for one in self.tier.lookup(name, now) if one.fresh_until > now]

    async def loses_redis(self) -> None:
        """Wait until a killed Redis counts as lost: let the time pass for which its last sign is trusted."""
        purges = self.tier._purges
        await eventually(lambda: purges._reason)
        purges._trusted_until = purges._trusted_until._replace(clock=0.0)
        purges._tasks[1].cancel()
        purges._tasks[1] = asyncio.create_task(purges._watch())
        await eventually(lambda: not self.store.connected)

    async def outlives(self, server: Server) -> None:
        """Wait until it has lost a killed Redis and is back at the one that begins in its place."""
        server.kill()
        await self.loses_redis()
        server.start()
        await eventually(lambda: self.store.connected)

    async def read(self, name: bytes = KEY) -> list[bytes]:
        return [one.body for one in await self.store.lookup(name)]

    async def get(self, name: bytes, origin: Callable[[], Awaitable[Stored]]) -> bytes:
        """Answer a request from memory, from the shared store or from the origin server."""
        held = self.bodies(name)
        if held:
            return held[0]
        found = await self.store.obtain(name, lambda variants: variants[0].body if variants else None)
        if isinstance(found, bytes):
            return found
        try:
            stored = await origin()
        except BaseException:
            await self.store.release(found)
            raise
        await self.store.commit(found, stored)
        return stored.body

    async def purge(self, name: bytes = KEY) -> int:
        return await self.store.purge(Keys(frozenset((name,))))


@pytest.fixture(scope="session", autouse=True)
def version_read_once() -> Iterator[None]:
    """redis-py would read its own version from its files for each connection."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(metadata, "version", cache(metadata.version))
        yield


@pytest.fixture(params=ENGINES or [None])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param is None:
        pytest.skip("needs redis-server or valkey-server (Debian packages of these names)")
    started = Server(tmp_path, request.param)
    started.start()
    yield started
    started.kill()


@pytest.fixture
async def join(server: Server) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """Adds a node."""
    nodes: list[Node] = []

    async def added(connected: bool = True, **settings: Any) -> Node:
        memory, times = MemoryStore(), TIMES | settings.pop("times", {})
        asked = RedisSettings(timeout=times["command"], heartbeat=times["heartbeat"])
        url, patience = settings.pop("url", server.url), times["patience"]
        clock = settings.pop("clock", time.time)
        tier = redis_tier(url, memory, clock, settings=asked, patience=patience, **settings)
        node = Node(memory, Store(tier))
        nodes.append(node)
        await node.store.start(5.0 if connected else 0.1)
        assert node.store.connected is connected
        return node

    yield added
    for node in nodes:
        await node.store.aclose()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits for a condition; others may have the processor."""

    return eventually


@pytest.fixture
def made() -> Callable[..., Stored]:
    return response


@pytest.fixture
def named() -> Callable[[str], bytes]:
    return key
