"""Continuations of the store: called once, within the call or by the one task that waiting brings along."""

import asyncio
import logging
from typing import Any

import pytest

from store.model import ModelEntries, ModelPurges, ModelServer, tier_over
from support import KEY, NOW, idle, store_long_urls, stored_response
from univocal.http.messages import Request
from univocal.store.leases import MOST_LISTED
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Pattern
from univocal.store.tiers import MemoryTier, tiers_of

REQUEST = Request(b"GET", b"/a", [])


def no_one(servable, askable):
    raise AssertionError


class FailingEntries(ModelEntries):
    """Entries that fail in an unexpected way."""

    error: type[Exception] = LookupError

    async def _go(self):
        raise self.error


async def shared(entries=ModelEntries):
    server = ModelServer()
    purges = ModelPurges(server, lambda: NOW)
    tier = tier_over(entries(server, purges), purges, lambda: NOW, 2 << 20)
    await tier.start()
    return tier, server


def test_memory_alone_answers_within_the_call():
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


def test_a_purge_spares_the_lease_that_knows_of_it():
    tiers = MemoryTier(MemoryStore())
    lease, other = tiers.begin(KEY, NOW), tiers.begin(KEY, NOW)
    tiers.invalidate([Keys(frozenset((KEY,)))], NOW, lease, lambda: None)
    assert (tiers.holds(lease), tiers.holds(other)) == (True, False)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("served", [True, False])
async def test_responses_of_other_nodes_are_judged_once_read(joined, served):
    stored, told = stored_response(), list[Any]()
    tiers, server = await shared()
    server.rows[KEY] = {stored.vary: (0, stored)}
    lease = tiers.begin(KEY, NOW)

    def judge(servable, askable):
        assert list(servable) == list(askable) == [stored]
        return served

    tiers.fill(lease, REQUEST, judge, told.append, joined=joined)
    assert told == []
    await idle()
    assert told == [served]
    assert [*tiers.held(lease)] == [stored]


@pytest.mark.parametrize(
    ("error", "said"), [(LookupError, "the store failed"), (MemoryError, "memory has run out")]
)
async def test_a_store_that_fails_has_the_origin_asked(caplog, monkeypatch, error, said):
    monkeypatch.setattr(FailingEntries, "error", error)
    tiers, _ = await shared(FailingEntries)
    told, lease = list[Any](), tiers.begin(KEY, NOW)
    tiers.memory.purge(Everything(), NOW)
    with caplog.at_level(logging.WARNING):
        tiers.fill(lease, REQUEST, no_one, told.append, joined=True)
        tiers.keeps(lease, stored_response(), NOW, told.append)
        tiers.recall(KEY, REQUEST, NOW, told.append)
        await idle()
    assert told == [False, False, ()]
    assert said in caplog.text
    assert ("Traceback" in caplog.text) is (error is LookupError)


async def test_owed_purges_are_published_in_order_before_the_end():
    tiers, server = await shared()
    lease, told = tiers.begin(KEY, NOW), list[str]()
    stored = stored_response()
    tiers.drop(lease, Keys(frozenset((KEY,))), NOW)
    tiers.commit(lease, stored)
    tiers.end(lease, lambda: told.append("ended"))
    assert (told, server.purges, server.rows) == ([], [], {})
    await idle()
    assert [purge.number for purge in server.purges] == [1]
    assert [row for rows in server.rows.values() for row in rows.values()] == [(1, stored)]
    assert told == ["ended"]


async def test_an_unconfirmed_purge_ends_all_the_same():
    tiers, _ = await shared()
    lease, told = tiers.begin(KEY, NOW), list[str]()
    tiers._purges.is_cut = True
    tiers.drop(lease, Everything(), NOW)
    tiers.invalidate([Everything()], NOW, lease, lambda: told.append("invalid"))
    tiers.end(lease, lambda: told.append("ended"))
    await idle()
    assert sorted(told) == ["ended", "invalid"]
    assert not lease.live
    tiers._owed.clear()


async def test_a_ban_waits_for_room():
    tiers, turns = MemoryTier(MemoryStore()), 0
    store_long_urls(tiers.memory, MOST_LISTED + 10)
    patterns = [Pattern(str(number), lambda _: False, steps=20) for number in range(MOST_LISTED + 1)]
    for each in patterns[1:]:
        tiers.memory.purge(each, NOW)
    assert not tiers.memory.has_room(patterns[0])
    waiting = asyncio.create_task(tiers.purge(patterns[0], NOW))
    while not waiting.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await waiting, tiers.memory.stats.bans) == (0, MOST_LISTED)
    assert turns > 3
    assert tiers.memory.stats.entries == MOST_LISTED + 10
