"""A node's attachment to Redis: it tells of changes, it can be relied on for a time, and it purges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from univocal.http.errors import ConfigurationError, RefusedError
from univocal.store.leases import Lease
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Pattern, Selector, Tags
from univocal.store.redis.bell import Bell, UnavailableError, Waits
from univocal.store.redis.key_names import Banned, Fruitless, Moved, Names
from univocal.store.redis.purge import count, purge
from univocal.store.redis.scripts import VERIFY
from univocal.store.redis.url import check, masked

if TYPE_CHECKING:
    from univocal.store.redis.commands import Link

__all__ = ["Attachment"]

# Purges that Redis did not confirm are owed: more keys and tags than this become a purge of everything.
_OWED_LIMIT: Final = 1_000
# As many keys of one message are forgotten in one go: a few milliseconds.
_TOGETHER: Final = 200


class Attachment:
    """Keeps a memory store free of what changed in Redis; listens to the tracking connection.

    `bound` is in seconds: whatever was purged before `trusted_until` - `bound`, memory has not. `pattern`
    makes a selector of an expression. Raises ConfigurationError for a URL of no Redis, or without redis-py.
    """

    def __init__(
        self,
        memory: MemoryStore,
        url: str,
        clock: Callable[[], float],
        times: Waits,
        max_connections: int,
        pattern: Callable[[str], Pattern] | None,
    ) -> None:
        try:
            check(url)
            from univocal.store.redis import commands, tracking  # noqa: PLC0415  (the base install has no redis-py)
        except ModuleNotFoundError:
            allowed = "redis-py: install univocal[redis]"
            raise ConfigurationError("cache", "store", masked(url), allowed) from None
        except ValueError as error:
            raise ConfigurationError("cache", "store", masked(url), str(error)) from None
        self.bell: Final = Bell()
        self.bound: Final = times.heartbeat + times.command
        self.trusted_until = float("inf")
        self._memory, self._clock, self._times, self._pattern = memory, clock, times, pattern
        self._new_link: Final = partial(commands.Link, url, times.command, max_connections, doubt=self._doubt)
        self._tracking: Final = tracking.Tracking(url, self, clock, times.heartbeat, times.command)
        self._link: Link | None = None
        self._attached = asyncio.Event()
        self._reached = False
        self._owed: list[Selector] = []
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    @property
    def connected(self) -> bool:
        """True while Redis tells this node what changes."""
        return self._attached.is_set()

    @property
    def link(self) -> Link | None:
        """The link for commands while changes are told; None while they are not."""
        return self._link if self._attached.is_set() else None

    async def start(self, patience: float) -> None:
        """Connect, and wait up to `patience` seconds for it; if that is not enough, it goes on by itself."""
        self._tracking.start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._attached.wait(), patience)

    async def aclose(self) -> None:
        """Disconnect; changes are told no longer."""
        await self._tracking.aclose()
        if self._link is not None:
            await self._link.aclose()

    async def purge(
        self, selector: Selector, now: float, sparing: Lease | None, spared: tuple[bytes, str] | None
    ) -> int:
        """Purge here and in Redis, but for one lease, named there; returns the number of responses.

        Raises RefusedError if Redis did not confirm: then it is purged there as soon as it is back.
        """
        count = await self._memory.purge_in_slices(selector, now, sparing=sparing)
        link = self._link
        if link is None or not self._reached:
            self._owe(selector)
            raise RefusedError("shared-store-unavailable")
        try:
            async with asyncio.timeout(self._times.purge):
                shared = await purge(link, selector, now, spared)
        except (UnavailableError, TimeoutError) as error:
            # Whatever it is that is attached to by now, it pays: who attaches does that first.
            self._owe(selector)
            self._begin_anew(f"a purge failed: {error}")
            raise RefusedError("shared-store-unavailable") from None
        # The responses that were read from Redis while it was being purged there.
        await self._memory.purge_in_slices(selector, now, sparing=sparing)
        return max(count, shared)

    async def count(self, selector: Selector) -> int:
        """The number of responses that a purge would mean. Raises RefusedError if Redis does not tell."""
        link = self._link
        if link is None or not self._reached:
            raise RefusedError("shared-store-unavailable")
        here = await self._memory.count_in_slices(selector)
        try:
            async with asyncio.timeout(self._times.purge):
                return max(here, await count(link, selector))
        except (UnavailableError, TimeoutError):
            raise RefusedError("shared-store-unavailable") from None

    def _owe(self, selector: Selector) -> None:
        if selector not in self._owed:
            self._owed.append(selector)
        if sum(len(getattr(one, "names", "1")) for one in self._owed) > _OWED_LIMIT:
            self._owed = [Everything()]

    # ── what the tracking connection says ───────────────────────────────────────────────────────────────────

    async def attached(self, names: Names) -> None:
        """Take note that changes are told: make up for owed purges, forget what may have changed before."""
        old, self._link = self._link, self._new_link(names)
        if old is not None:
            await old.aclose()
        await self._link.run(VERIFY, [], [])
        self._reached = True  # else purges would come to be owed as fast as they are paid
        while self._owed:
            await self._pay(self._link, self._owed.pop(0))
        self._empty()
        self.confirmed(self._clock())
        self._attached.set()

    async def _pay(self, link: Link, owed: Selector) -> None:
        try:
            await purge(link, owed, self._clock())
        except BaseException as error:
            self._owe(owed)
            if isinstance(error, UnavailableError):
                raise UnavailableError(f"a purge that is owed fails: {error}") from error
            raise

    def _empty(self) -> None:
        """Let nothing that is in memory be found any more; it is removed in slices."""
        slices = self._memory.emptying(self._clock())
        if next(slices, None) is None or not self._memory.stats.responses:
            return

        async def remove() -> None:
            for _ in slices:
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(remove())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def heard(self, changed: Iterable[bytes] | None) -> None:
        """Forget the keys that changed in Redis, and wake their waiters; None: all keys changed."""
        now, link = self._clock(), self._link
        if link is None:
            return  # nothing is relied on yet
        if changed is None:
            self.bell.ring_all()
            self._begin_anew("the server's keys were removed")  # the marker, too
            return
        keys: set[bytes] = set()
        for name in changed:
            match link.names.heard(name):
                case Keys(named, soft=False):
                    keys |= named
                case change:
                    await self._carry_out(change, now)
            if len(keys) >= _TOGETHER:
                self._forget(keys, now)
                keys = set()
                await asyncio.sleep(0)
        if keys:
            self._forget(keys, now)

    async def _carry_out(self, change: Selector | Banned | Fruitless | Moved | None, now: float) -> None:
        match change:
            case Keys(named) as softened:
                self._memory.purge(softened, now)
                self.bell.ring(named)
            case Moved():
                self._begin_anew("the namespace changed")
            case Fruitless(key):
                self.bell.ring([key], fruitless=True)
            case Banned(expression, soft):
                ban = self._pattern(expression) if self._pattern is not None else Everything()
                await self._memory.purge_in_slices(replace(ban, soft=soft), now)
                self.bell.ring_all()
            case None:
                pass
            case Tags() as tags:
                await self._memory.purge_in_slices(tags, now)
            case selector:
                await self._memory.purge_in_slices(selector, now)
                self.bell.ring_all()  # it ended every lease

    def _forget(self, keys: set[bytes], now: float) -> None:
        self._memory.purge(Keys(frozenset(keys)), now)
        self.bell.ring(keys)

    def _doubt(self, link: Link, why: str) -> None:
        """Attach anew, if it is this link's commands that all rely on."""
        if link is self.link:
            self._begin_anew(why)

    def _begin_anew(self, why: str) -> None:
        self.lost()
        self._tracking.doubt(why)

    def confirmed(self, since: float) -> None:
        """Take note that every change before this time has been told."""
        self.trusted_until = since + self.bound

    def lost(self) -> None:
        """Take note that changes are told no longer: go on with an empty memory and bounded lifetimes."""
        self._reached = False
        if self.connected:
            self._attached.clear()
            self._empty()
            self.bell.ring_all()
        self.trusted_until = float("inf")
