"""Continuations of the store: called once, within the call or by the one task that waiting brings along."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from support import KEY, NOW, stored_response
from univocal.cache.stored import Stored
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.leases import Lease, SharedLease
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Selector
from univocal.store.redis.tier import TrackedTier
from univocal.store.tiers import MemoryTier, tiers_of

REQUEST = Request(b"GET", b"/a", [])


def no_one(servable: Sequence[Stored], askable: Sequence[Stored]) -> bool:
    raise AssertionError


class PlayedStore:
    """A shared store whose answers are given, or raised."""

    def __init__(self, held: Sequence[Stored] = (), error: Exception | None = None) -> None:
        self.memory = MemoryStore()
        self.connected = True
        self.detached_ttl, self.bound, self.trusted_until = 5.0, 1.0, NOW + 1
        self.held, self.error = held, error
        self.told: list[Any] = []

    def clock(self) -> float:
        return NOW

    async def _say(self, *what: Any) -> None:
        await asyncio.sleep(0)
        self.told.append(what)
        if self.error is not None:
            raise self.error

    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Stored]:
        await self._say("lookup")
        return self.held

    async def obtain(self, key: bytes, judge: Any, lease: SharedLease, request: Request) -> Any:
        await self._say("obtain")
        return judge(self.held) or lease

    async def begin(self, key: bytes, lease: SharedLease) -> SharedLease:
        await self._say("begin")
        return lease

    async def commit(self, lease: SharedLease, stored: Stored) -> bool:
        await self._say("commit", stored)
        return self.memory.commit(lease.local, stored)

    async def purge(self, selector: Selector, now: float, *, sparing: SharedLease | None = None) -> int:
        await self._say("purge", selector)
        return 1

    async def release(self, lease: SharedLease) -> None:
        self.memory.end(lease.local)
        self.told.append(("release",))


def shared(held: Sequence[Stored] = (), error: Exception | None = None) -> tuple[TrackedTier, PlayedStore]:
    store = PlayedStore(held, error)
    return TrackedTier(store), store  # type: ignore[arg-type]


async def idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_memory_alone_answers_within_the_call() -> None:
    tiers, told = tiers_of(MemoryStore()), list[Any]()
    stored = stored_response()
    lease = tiers.begin(KEY, NOW)
    tiers.fill(lease, REQUEST, no_one, told.append, joined=True)
    tiers.commit(lease, stored)
    tiers.keeps(lease, stored, NOW, told.append)
    tiers.recall(KEY, REQUEST, NOW, told.append)
    tiers.invalidate([Keys(frozenset((KEY,)))], NOW, lease, lambda: told.append("invalid"))
    tiers.end(lease, lambda: told.append("ended"))
    assert told == [False, True, (stored,), "invalid", "ended"]
    assert tiers.lookup(KEY, NOW) == ()


def test_a_purge_spares_the_lease_that_knows_of_it() -> None:
    tiers = MemoryTier(MemoryStore())
    lease, other = tiers.begin(KEY, NOW), tiers.begin(KEY, NOW)
    tiers.invalidate([Keys(frozenset((KEY,)))], NOW, lease, lambda: None)
    assert (tiers.holds(lease), tiers.holds(other)) == (True, False)


def test_what_was_reserved_can_be_given_back_in_part() -> None:
    tiers = MemoryTier(MemoryStore(max_object_bytes=100))
    lease = tiers.begin(KEY, NOW)
    assert tiers.reserve(lease, 100)
    assert not tiers.reserve(lease, 1)
    assert tiers.reserve(lease, -40)
    assert tiers.reserve(lease, 40)
    tiers.release(lease)
    assert tiers.memory.stats.reserved == 0


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("served", [True, False])
async def test_what_other_nodes_store_is_judged_once_it_is_there(joined: bool, served: bool) -> None:
    stored, told = stored_response(), list[Any]()
    tiers, _ = shared([stored])
    lease = tiers.begin(KEY, NOW)

    def judge(servable: Sequence[Stored], askable: Sequence[Stored]) -> bool:
        assert list(servable) == list(askable) == [stored]
        return served

    tiers.fill(lease, REQUEST, judge, told.append, joined=joined)
    assert told == []
    await idle()
    assert told == [served]
    assert [*tiers.held(lease)] == ([] if joined and served else [stored])


async def test_a_store_that_fails_has_the_origin_asked(caplog: pytest.LogCaptureFixture) -> None:
    tiers, store = shared(error=ConnectionError())
    told, lease = list[Any](), tiers.begin(KEY, NOW)
    store.memory.purge(Everything(), NOW)
    with caplog.at_level(logging.ERROR):
        tiers.fill(lease, REQUEST, no_one, told.append, joined=True)
        tiers.keeps(lease, stored_response(), NOW, told.append)
        tiers.recall(KEY, REQUEST, NOW, told.append)
        await idle()
    assert told == [False, False, ()]
    assert "the shared store failed" in caplog.text


async def test_all_that_is_owed_is_told_in_order_before_the_end() -> None:
    tiers, store = shared()
    lease, told = tiers.begin(KEY, NOW), list[str]()
    selector, stored = Keys(frozenset((KEY,))), stored_response()
    tiers.drop(lease, selector, NOW)
    tiers.commit(lease, stored)
    assert store.memory.lookup(KEY) == ()
    tiers.end(lease, lambda: told.append("ended"))
    assert told == []
    await idle()
    assert store.told == [("purge", selector), ("commit", stored), ("release",)]
    assert told == ["ended"]


@pytest.mark.parametrize("error", [RefusedError("shared-store-unavailable"), ConnectionError()])
async def test_what_is_not_confirmed_ends_all_the_same(error: Exception) -> None:
    tiers, store = shared(error=error)
    lease, told = tiers.begin(KEY, NOW), list[str]()
    tiers.drop(lease, Everything(), NOW)
    tiers.invalidate([Everything()], NOW, lease, lambda: told.append("invalid"))
    tiers.end(lease, lambda: told.append("ended"))
    await idle()
    assert sorted(told) == ["ended", "invalid"]
    assert store.told[-1] == ("release",)
    assert not isinstance(lease, Lease)
    assert not lease.local.live


async def test_a_ban_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers, rooms = MemoryTier(MemoryStore()), [False, False, False, True]
    monkeypatch.setattr(tiers.memory, "has_room", lambda selector: rooms.pop(0))
    assert await tiers.purge(Everything(), NOW) == 0
    assert rooms == []
