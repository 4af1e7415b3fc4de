"""The tiers of the store: memory alone, or memory over another store.

Memory answers within the call. A call that waits for that store takes a continuation, `then`, which is called
once: within the call where nothing is waited for, else by a task of the shared tier.
"""

# ruff: noqa: ARG002  memory alone needs less than others

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from univocal.cache.stored import Stored
from univocal.http.compiling import mypyc_attr
from univocal.http.messages import Request
from univocal.store.compression import Compression
from univocal.store.leases import Lease
from univocal.store.memory import Entry, MemoryStore, in_slices
from univocal.store.purge_selectors import Selector

# Slices of a purge that are gone through within the call.
_AT_ONCE: Final = 3

Satisfies: TypeAlias = Callable[[Sequence[Stored], Sequence[Stored]], bool]
"""Told which stored responses may be served, and which the origin may be asked about; True: one is served."""

TierLease: TypeAlias = Lease
"""The name of a lease in tiers that users have written."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Tiers:
    """Looks up, stores and purges responses, on this node and on all nodes that share its store.

    The methods do what memory alone does: each `then` is called within the call, except after a purge of many
    names. A tier with a store behind memory has methods of its own.

    `glances`: a store behind memory may have more at hand, which `glance` tells. `is_memory_alone`: nothing
    is behind memory, so `fill` need not be asked.
    """

    def __init__(self, memory: MemoryStore, *, glances: bool = False) -> None:
        self.memory: Final = memory
        self.glances: Final = glances
        self.is_memory_alone: Final = type(self) is MemoryTier
        self.compression: Final = Compression(memory)
        self._sweeping = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    @property
    def detached_ttl(self) -> float | None:
        """Seconds for which memory serves a response while the shared store is away; None: it is there."""
        return None

    # Within the call

    def lookup(self, key: bytes, now: float) -> Sequence[Stored]:
        """The valid responses in memory, newest first."""
        return self.memory.lookup(key)

    def glance(self, key: bytes, now: float, *, keeps: bool = False) -> Sequence[Stored]:
        """The valid responses that a store behind memory has at hand, where memory has none.

        Memory takes in those for which it has room, and those that come back soon; with `keeps`, all.
        """
        return ()

    def revisit(self, entry: Entry, now: float) -> Sequence[Stored]:
        """The same, of an entry of memory; none once it has left memory, even if its key has another."""
        return self.memory.revisit(entry)

    def trusted(self, since: float, now: float) -> bool:
        """True if this node knows what was purged elsewhere since then, but for the bound it promises."""
        return True

    def begin(self, key: bytes, now: float, since: int | None = None) -> Lease:
        """A lease for a fetch: its response must not outlive a purge from now on, or `since` that number."""
        return self.memory.leases.begin(key, now, since)

    @property
    def number(self) -> int | None:
        """The number of the last purge, for a lease that begins late.

        None: each fetch has a lease from its beginning on, since other nodes may have stored a response.
        """
        return None

    def held(self, lease: Lease) -> Sequence[Stored]:
        """The responses of the lease's key that are stored, as far as is known here, newest first."""
        return self.lookup(lease.key, lease.time)

    def commit(self, lease: Lease, stored: Stored) -> bool:
        """Store a response unless it was purged since the lease began; all nodes have it at its end.

        False if it is known by now that it is not stored.
        """
        return self.memory.commit(lease, stored)

    def drop(self, lease: Lease, selector: Selector, now: float) -> None:
        """Purge what a fetched response makes obsolete; the response's own lease stays good."""
        self.memory.purge(selector, now, sparing=lease)

    def holds(self, lease: Lease, stored: Stored | None = None) -> bool:
        """True if no purge since the lease began concerns its key, or the response that came."""
        return self.memory.leases.holds(lease, stored)

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
        """Ask `satisfies` of other nodes' responses; `then(True)` once it serves one, `then(False)` to fetch.

        With `joined` a node that fetches the same key is waited for.
        """
        then(False)

    def keeps(self, lease: Lease, stored: Stored, now: float, then: Callable[[bool], None]) -> None:
        """Tell whether a response is still stored, on whichever node, softened or not."""
        # It may have been evicted or softened.
        then(self.holds(lease, stored) or is_among(self.memory.lookup(stored.key), stored))

    def recall(
        self, key: bytes, request: Request, now: float, then: Callable[[Sequence[Stored]], None]
    ) -> None:
        """Tell what is stored under a key on whichever node: for when the origin fails."""
        then(self.memory.lookup(key))

    def invalidate(
        self, selectors: Iterable[Selector], now: float, lease: Lease | None, then: Callable[[], None]
    ) -> None:
        """Purge on every node what a response to an unsafe request made obsolete (RFC 9111 §4.4).

        A purge that is not confirmed is made up for later. The lease under which that response is itself
        being stored stays good.
        """
        slices = chain.from_iterable(
            self.memory.purging(selector, now, sparing=lease) for selector in selectors
        )
        if len([*islice(slices, _AT_ONCE)]) < _AT_ONCE:
            then()
        else:
            self._begin_task(self._go_through(slices, then))

    async def _go_through(self, slices: Iterable[int], then: Callable[[], None]) -> None:
        await in_slices(slices)
        then()

    def let_go(self, lease: Lease) -> None:
        """Release the nodes that wait for the response."""

    def end(self, lease: Lease, then: Callable[[], None]) -> None:
        """End a lease once all nodes have what was stored under it; `release` gives its room back."""
        self.memory.leases.end(lease)
        then()

    # For those who can wait

    async def purge(self, selector: Selector, now: float) -> int:
        """Purge on every node; returns the number of responses. Raises RefusedError if unconfirmed.

        With the most bans allowed, the next one waits until the oldest have been tested everywhere.
        """
        if selector.by_search and not self.memory.has_room(selector):
            async with self._sweeping:
                while not self.memory.has_room(selector):
                    self.memory.sweep()
                    await asyncio.sleep(0)
        return await self._purge(selector, now)

    async def _purge(self, selector: Selector, now: float) -> int:
        return await in_slices(self.memory.purging(selector, now))

    async def count(self, selector: Selector) -> int:
        """The number of responses that a purge would remove, on every node.

        Raises RefusedError if the shared store does not answer.
        """
        return await in_slices(self.memory.counting(selector))

    def counts(self, selector: Selector) -> bool:
        """True if the numbers of `purge` and `count` are exact: no other node holds more."""
        return True

    def _begin_task(self, waiting: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(waiting)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryTier(Tiers):
    """Memory alone: no other node stores a response."""

    @property
    def number(self) -> int | None:
        return self.memory.leases.log.number


def tiers_of(store: MemoryStore | Tiers) -> Tiers:
    """The tiers of a memory store, or those that somebody made."""
    return store if isinstance(store, Tiers) else MemoryTier(store)


def is_among(variants: Iterable[Stored], stored: Stored) -> bool:
    """Tell whether a response is one of these, softened or not."""
    return any((one.response_time, one.head) == (stored.response_time, stored.head) for one in variants)
