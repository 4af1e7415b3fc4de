"""The shared tier: a Redis or Valkey behind each node's memory, in which all of them store and purge.

Memory answers first. Responses that it lacks are read from Redis into it; what a node fetches is stored in
Redis first. Redis tells every node which keys change, and memory forgets those. So memory holds nothing that
was purged, on whichever node, before the time that the tracking connection last confirmed: `trusted_until` is
that time and `bound` seconds. While there is no such connection a node goes on from memory alone, emptied
first, with what it stores served for `detached_ttl` seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from univocal.cache.stored import Stored
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.codec import encode, usable_until, variant
from univocal.store.leases import Lease, SharedLease
from univocal.store.memory import MemoryStore
from univocal.store.patterns import compiled
from univocal.store.purge_selectors import Pattern, Selector, located
from univocal.store.redis.attachment import Attachment
from univocal.store.redis.bell import UnavailableError, Waits
from univocal.store.redis.key_names import Names
from univocal.store.redis.scripts import BEGIN, COMMIT, DESCRIBED, MOST_OCTETS, RELEASE
from univocal.store.tiers import Satisfies, TierLease, Tiers, is_among, local_of

if TYPE_CHECKING:
    from univocal.store.redis.commands import Link
from typing import TYPE_CHECKING

from univocal.cache.vary import matches
from univocal.store.codec import decode
from univocal.store.redis.scripts import LOOKUP

__all__ = ["Reading", "SharedLease", "SharedStore", "TrackedTier", "read"]

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")

# Asks for no content of what it does not select.
_NOTHING: Final = Request(b"GET", b"", [])

# How often a key is read that changes while it is read.
_READINGS: Final = 3


class SharedStore:
    """A memory store and the Redis behind it.

    `clock` gives seconds since the epoch, `detached_ttl` is in seconds. `pattern` makes a selector of an
    expression, for bans that other nodes set; without it they empty memory. Use it from one event loop,
    between `start` and `aclose`. Raises ConfigurationError for a URL of no Redis, or without redis-py.
    """

    def __init__(
        self,
        memory: MemoryStore,
        url: str,
        clock: Callable[[], float],
        detached_ttl: float = 5.0,
        *,
        times: Waits | None = None,
        max_connections: int = 32,
        pattern: Callable[[str], Pattern] | None = None,
    ) -> None:
        self.memory: Final = memory
        self.clock: Final = clock
        self.detached_ttl = detached_ttl
        self.times: Final = times or Waits()
        self._attachment = Attachment(memory, url, clock, self.times, max_connections, pattern)

    @classmethod
    def at(
        cls, url: str, memory: MemoryStore, clock: Callable[[], float], detached_ttl: float = 5.0
    ) -> SharedStore:
        """The store at a URL, with patterns where RE2 is installed. Raises ConfigurationError."""
        pattern = compiled if find_spec("re2") else None
        return cls(memory, url, clock, detached_ttl, pattern=pattern)

    @property
    def connected(self) -> bool:
        """True while Redis tells this node what changes."""
        return self._attachment.connected

    @property
    def bound(self) -> float:
        """The most seconds for which a node may serve what was purged on another."""
        return self._attachment.bound

    @property
    def trusted_until(self) -> float:
        """Memory may be served from until this time (seconds since the epoch); later it counts as empty."""
        return self._attachment.trusted_until

    async def start(self, patience: float = 1.0) -> None:
        """Connect, and wait up to `patience` seconds for it; if that is not enough, it goes on by itself."""
        await self._attachment.start(patience)

    async def aclose(self) -> None:
        """Disconnect; what memory stores from then on is bounded."""
        await self._attachment.aclose()

    async def purge(self, selector: Selector, now: float, *, sparing: SharedLease | None = None) -> int:
        """Remove what is selected on every node, or mark it stale; returns the number of responses meant.

        Of prefixes, patterns and everything the cost is one walk through all keys of Redis's database, in
        small steps. Raises RefusedError if Redis did not confirm: then it is purged here, and there as soon
        as it is back.
        """
        if sparing is None:
            return await self._attachment.purge(selector, now, None, None)
        return await self._attachment.purge(selector, now, sparing.local, (sparing.key, sparing.token))

    async def count(self, selector: Selector) -> int:
        """The number of responses that `purge` would mean; it removes nothing.

        Raises RefusedError where Redis does not tell.
        """
        return await self._attachment.count(selector)

    # ── a miss ──────────────────────────────────────────────────────────────────────────────────────────────

    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Stored]:
        """The responses that all nodes store under a key, newest first; memory holds them from now on.

        Responses that the `request` does not select may come without content; memory does not hold them.
        """
        return (await self._look(key, now, request))[0]

    async def obtain(
        self,
        key: bytes,
        judge: Callable[[Sequence[Stored]], T | None],
        begun: SharedLease | None = None,
        request: Request | None = None,
    ) -> T | SharedLease:
        """Let `judge` judge the responses that all nodes store; return its verdict, or else begin the lease.

        While another node fetches this key it is waited for, `Waits.patience` at most. A request that
        waited in vain, for nothing was stored that `judge` takes, waits for no other. A lease that has
        `begun` in memory is the one that is given. For `request` see `lookup`.
        """
        lease = begun or SharedLease(key, self.memory.begin(key, self.clock()), "")
        try:
            verdict = await self._awaited(lease, judge, request)
        except BaseException:
            await self.release(lease)  # else others would wait for a request that nobody makes
            raise
        if verdict is None:
            return lease
        if begun is None:
            self.memory.release(lease.local)
        return verdict

    async def _awaited(
        self, lease: SharedLease, judge: Callable[[Sequence[Stored]], T | None], request: Request | None
    ) -> T | None:
        """The verdict of `judge`; None once the lease has begun."""
        loop, key = asyncio.get_running_loop(), lease.key
        until, alone, last = loop.time() + self.times.patience, True, None
        while True:
            variants, seen = await self._look(key, self.clock(), request)
            verdict = judge(variants)
            if verdict is not None:
                return verdict
            # The responses of another node are for other requests than this one.
            alone, last = alone and (last is None or not seen or seen == last), seen
            left = until - loop.time()
            with self._attachment.bell.listening(key) as heard:
                wait = await self._begin(lease, seen if alone and left > 0 else None)
                if wait is None:
                    return None
                if wait:
                    alone = not await heard(min(left, wait))

    async def _look(
        self, key: bytes, now: float, request: Request | None
    ) -> tuple[Sequence[Stored], bytes | None]:
        """The stored responses of a key and the token of the last commit among them; None: it is unknown."""
        with suppress(UnavailableError):
            for _ in range(_READINGS):
                link = self._attachment.link
                if link is None:
                    break
                # The lease is older than the reading: what is purged after the reading is told after it, too.
                lease = self.memory.begin(key, now)
                try:
                    reading = await read(link, key, now, request)
                    for one in reading.whole:
                        self.memory.commit(lease, one)
                    if all(self.memory.holds(lease, one) for one in reading.all):
                        return reading.all, reading.seen
                finally:
                    self.memory.release(lease)
        return (), None

    # ── leases ──────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, key: bytes, begun: SharedLease | None = None) -> SharedLease:
        """A lease for a fetch that is about to begin, beside any other node's; its taker releases it.

        One that has `begun` in memory is the one that is given.
        """
        lease = begun or SharedLease(key, self.memory.begin(key, self.clock()), "")
        try:
            await self._begin(lease, None)
        except BaseException:
            await self.release(lease)
            raise
        return lease

    async def _begin(self, lease: SharedLease, seen: bytes | None) -> float | None:
        """Begin a lease that others wait for, if there is none and the entry is as it was `seen`.

        Else how many seconds another still has its own, 0 if the entry changed. With None for `seen` it
        begins whatever others do, and nobody waits for it.
        """
        link = self._attachment.link
        if link is None:
            return None
        names, lease.token = link.names, secrets.token_hex(8)
        keys = [names.lock(lease.key), names.log, names.entry(lease.key)]
        lock, life = (int(1000 * seconds) for seconds in (self.times.lock, self.times.lease))
        alone, last = int(seen is not None), seen or b""
        try:
            begun, wait = await link.run(BEGIN, keys, [lease.token, lock, life, alone, last])
        except UnavailableError:
            lease.token = ""
            return None
        if begun == 1:
            return None
        lease.token = ""
        return float(wait / 1000)

    async def release(self, lease: SharedLease) -> None:
        """End a lease; those who wait for it are told if nothing was stored under it.

        Room reserved in memory under its local lease is given back by the one who reserved it.
        """
        self.memory.end(lease.local)
        link, token, lease.token = self._attachment.link, lease.token, ""
        if link is not None and token:
            with suppress(UnavailableError):
                await link.run(RELEASE, [link.names.lock(lease.key)], [token])

    async def commit(self, lease: SharedLease, stored: Stored) -> bool:
        """Store a response for all nodes; False if it was purged since the lease began, or is not to be kept.

        One with a No-Vary-Search, or of more than `MOST_OCTETS`, stays in this node's memory, as does all
        while Redis is away. Else the memory store's lease is not asked: any other variant that came ended it.
        """
        link, now = self._attachment.link, self.clock()
        if not stored.reusable:
            return False
        if link is None or not lease.token:
            return self._keep(lease.local, stored)
        keep = int(1000 * (usable_until(stored) - now))
        described, token = encode(stored), lease.token
        large = len(described) + len(stored.body) > MOST_OCTETS or stored.cost > self.memory.max_object_bytes
        if stored.search is not None or large or keep <= 0:
            return self.memory.commit(lease.local, stored)
        with self._attachment.bell.listening(stored.key) as heard:
            try:
                done = await link.run(COMMIT, *self._commit(link.names, token, stored, described, keep))
            except UnavailableError:
                return self._keep(lease.local, stored)
            if not done:
                return False
            lease.token = ""
            await heard(self.times.command)
        await self._confirm(link, stored, described)
        return True

    def _commit(
        self, names: Names, token: str, stored: Stored, described: bytes, keep: int
    ) -> tuple[list[bytes], list[bytes | int | str]]:
        key = stored.key
        keys = [names.lock(key), names.log, names.entry(key)]
        origin = b" ".join(located(key).split(b" ")[:2])
        bounds = [keep, self.memory.max_variants, MOST_OCTETS]
        return keys, [
            token,
            variant(stored.vary),
            described,
            stored.body,
            *bounds,
            origin,
            *sorted(stored.tags),
        ]

    async def _confirm(self, link: Link, stored: Stored, described: bytes) -> None:
        """Put into memory what was just stored in Redis, if it is still there.

        Memory was told of this change like of any other's and has forgotten the key. So it is asked once more
        before memory has it again: what changes after the answer is told after the new lease began.
        """
        lease = self.memory.begin(stored.key, self.clock())
        try:
            if await link.run(DESCRIBED, [link.names.entry(stored.key)], [variant(stored.vary)]) == described:
                self.memory.commit(lease, stored)
        except UnavailableError:
            pass
        finally:
            self.memory.release(lease)

    def _keep(self, lease: Lease, stored: Stored) -> bool:
        """Store in memory alone, for as long after it was asked for as other nodes' purges may go unheard."""
        until = min(stored.fresh_until, lease.time + self.detached_ttl)
        if until <= self.clock():
            return False
        bounded = replace(
            stored, fresh_until=until, stale_usable=False, stale_while_revalidate=0.0, stale_if_error=0.0
        )
        return self.memory.commit(lease, bounded)


class TrackedTier(Tiers):
    """Memory over Redis: each continuation that has to wait gets a task."""

    def __init__(self, store: SharedStore) -> None:
        super().__init__(store.memory)
        self.store: Final = store

    @property
    def connected(self) -> bool:
        """True while Redis tells this node what changes."""
        return self.store.connected

    async def start(self, patience: float = 1.0) -> None:
        """Connect, and wait up to `patience` seconds for it."""
        await self.store.start(patience)

    async def aclose(self) -> None:
        """Disconnect."""
        await self.store.aclose()

    @property
    def behind(self) -> float:
        """The seconds for which this node has not heard of Redis."""
        until = self.store.trusted_until
        return 0.0 if until == inf else max(0.0, self.store.clock() + self.store.bound - until)

    @property
    def ttl(self) -> float:
        """The seconds for which memory alone serves a response."""
        return self.store.detached_ttl

    @ttl.setter
    def ttl(self, seconds: float) -> None:
        """Have other seconds from now on."""
        self.store.detached_ttl = seconds

    @property
    def detached_ttl(self) -> float | None:
        return None if self.store.connected else self.store.detached_ttl

    def lookup(self, key: bytes, now: float) -> Sequence[Stored]:
        # Nothing while memory may hold what another node purged long ago.
        return self.memory.lookup(key) if now < self.store.trusted_until else ()

    def trusted(self, since: float, now: float) -> bool:
        store = self.store
        if now < store.trusted_until:
            return True
        return since >= store.trusted_until and now - since <= store.bound

    def begin(self, key: bytes, now: float) -> TierLease:
        return SharedLease(key, self.memory.begin(key, now), "")

    def held(self, lease: TierLease) -> Sequence[Stored]:
        held, shared = self.memory.lookup(lease.key), _shared(lease)
        if shared.seen is None:
            return held
        # The responses of memory may have been purged elsewhere.
        return [*(one for one in held if one.response_time >= shared.local.time), *shared.seen]

    def commit(self, lease: TierLease, stored: Stored) -> bool:
        _shared(lease).owed.append(stored)
        return self.holds(lease, stored)

    def drop(self, lease: TierLease, selector: Selector, now: float) -> None:
        self.memory.purge(selector, now, sparing=local_of(lease))
        _shared(lease).owed.append(selector)

    def fill(
        self,
        lease: TierLease,
        request: Request,
        judge: Satisfies,
        then: Callable[[bool], None],
        *,
        joined: bool,
    ) -> None:
        shared = _shared(lease)
        self._go_on(self._fill(shared, request, judge, joined=joined), then, otherwise=False)

    async def _fill(self, lease: SharedLease, request: Request, judge: Satisfies, *, joined: bool) -> bool:
        """Ask the shared tier, and wait for who fetches this elsewhere; else there is its lease.

        A response to validate is read once more under that lease: it may have been purged since the first
        reading.
        """
        store, latest = self.store, list[Stored]()

        def judged(held: Sequence[Stored]) -> bool | None:
            latest[:] = held
            return judge(*self._reliable(lease.key, held)) or None

        if joined:
            if await store.obtain(lease.key, judged, lease, request) is True:
                return True
            if not latest:
                return False
        else:
            await store.begin(lease.key, lease)
        held = await store.lookup(lease.key, store.clock(), request)
        lease.seen = held if store.connected else None
        return judged(held) is True

    def _reliable(self, key: bytes, held: Sequence[Stored]) -> tuple[Sequence[Stored], Sequence[Stored]]:
        """The stored responses that may be served, and those that the origin may be asked about.

        Memory alone may hold for a moment what was purged elsewhere: it may be served, but the origin is
        asked about no such response, unless it is one that never goes into the shared tier.
        """
        if held:
            return held, held
        known = self.lookup(key, self.store.clock())
        if not self.store.connected:
            return known, known
        return known, [one for one in known if one.search is not None]

    def keeps(self, lease: TierLease, stored: Stored, now: float, then: Callable[[bool], None]) -> None:
        if self.holds(lease, stored) or is_among(self.lookup(stored.key, now), stored):
            then(True)
        else:
            # Memory may merely have forgotten it: it forgets all of a key that changes in the shared tier.
            self._go_on(self._keeps(stored, now), then, otherwise=False)

    async def _keeps(self, stored: Stored, now: float) -> bool:
        return is_among(await self.store.lookup(stored.key, now, _NOTHING), stored)

    def recall(
        self, key: bytes, request: Request, now: float, then: Callable[[Sequence[Stored]], None]
    ) -> None:
        self._go_on(self.store.lookup(key, now, request), then, otherwise=())

    def invalidate(
        self, selectors: Iterable[Selector], now: float, lease: TierLease | None, then: Callable[[], None]
    ) -> None:
        async def purges() -> None:
            for selector in selectors:
                with suppress(RefusedError):
                    await self.store.purge(selector, now, sparing=None if lease is None else _shared(lease))

        self._go_on(purges(), lambda _: then(), otherwise=None)

    def let_go(self, lease: TierLease) -> None:
        self._go_on(self.store.release(_shared(lease)), lambda _: None, otherwise=None)

    def end(self, lease: TierLease, then: Callable[[], None]) -> None:
        self._go_on(self._settle(_shared(lease)), lambda _: then(), otherwise=None)

    async def _settle(self, lease: SharedLease) -> None:
        """Tell the shared tier what came of the response: from here on other nodes have it, and memory."""
        try:
            while lease.owed:
                match lease.owed.pop(0):
                    case Stored() as stored:
                        await self.store.commit(lease, stored)
                    case selector:
                        with suppress(RefusedError):
                            await self.store.purge(selector, self.store.clock(), sparing=lease)
        finally:
            await self.store.release(lease)

    async def _purge(self, selector: Selector, now: float) -> int:
        return await self.store.purge(selector, now)

    async def count(self, selector: Selector) -> int:
        return await self.store.count(selector)

    def _go_on(self, waiting: Coroutine[Any, Any, T], then: Callable[[T], None], *, otherwise: T) -> None:
        """Wait in a task, and go on; with `otherwise` where waiting failed."""

        async def run() -> None:
            try:
                result = await waiting
            except Exception:
                logger.exception("the shared store failed")
                result = otherwise
            then(result)

        self._begin_task(run())


def _shared(lease: TierLease) -> SharedLease:
    return cast("SharedLease", lease)


# More octets than these are not given unless they are asked for: whoever sends a selecting field of another
# value each time, for which nothing is stored, moves no more of a large entry than this.
_AT_ONCE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Reading:
    """The responses that are of use, whole or without their content, and the token of the last commit."""

    whole: list[Stored]
    others: list[Stored]
    seen: bytes

    @property
    def all(self) -> list[Stored]:
        """All of it, newest first."""
        return sorted((*self.whole, *self.others), key=lambda one: one.response_time, reverse=True)


async def read(link: Link, key: bytes, now: float, request: Request | None) -> Reading:
    """Read the responses of a key; with `request`, at least those that it selects have their content.

    Raises UnavailableError.
    """
    entry = [link.names.entry(key)]
    seen, *replies = await link.run(LOOKUP, entry, [_AT_ONCE])
    whole, others = list[Stored](), dict[bytes, Stored]()
    for name, described, body in _triples(replies):
        one = decode(key, described, body)
        if one is not None and usable_until(one) > now:
            if body is None:
                others[name] = one
            else:
                whole.append(one)
    presented: dict[bytes, bytes | None] = {}
    selected = [name for name, one in others.items() if request is None or matches(one, request, presented)]
    if selected:
        _, *replies = await link.run(LOOKUP, entry, [0, *selected])
        for _, described, body in _triples(replies):
            one = decode(key, described, body or b"")
            if one is not None:
                whole.append(one)
    return Reading(whole, [one for name, one in others.items() if name not in selected], seen)


def _triples(replies: list[bytes | None]) -> zip[tuple[bytes, bytes, bytes | None]]:
    return zip(replies[::3], replies[1::3], replies[2::3], strict=True)  # type: ignore[arg-type]
