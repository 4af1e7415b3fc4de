"""Memory over a store that several nodes have in common: validity by number, for every such store.

See `roles.py` for what the store promises, and docs/architecture.md for the rule. Memory is purged up to the
number `followed`; each lookup compares it with the journal's last one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf, nextafter
from typing import Any, Final, TypeVar, cast

from univocal.cache.stored import Stored, softened
from univocal.http.errors import RefusedError, lacks_memory
from univocal.http.messages import Request
from univocal.store.codec import pieces_of, usable_until
from univocal.store.leases import FetchLease, Journal, Lease, Numbered
from univocal.store.memory import Entry, MemoryStore, in_slices
from univocal.store.purge_selectors import Everything, Purge, Selector, Variants
from univocal.store.roles import (
    Absent,
    BeyondHorizonError,
    Entries,
    Purges,
    StoreStats,
    StoreUnavailableError,
)
from univocal.store.tiers import Satisfies, Tiers, is_among

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")

# Purges that the store did not take are owed: more than these become a purge of everything.
_MOST_OWED: Final = 1_000
# Seconds between two looks whether another node has fetched a key: the first, the factor, and the most.
_FIRST_PAUSE: Final = 0.005
_BACK_OFF: Final = 1.5
_MOST_PAUSE: Final = 0.1
# Seconds that the answer to a purge waits for a count that is not exact anyway; of no more entries in memory
# than these it waits for all.
_COUNTING: Final = 0.01
_COUNTED: Final = 2_000
# Seconds that a request waits for a purge that another process of this machine has confirmed.
_CATCH_UP: Final = 0.1
# Seconds between two attempts at work in the background.
_AGAIN: Final = 0.5
# Attempts to read entries while purges are forgotten.
_ATTEMPTS: Final = 3
# Asks for no content of what it does not select.
_NOTHING: Final = Request(b"GET", b"", [])


@dataclass(slots=True, eq=False)
class _Cause:
    """A purge that this node publishes: the lease that it spares, and what it meant in memory."""

    lease: Lease | None
    count: int = 0
    walks: list[asyncio.Task[None]] = field(default_factory=list)


class SharedTier(Tiers):
    """Memory over the entries and purges that `opened` gives; it is the `Watcher` of the latter.

    `clock` gives seconds since the epoch; `detached_ttl` and `patience` are in seconds: for the latter a
    request waits for what another node fetches. Use it from one event loop, between `start` and `aclose`.
    A `start` behind `aclose` opens it again, as does one in a process that a fork has made, which shares no
    lock with another.
    """

    def __init__(
        self,
        memory: MemoryStore,
        opened: Callable[[], tuple[Entries, Purges]],
        clock: Callable[[], float],
        detached_ttl: float = 5.0,
        *,
        patience: float = 5.0,
        name: str = "the store",
    ) -> None:
        self._entries, self._purges = opened()
        super().__init__(memory, glances=self._entries.glances)
        self._opened: Final = opened
        self._process = os.getpid()  # which has opened it, or 0
        self.clock: Final = clock
        self.name: Final = name
        self.ttl = detached_ttl
        self._patience = patience
        self._journal = Journal()
        self._followed = 0
        self._is_there = False
        self._there = asyncio.Event()
        self._away_since: float | None = None
        self._returning: asyncio.Task[None] | None = None
        self._walk: asyncio.Task[None] | None = None
        self._causes: dict[bytes, _Cause] = {}
        self._owed: list[Selector] = []
        self._dropped: list[Selector] = []  # that the end of a lease publishes
        self._tokens: Final = _tokens()

    # The store comes and goes

    @property
    def connected(self) -> bool:
        """True while the journal is followed."""
        return self._is_there

    @property
    def detached_ttl(self) -> float | None:
        return None if self._is_there else self.ttl

    @property
    def behind(self) -> float:
        """The seconds for which this node has not heard of the journal's end."""
        until = self._purges.trusted_until()
        return 0.0 if until == inf else max(0.0, self.clock() + self._purges.bound - until)

    @property
    def evictions(self) -> int:
        """The number of the store's responses that this process has removed to make room."""
        return self._entries.evictions

    async def holding(self) -> StoreStats | None:
        """The responses that the store holds by now; None if it does not say."""
        try:
            return await self._entries.holding() if self._is_there else None
        except StoreUnavailableError:
            return None

    async def start(self, patience: float = 1.0) -> None:
        """Begin to follow the journal, and wait up to `patience` seconds for it; then go on without."""
        if self._process != os.getpid():
            self.adopt(*self._opened())
            self._process = os.getpid()
        await self._purges.start(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._there.wait()

    def adopt(self, entries: Entries, purges: Purges) -> None:
        """Have these parts of the store, which could not be opened before."""
        self._entries, self._purges = entries, purges

    async def aclose(self) -> None:
        """Write what is under way, and follow the journal no longer."""
        if self._returning is not None:
            self._returning.cancel()
        if self._walk is not None:
            self._walk.cancel()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._returning = self._walk = None
        self._is_there, self._there = False, asyncio.Event()
        self._empty()
        await self._purges.close()
        await self._entries.close()
        closed = Absent("it is closed", self._opened)
        self.adopt(closed, closed)
        self._process = 0

    def lost(self, reason: str) -> None:
        """Go on alone, with an empty memory: it may hold what is purged elsewhere."""
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        if self._is_there or self._away_since is None:
            self._away_since = self.clock()
            logger.warning("lost %s (%s): this node caches alone until it is back", self.name, reason)
        if self._is_there:
            self._is_there = False
            self._there.clear()
            self._empty()

    def returned(self) -> None:
        """Publish what is owed, then follow the journal."""
        if self._returning is None and not self._is_there:
            self._returning = self._persist(self._return)

    def heard(self) -> None:
        """Purge memory at once, also of keys that are not looked up."""
        try:
            self._follow()
        except Exception as error:  # the journal is still to be followed
            self._note(error)

    async def _return(self) -> None:
        while self._owed:
            await self._publish_owed()
        self._empty()
        self._read_journal()
        self._returning, self._is_there = None, True
        self._there.set()
        if self._walk is None:
            self._walk = self._persist(
                lambda: self._entries.walk(self._left_of, self._number_by_now, lambda: self._journal.noted)
            )
        if self._away_since is not None:
            seconds, self._away_since = self.clock() - self._away_since, None
            logger.warning("%s is back, after %.1f seconds", self.name, seconds)

    def _empty(self) -> None:
        slices = self.memory.purging(Everything(), self.clock())
        if next(slices, None) is not None:
            self._begin_task(_count_into(_Cause(None), slices))

    # The journal

    def _read_journal(self) -> None:
        """Know all of the journal that there is."""
        settled = self._purges.settled()
        horizon = self._purges.horizon() if settled is None else settled.first
        known, noted = self._followed, self._journal.noted
        self._journal = Journal(horizon if settled is None else 0)
        self._journal.noted = noted  # the walk compares it with what it was
        if settled is not None:
            self._journal.trim(*settled)
        with suppress(BeyondHorizonError):
            for purge in self._purges.follow(horizon):
                self._journal.add(purge)
                if purge.number <= known:
                    self._journal.noted = noted
        self._followed = max(self._journal.last, horizon)

    def _follow(self) -> bool:
        """Purge memory of what was published since the last call; False if more is in force than is known.

        A miss follows where it has waited: behind what it read, when its head has come, before it is stored,
        and before the store gets it. Each request that would join it follows, too.
        """
        last = self._purges.last()
        if last == self._followed:
            return True
        if not self._is_there:
            # Alone, this node cannot read which purge another process of this machine has confirmed.
            if last > self._followed:
                self._followed = last
                self._empty()
            return True
        try:
            purges = self._purges.follow(self._followed)
        except BeyondHorizonError:
            self._empty()
            self._read_journal()
            return self._followed >= last
        for purge in purges:
            self._journal.add(purge)
            self._followed = purge.number
            self._carry_out(purge)
        if (settled := self._purges.settled()) is not None:
            self._journal.trim(*settled)
        return self._followed >= last

    def _number_by_now(self) -> int:
        """The number of the last purge, which is known from now on; 0 while the journal cannot be read.

        Alone, this node knows the number of a purge in force, and not what it means.
        """
        if not self._is_there:
            return 0
        self._follow()
        return self._followed

    async def _catch_up(self) -> None:
        """Wait a moment for the purges that another process of this machine has confirmed."""
        if not self._follow():
            await self._purges.reach(self._purges.last(), _CATCH_UP)

    def _carry_out(self, purge: Purge) -> None:
        cause = self._causes.get(purge.cause) if purge.cause else None
        lease = cause.lease if cause is not None else None
        kept = _fetch(lease).kept if lease is not None else None
        holds = kept is not None and any(one is kept for one in self.memory.lookup(kept.key))
        slices = self.memory.purging(purge.selector, purge.time, sparing=lease)
        first = next(slices, None)
        if cause is not None:
            cause.count += first or 0
        if first is not None:
            walk = self._begin_task(_count_into(cause or _Cause(None), slices))
            if cause is not None:
                cause.walks.append(walk)
        gone = holds and kept is not None and not any(one is kept for one in self.memory.lookup(kept.key))
        if gone and kept is not None and lease is not None:
            self.memory.commit(lease, kept)  # the purge is about the responses before it

    # Within the call

    def lookup(self, key: bytes, now: float) -> Sequence[Stored]:
        return self.memory.lookup(key) if self._relies(now) else ()

    def revisit(self, entry: Entry, now: float) -> Sequence[Stored]:
        return self.memory.revisit(entry) if entry.variants and self._relies(now) else ()

    def _relies(self, now: float) -> bool:
        """Tell whether memory has taken every purge into account that it has to know of by now."""
        purges = self._purges
        if purges.last() != self._followed and not self._follow():
            return False
        return not self._is_there or now < purges.trusted_until()

    def trusted(self, since: float, now: float) -> bool:
        if not self._follow():
            return False
        if not self._is_there:
            return True
        until = self._purges.trusted_until()
        return now < until or (since >= until and 0.0 <= now - since <= self._purges.bound)

    def begin(self, key: bytes, now: float, since: int | None = None) -> Lease:  # noqa: ARG002
        lease = self.memory.leases.begin(key, now)
        lease.fetch = FetchLease(key, next(self._tokens))
        return lease

    def holds(self, lease: Lease, stored: Stored | None = None) -> bool:
        self._follow()
        return self.memory.leases.holds(lease, stored)

    def held(self, lease: Lease) -> Sequence[Stored]:
        known = self.lookup(lease.key, self.clock())
        return [*known, *(one for one in self._valid(_fetch(lease).seen) if not is_among(known, one))]

    def commit(self, lease: Lease, stored: Stored) -> bool:
        self._follow()
        if not self._is_there:
            return self._keep(lease, stored)
        if not self.memory.fits(stored):
            if not (stored.reusable and self.memory.leases.holds(lease, stored)):
                return False
            older = Variants(frozenset(((stored.key, stored.vary),)), stored.response_time)
            self.memory.purge(older, self.clock(), sparing=lease)  # the store alone has the new one
        elif not self.memory.commit(lease, stored):
            return False
        fetch = _fetch(lease)
        fetch.kept = stored
        fetch.results.append(stored)
        return True

    def drop(self, lease: Lease, selector: Selector, now: float) -> None:
        self.memory.purge(selector, now, sparing=lease)
        _fetch(lease).results.append(selector)
        self._dropped.append(selector)

    def glance(self, key: bytes, now: float, *, keeps: bool = False) -> Sequence[Stored]:
        if not (self._is_there and self._relies(now)):
            return ()
        trimmed, seen = self._journal.trimmed, self._at_hand(key, now)
        if not seen:
            return ()
        valid = self._valid(seen, trimmed)
        is_known = self._journal.trimmed == trimmed
        if valid and is_known and (keeps or self.memory.is_worth_keeping(valid)):
            self._take_in([self._valid_by_now(each) for each in seen])
        return valid

    # With a continuation

    def fill(
        self,
        lease: Lease,
        request: Request,
        satisfies: Satisfies,
        then: Callable[[bool], None],
        *,
        joined: bool,
    ) -> None:
        satisfied = self._filled_at_once(lease, satisfies, joined=joined) if self._is_there else False
        if satisfied is None:
            self._spawn(self._fill(lease, request, satisfies, joined=joined), then, otherwise=False)
        else:
            then(satisfied)

    def _filled_at_once(self, lease: Lease, satisfies: Satisfies, *, joined: bool) -> bool | None:
        """Ask `satisfies` of what is at hand, and take the fetch lock; None where that takes a wait."""
        seen = self._at_hand(lease.key, self.clock(), anew=True)
        if seen is None:
            return None
        fetch = _fetch(lease)
        fetch.seen = seen = [self._valid_by_now(each) for each in seen]
        if seen:
            self._take_in(seen)
            if satisfies(*self._reliable(lease.key, seen)):
                return True
        if joined and not self._entries.take(fetch):
            return None
        self.memory.leases.begin_anew(lease, self.clock())
        return False

    def _at_hand(self, key: bytes, now: float, *, anew: bool = False) -> Sequence[Numbered] | None:
        """The store's responses of a key, as they were read; None if that takes a wait.

        The journal is followed behind that: another process may have purged them meanwhile.
        """
        trimmed = self._journal.trimmed
        numbered = self._entries.glance(key, now, anew=anew)
        if numbered is None or not self._follow():
            return None
        return numbered if self._journal.trimmed == trimmed else None

    async def _fill(self, lease: Lease, request: Request, satisfies: Satisfies, *, joined: bool) -> bool:
        """Ask `satisfies` of what the store has; where that does not satisfy it, the fetch begins now."""
        try:
            if await self._satisfied(lease, request, satisfies, joined=joined):
                return True
        except StoreUnavailableError:
            self._follow()
        self.memory.leases.begin_anew(lease, self.clock())
        return False

    async def _satisfied(self, lease: Lease, request: Request, satisfies: Satisfies, *, joined: bool) -> bool:
        """Tell whether the store `satisfies`; wait for another node's fetch while it does not."""
        loop, fetch, pause = asyncio.get_running_loop(), _fetch(lease), _FIRST_PAUSE
        until, holder = loop.time() + self._patience, b""
        while True:
            wait = await self._read(fetch, request, joined=joined)
            if satisfies(*self._reliable(fetch.key, fetch.seen)):
                return True
            if not joined or fetch.has_lock or loop.time() >= until:
                return False
            if wait == 0.0:
                wait = await self._entries.begin(fetch, self.clock())
                if wait == 0.0:
                    continue  # it may have been stored before the lock was free
            if holder and fetch.holder != holder:
                # The other fetch has ended: its response is stored by now, or answers another request.
                # A purge that ended its lock is not about this request's own fetch.
                await self._read(fetch, request, joined=False)
                return satisfies(*self._reliable(fetch.key, fetch.seen))
            holder = fetch.holder
            lease.waited = True
            await asyncio.sleep(min(pause, wait))
            pause = min(pause * _BACK_OFF, _MOST_PAUSE)

    async def _read(self, fetch: FetchLease, request: Request, *, joined: bool) -> float:
        """Read the key of a fetch into memory; returns the seconds for which another may still fetch it."""
        wait = 0.0

        async def read() -> Sequence[Numbered]:
            nonlocal wait
            if not joined or fetch.has_lock:
                return await self._entries.lookup(fetch.key, self.clock(), request)
            numbered, wait = await self._entries.lookup_or_begin(fetch, self.clock(), request)
            return numbered

        fetch.seen = await self._renumbered(read)
        self._take_in(fetch.seen)
        return wait

    async def _renumbered(self, read: Callable[[], Awaitable[Sequence[Numbered]]]) -> Sequence[Numbered]:
        """The entries that are read, as they are valid by now. Raises StoreUnavailableError.

        A purge that is carried out on the entries while they are read may be forgotten before it is known
        here: then they are read again.
        """
        for _ in range(_ATTEMPTS):
            trimmed = self._journal.trimmed
            numbered = await read()
            await self._catch_up()
            if self._journal.trimmed == trimmed:
                return [self._valid_by_now(each) for each in numbered]
        raise StoreUnavailableError("too many purges")

    def _valid_by_now(self, each: Numbered) -> Numbered:
        left = self._journal.surviving(each.number, each.stored)
        known = min(self._followed, self._journal.last)  # alone, the journal is not read, and may be longer
        return each if left is None else Numbered(max(each.number, known), left, each.has_content)

    def _reliable(self, key: bytes, seen: Sequence[Numbered]) -> tuple[Sequence[Stored], Sequence[Stored]]:
        """The stored responses that may be served, and those that the origin server may be asked about.

        This node may know of no purge since it read them: the process stood still, or the store is away. Then
        only memory counts.
        """
        relies = self._relies(self.clock())
        known = self.memory.lookup(key) if relies else ()
        if not (relies and self._is_there):
            return known, known
        whole = self._valid([one for one in seen if one.has_content])
        servable = [*known, *[one for one in whole if not is_among(known, one)]]
        if len(whole) == len(seen):
            return servable, servable
        others = self._valid([one for one in seen if not one.has_content])
        return servable, [*servable, *[one for one in others if not is_among(servable, one)]]

    def _valid(self, numbered: Sequence[Numbered], trimmed: int = -1) -> list[Stored]:
        """The responses, of those read, that the journal leaves valid, and the purges that it is owed.

        The journal was `trimmed` so far when they were read: what is forgotten since may mean them. It has
        been followed just now.
        """
        valid, journal, others = list[Stored](), self._journal, (*self._owed, *self._dropped)
        for each in numbered:
            if each.number < journal.trimmed != trimmed:
                continue
            left = journal.surviving(each.number, each.stored)
            owed = [one for one in others if one.means(each.stored)]
            if left is not None and all(one.soft for one in owed):
                valid.append(softened(left, self.clock()) if owed else left)
        return valid

    def _left_of(self, numbered: Sequence[Numbered]) -> list[Stored | None]:
        """Tell what purges have left of each response, for the walk that cleans up."""
        self._follow()
        return [self._journal.surviving(each.number, each.stored) for each in numbered]

    def _take_in(self, numbered: Sequence[Numbered]) -> None:
        """Copy the store's entries to memory, except those that are older than memory's."""
        for stored in self._valid([one for one in numbered if one.has_content]):
            here = [one for one in self.memory.lookup(stored.key) if one.vary == stored.vary]
            if not self._is_there or any(one.response_time >= stored.response_time for one in here):
                continue
            lease = self.memory.leases.begin(stored.key, self.clock())
            self.memory.commit(lease, stored)
            self.memory.leases.release(lease)

    def keeps(self, lease: Lease, stored: Stored, now: float, then: Callable[[bool], None]) -> None:
        if self.holds(lease, stored) or is_among(self.lookup(stored.key, now), stored):
            then(True)
        elif not self._is_there:
            then(False)
        else:
            self._spawn(self._keeps(stored, now), then, otherwise=False)

    async def _keeps(self, stored: Stored, now: float) -> bool:
        return is_among(self._valid(await self._looked_up(stored.key, now, _NOTHING)), stored)

    def _looked_up(self, key: bytes, now: float, request: Request) -> Awaitable[Sequence[Numbered]]:
        return self._renumbered(lambda: self._entries.lookup(key, now, request))

    def recall(
        self, key: bytes, request: Request, now: float, then: Callable[[Sequence[Stored]], None]
    ) -> None:
        if self._is_there:
            self._spawn(self._recall(key, request, now), then, otherwise=())
        else:
            then(self.memory.lookup(key))

    async def _recall(self, key: bytes, request: Request, now: float) -> Sequence[Stored]:
        with suppress(StoreUnavailableError):
            self._take_in(await self._looked_up(key, now, request))
        return self.lookup(key, now)

    def invalidate(
        self, selectors: Iterable[Selector], now: float, lease: Lease | None, then: Callable[[], None]
    ) -> None:
        listed = list(selectors)
        if not listed:
            then()
            return

        async def publish() -> None:
            for selector in listed:
                with suppress(RefusedError):
                    await self._publish(selector, now, lease)

        self._spawn(publish(), lambda _: then(), otherwise=None)

    def let_go(self, lease: Lease) -> None:
        fetch = _fetch(lease)
        if fetch.has_lock:
            self._spawn(self._entries.end(fetch), lambda _: None, otherwise=None)

    def end(self, lease: Lease, then: Callable[[], None]) -> None:
        fetch = _fetch(lease)
        if fetch.results or fetch.has_lock:
            self._spawn(self._settle(lease), lambda _: then(), otherwise=None)
        else:
            self.memory.leases.end(lease)
            then()

    async def _settle(self, lease: Lease) -> None:
        """Tell the store what came of the response: from here on other nodes have it."""
        fetch = _fetch(lease)
        while fetch.results:
            result = fetch.results.pop(0)
            try:
                if isinstance(result, Stored):
                    await self._store(lease, result)
                else:
                    with suppress(RefusedError):
                        await self._publish(result, self.clock(), lease)
            except Exception as error:
                self._note(error)
            finally:
                if not isinstance(result, Stored):
                    self._dropped.remove(result)
        self.memory.leases.end(lease)
        if fetch.has_lock:
            await self._entries.end(fetch)

    async def _store(self, lease: Lease, stored: Stored) -> None:
        """Store a response with the number up to which no purge means it."""
        place, fetch = frozenset(((stored.key, stored.vary),)), _fetch(lease)
        older = [one.stored for one in fetch.seen if (one.stored.key, one.stored.vary) in place]
        now, private = self.clock(), stored.search is not None
        late = [one.response_time for one in older if private or one.response_time >= stored.response_time]
        if late:  # another clock may be ahead; and what only this node keeps replaces what all have
            with suppress(RefusedError):
                await self._publish(Variants(place, max(late)), now, lease)
        self._follow()
        if private or usable_until(stored) <= now or not self.memory.leases.holds(lease, stored):
            return
        with suppress(StoreUnavailableError, RefusedError):
            if await self._entries.commit(fetch, self._followed, stored, now):
                await self._publish(Variants(place, nextafter(stored.response_time, 0.0)), now, None)

    # Purges

    async def _purge(self, selector: Selector, now: float) -> int:
        return await self._publish(selector, now, None, counts=True)

    async def _publish(
        self, selector: Selector, now: float, lease: Lease | None, *, counts: bool = False
    ) -> int:
        """Purge everywhere; returns the number of responses meant, if that `counts`.

        Raises RefusedError if the store did not take it: then it is purged here, and published later.
        """
        if not self._is_there:
            return self._owe(selector, now, lease)
        token = _fetch(lease).token if lease is not None else next(self._tokens)
        cause = self._causes.setdefault(token, _Cause(lease))
        covered, least = self._journal.covered(selector), self.memory.least(selector) if counts else 0
        shared, keys = 0, selector.keys() if counts else None
        try:
            if keys is not None:
                shared = await self._remove(keys, now, soft=selector.soft)
            for piece in pieces_of(selector, self._purges.most):
                number = await self._purges.publish(piece, now, token)
                await self._entries.settle(piece, number, now, waits=shared > 0)
            self._follow()
            if counts and keys is None and not selector.by_search:
                with suppress(StoreUnavailableError):
                    shared = await self._entries.count(selector, covered) or 0
            here = await self._count_of(selector, cause, least)
        except StoreUnavailableError:
            return self._owe(selector, now, lease)
        finally:
            self._causes.pop(token, None)
        return max(here, shared)

    async def _count_of(self, selector: Selector, cause: _Cause, least: int) -> int:
        """The number of responses that a purge in force meant in memory; of many at least `least`.

        They are removed in slices, and none is served meanwhile. An exact count waits for the last of them.
        """
        if cause.walks:
            is_soon = self.memory.stats.entries <= _COUNTED
            limit = None if is_soon or self._entries.counts(selector) else _COUNTING
            _, unfinished = await asyncio.wait(cause.walks, timeout=limit)
            return max(cause.count, least) if unfinished else cause.count
        return cause.count

    async def _remove(self, keys: Iterable[bytes], now: float, *, soft: bool) -> int:
        """Remove the entries of some keys, or leave them to be softened; returns how many are valid."""
        listed = sorted(keys)
        if not soft:
            return len(self._valid(await self._renumbered(lambda: self._entries.remove(listed))))
        return sum([len(self._valid(await self._looked_up(key, now, _NOTHING))) for key in listed])

    def _owe(self, selector: Selector, now: float, lease: Lease | None) -> int:
        self.memory.purge(selector, now, sparing=lease)
        if selector not in self._owed[1:]:  # the first may be on its way
            self._owed.append(selector)
        if len(self._owed) > _MOST_OWED:
            self._owed[1:] = [Everything()]
        if self._is_there and self._returning is None:
            self._returning = self._persist(self._pay)
        raise RefusedError("shared-store-unavailable")

    async def _pay(self) -> None:
        """Publish what is owed while the journal is followed."""
        while self._owed and self._is_there:
            await self._publish_owed()
        self._returning = None

    async def _publish_owed(self) -> None:
        """Publish the first purge that is owed; what is owed meanwhile, be it the same, is another."""
        for piece in pieces_of(self._owed[0], self._purges.most):
            number = await self._purges.publish(piece, self.clock())
            await self._entries.settle(piece, number, self.clock(), waits=False)
        del self._owed[0]

    def counts(self, selector: Selector) -> bool:
        return self._entries.counts(selector)

    async def count(self, selector: Selector) -> int:
        if not self._is_there:
            raise RefusedError("shared-store-unavailable")
        self._follow()
        here = await in_slices(self.memory.counting(selector))
        try:
            if (keys := selector.keys()) is not None:
                return max(here, await self._remove(keys, self.clock(), soft=True))
            return max(here, await self._entries.count(selector, self._journal.covered(selector)) or 0)
        except StoreUnavailableError:
            raise RefusedError("shared-store-unavailable") from None

    # The rest

    def _keep(self, lease: Lease, stored: Stored) -> bool:
        """Store in memory alone, for as long after it was asked for as other nodes' purges may go unheard."""
        until = min(stored.fresh_until, lease.time + self.ttl)
        if until <= self.clock():
            return False
        bounded = replace(
            stored, fresh_until=until, stale_usable=False, stale_while_revalidate=0.0, stale_if_error=0.0
        )
        return self.memory.commit(lease, bounded)

    def _spawn(self, waiting: Coroutine[Any, Any, T], then: Callable[[T], None], *, otherwise: T) -> None:
        """Wait in a task, and go on; with `otherwise` where waiting failed."""

        async def run() -> None:
            try:
                result = await waiting
            except StoreUnavailableError:
                result = otherwise
            except Exception as error:
                self._note(error)
                result = otherwise
            then(result)

        self._begin_task(run())

    def _persist(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Do work in the background again and again until it does not fail; each new error is logged."""

        async def run() -> None:
            noted = ""
            while True:
                try:
                    await work()
                    return
                except StoreUnavailableError:
                    pass
                except Exception as error:
                    if repr(error) != noted:
                        noted = repr(error)
                        self._note(error)
                await asyncio.sleep(_AGAIN)

        return asyncio.get_running_loop().create_task(run())

    def _note(self, error: Exception) -> None:
        """Log a failure that is a fault here; if memory has run out, free some."""
        if lacks_memory(error):
            self.memory.relieve()
        else:
            logger.error("%s failed", self.name, exc_info=error)


def _tokens() -> Iterator[bytes]:
    """Names of leases that no other node gives."""
    node = secrets.token_bytes(8)
    for number in count():  # no generator expression: compiled, that is a list
        yield node + number.to_bytes(6, "big")


def _fetch(lease: Lease) -> FetchLease:
    """The part of a lease that the store behind memory knows."""
    return cast("FetchLease", lease.fetch)


async def _count_into(cause: _Cause, slices: Iterator[int]) -> None:
    for meant in slices:
        cause.count += meant
        await asyncio.sleep(0)
