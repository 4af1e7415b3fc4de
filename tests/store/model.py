"""A store in this process, with all that can go wrong between it and its nodes; and the laws of purging."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from support import idle, stored_response
from univocal.cache.stored import Stored
from univocal.cache.validation import selected
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.leases import FetchLease, Numbered
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Prefix, Purge, Selector, Tags, Variants
from univocal.store.roles import BeyondHorizonError, Entries, Purges, StoreUnavailableError, Watcher
from univocal.store.shared import SharedTier

T = TypeVar("T")

START = 1_790_000_000.0
DETACHED = 5.0
BOUND = 1.5


@dataclass
class ModelServer:
    """A store that all nodes share: rows, purges, fetch locks, and the commands that come late.

    With `are_siblings` all nodes are on one machine: they also share the number `in_force`.
    """

    rows: dict[bytes, dict[object, tuple[int, Stored]]] = field(default_factory=dict)
    purges: list[Purge] = field(default_factory=list)
    fetch_locks: dict[bytes, bytes] = field(default_factory=dict)
    late: list[Callable[[], object]] = field(default_factory=list)
    horizon: int = 0
    are_siblings: bool = False
    in_force: int = 0


class ModelPurges(Purges):
    """One node's view of the journal: it hears what is `delivered`, unless it is cut off."""

    def __init__(self, server: ModelServer, clock: Callable[[], float]) -> None:
        self.server, self.clock, self.bound = server, clock, BOUND
        self.known = 0
        self.heard_at = clock()
        self.is_cut = self.is_still = self.answer_is_lost = False
        self.watcher: Watcher | None = None

    async def start(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.deliver()
        watcher.returned()

    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        await asyncio.sleep(0)
        if self.is_cut:
            raise StoreUnavailableError
        self.server.purges.append(Purge(self._end() + 1, now, selector, cause))
        if self.server.are_siblings and not isinstance(selector, Variants):
            self.server.in_force = self._end()
        if self.answer_is_lost:
            self.answer_is_lost = False
            raise StoreUnavailableError
        self.deliver()
        await asyncio.sleep(0)
        return self._end()

    def _end(self) -> int:
        return self.server.purges[-1].number if self.server.purges else self.server.horizon

    def deliver(self, many: int = 1_000_000) -> None:
        """Hear of so many more purges; of all of them, it is known by when."""
        if self.is_cut:
            return
        self.known = min(self._end(), max(self.known, self.server.horizon) + many)
        if self.known == self._end():
            self.heard_at = self.clock()

    def last(self) -> int:
        return max(self.known, self.server.in_force)

    async def reach(self, number: int, seconds: float) -> None:
        await asyncio.sleep(0)
        if not self.is_still and self.known < number:
            self.deliver(number - self.known)

    def follow(self, number: int) -> Sequence[Purge]:
        if number < self.server.horizon:
            raise BeyondHorizonError
        return [purge for purge in self.server.purges if number < purge.number <= self.known]

    def horizon(self) -> int:
        return self.server.horizon

    def trusted_until(self) -> float:
        return self.heard_at + BOUND

    async def close(self) -> None:
        pass


class ModelEntries(Entries):
    """One node's way to the rows; a commit may come late, or never."""

    def __init__(self, server: ModelServer, purges: ModelPurges) -> None:
        self.server, self.purges = server, purges
        self.commits_come_late = False

    async def _go(self) -> None:
        await asyncio.sleep(0)
        if self.purges.is_cut:
            raise StoreUnavailableError

    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Numbered]:
        await self._go()
        rows = self.server.rows.get(key, {}).values()
        return [Numbered(number, stored) for number, stored in rows]

    async def begin(self, lease: FetchLease, now: float) -> float:
        await self._go()
        lease.holder = self.server.fetch_locks.setdefault(lease.key, lease.token)
        lease.has_lock = lease.holder == lease.token
        return 0.0 if lease.has_lock else 1.0

    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        await self._go()
        rows = self.server.rows.setdefault(stored.key, {})

        def carry_out() -> bool:
            replaced = stored.vary in rows
            rows[stored.vary] = number, stored
            return replaced

        if self.commits_come_late:
            self.server.late.append(carry_out)
            raise StoreUnavailableError
        return carry_out()

    async def end(self, lease: FetchLease) -> None:
        if self.server.fetch_locks.get(lease.key) == lease.token:
            del self.server.fetch_locks[lease.key]
        lease.has_lock = False

    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        await self._go()
        return [Numbered(*row) for key in keys for row in self.server.rows.pop(key, {}).values()]

    async def count(self, selector: Selector, after: int) -> int | None:
        await self._go()
        rows = [row for rows in self.server.rows.values() for row in rows.values()]
        return sum(number >= after and selector.means(one) for number, one in rows)

    async def close(self) -> None:
        pass


KEYS = [b"0123456789abcdef http a /%d" % number for number in range(2)]
TAGS = [b"t", b"u"]
keys = st.sampled_from(KEYS)
orders: st.SearchStrategy[Selector] = st.one_of(
    st.builds(Keys, st.frozensets(keys, min_size=1, max_size=2)),
    st.builds(Tags, st.frozensets(st.sampled_from(TAGS), min_size=1)),
    st.builds(Prefix, st.sampled_from([frozenset((b"http a /",)), frozenset((b"http a /1",))])),
    st.just(Everything()),
)


@dataclass
class Fetch:
    node: int
    lease: Any
    stored: Stored


class Node:
    """A tier, and what stands between it and the store."""

    def __init__(self, tier: SharedTier, purges: Purges, entries: Entries) -> None:
        self.tier, self.purges, self.entries = tier, purges, entries
        self.is_new = True


class Laws(RuleBasedStateMachine):
    """Nodes fetch, look up and purge. The content of a response is the moment at which it was fetched.

    Subclasses give the nodes, and what can go wrong with their store.
    """

    nodes_count = 2
    lag = BOUND  # seconds after which a purge is in force on the other nodes

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now, self.moment = START, 0
        self.under_way: list[Fetch] = []
        # The node, the time, the moment and the selector of each purge that was confirmed.
        self.confirmed: list[tuple[int, float, int, Selector]] = []
        self.fetched_at: dict[bytes, float] = {}
        self.nodes = [self.run(self.new_node(number)) for number in range(self.nodes_count)]

    def clock(self) -> float:
        return self.now

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            result = await work
            await self.rest()
            return result

        return self.loop.run_until_complete(whole())

    async def rest(self) -> None:
        """Wait until the tiers' tasks have ended, or come to where they wait for time or a thread."""
        for _ in range(8):
            await idle()

    async def new_node(self, number: int) -> Node:
        raise NotImplementedError

    def may_serve_unknown(self, node: Node) -> bool:
        """Tell whether a node is known to answer alone."""
        return node.tier.detached_ttl is not None

    def check(self, number: int, held: Sequence[Stored]) -> None:
        node = self.nodes[number]
        for stored in held:
            moment = int(stored.body)
            for other, time, mark, selector in self.confirmed:
                if moment > mark or not selector.means(stored):
                    continue
                if other != number and self.now - time < self.lag:
                    continue
                alone = self.may_serve_unknown(node) and other != number
                age = self.now - self.fetched_at[stored.body]
                assert alone, f"node {number} serves {moment}, which {selector} means"
                assert age <= DETACHED

    @rule(
        number=st.integers(0, 1),
        key=keys,
        tags=st.sets(st.sampled_from(TAGS)),
        accept=st.sampled_from([b"", b"x"]),
        stays=st.booleans(),
    )
    def fetch(self, number: int, key: bytes, tags: set[bytes], accept: bytes, stays: bool) -> None:
        """Fetch what is not served; where it `stays` under way, it is finished later."""
        tier = self.nodes[number].tier
        request = Request(b"GET", b"/", [(b"accept", accept)])
        served = list[Stored]()

        def judge(servable: Sequence[Stored], askable: Sequence[Stored]) -> bool:
            served[:] = selected(request, servable)
            return bool(served)

        async def go() -> Fetch | None:
            lease = tier.begin(key, self.now)
            self.moment += 1
            moment = self.moment
            self.fetched_at[b"%d" % moment] = self.now
            done = asyncio.get_running_loop().create_future()
            tier.fill(lease, request, judge, done.set_result, joined=True)
            if await done:
                tier.end(lease, lambda: None)
                tier.memory.leases.release(lease)
                return None
            fields = [(b"vary", b"accept"), (b"cache-control", b"max-age=60")]
            fields += [(b"xkey", b" ".join(sorted(tags)))] if tags else []
            stored = stored_response(
                *fields, name=key, request=[(b"accept", accept)], body=b"%d" % moment, at=self.now
            )
            return Fetch(number, lease, stored)

        fetch = self.run(go())
        if fetch is None:
            self.check(number, served)
        elif stays:
            self.under_way.append(fetch)
        else:
            self.run(self.settle(fetch, replaces=False))

    @rule(which=st.integers(0, 9), replaces=st.booleans())
    def finish(self, which: int, replaces: bool) -> None:
        """Finish one that is under way, if there is one: with threads that is not the same each time."""
        if self.under_way:
            self.run(self.settle(self.under_way.pop(which % len(self.under_way)), replaces=replaces))

    async def settle(self, fetch: Fetch, *, replaces: bool) -> None:
        """Store what was fetched."""
        tier, stored = self.nodes[fetch.node].tier, fetch.stored
        if replaces:
            others = frozenset((stored.key, one.vary) for one in tier.held(fetch.lease))
            if others:
                tier.drop(fetch.lease, Variants(others, self.now), self.now)
        tier.commit(fetch.lease, stored)
        ended = asyncio.get_running_loop().create_future()
        tier.end(fetch.lease, lambda: ended.set_result(None))
        await ended
        tier.memory.leases.release(fetch.lease)

    @rule()
    def look_around(self) -> None:
        """See what every node serves within the call."""

        async def look_up(number: int, key: bytes) -> Sequence[Stored]:
            tier = self.nodes[number].tier
            return [*tier.lookup(key, self.now), *tier.glance(key, self.now)]

        for number in range(self.nodes_count):
            for key in KEYS:
                self.check(number, self.run(look_up(number, key)))

    @rule(number=st.integers(0, 1), selector=orders)
    def purge(self, number: int, selector: Selector) -> None:
        try:
            self.run(self.nodes[number].tier.purge(selector, self.now))
        except RefusedError:
            return
        self.confirmed.append((number, self.now, self.moment, selector))
        self.look_around()

    @rule(number=st.integers(0, 1), at_once=st.booleans())
    def purge_while_others_go_on(self, number: int, at_once: bool) -> None:
        """A fetch that begins while a purge is under way may be stored, or not: nothing older may."""

        async def go() -> int:
            tier = self.nodes[number].tier
            purging = asyncio.ensure_future(tier.purge(Everything(), self.now))
            if not at_once:
                await asyncio.sleep(0)
            moment = self.moment
            try:
                await purging
            except RefusedError:
                return -1
            return moment

        moment = self.run(go())
        if moment >= 0:
            self.confirmed.append((number, self.now, moment, Everything()))

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.beat())
        self.look_around()

    async def beat(self) -> None:
        """Do a heartbeat's work of the store."""

    @rule(number=st.integers(0, 1))
    def restart(self, number: int) -> None:
        self.under_way = [fetch for fetch in self.under_way if fetch.node != number]
        self.run(self.stop(self.nodes[number]))
        self.nodes[number] = self.run(self.new_node(number))

    async def stop(self, node: Node) -> None:
        """End a node as a kill does."""
        node.tier.lost("the node ended")

    def teardown(self) -> None:
        for node in self.nodes:
            self.run(self.stop(node))
        self.loop.run_until_complete(self.rest())
        self.loop.run_until_complete(asyncio.sleep(0.01))  # connections that were closed are gone
        self.loop.close()


def tier_over(
    entries: Entries, purges: Purges, clock: Callable[[], float], max_bytes: int = 1 << 20
) -> SharedTier:
    """A tier that waits for no other node's fetch."""
    memory = MemoryStore(max_bytes=max_bytes)
    return SharedTier(memory, lambda: (entries, purges), clock, DETACHED, patience=0.0)
