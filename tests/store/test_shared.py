"""Memory over a shared store: what was purged is not served, whatever goes wrong between store and nodes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from examples import examples
from store.model import (
    BOUND,
    KEYS,
    START,
    Laws,
    ModelEntries,
    ModelPurges,
    ModelServer,
    Node,
    orders,
    tier_over,
)
from support import stored_response
from univocal.cache.stored import Stored
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Tags
from univocal.store.roles import StoreUnavailableError
from univocal.store.shared import SharedTier


class ModelLaws(Laws):
    """The laws over the model: lag, lost answers, late commits, nodes that are cut off, a short journal."""

    are_siblings = False

    def __init__(self):
        self.server = ModelServer(are_siblings=self.are_siblings)
        super().__init__()

    async def new_node(self, number):
        purges = ModelPurges(self.server, self.clock)
        entries = ModelEntries(self.server, purges)
        tier = tier_over(entries, purges, self.clock)
        await tier.start(0.01)
        return Node(tier, purges, entries)

    def _purges(self, number):
        purges = self.nodes[number].purges
        assert isinstance(purges, ModelPurges)
        return purges

    async def beat(self):
        for number in range(2):
            purges = self._purges(number)
            if not purges.is_cut and not purges.is_still and self.now - purges.heard_at > 0.5:
                purges.deliver()

    @rule(number=st.integers(0, 1), many=st.integers(1, 3))
    def deliver(self, number, many):
        """A node hears of some purges, or has all its memory of the store's state confirmed."""
        self._purges(number).deliver(many)

    @rule(
        number=st.integers(0, 1),
        fault=st.sampled_from(
            ["cut off", "lost", "back", "still", "answer", "late", "late ones come", "short"]
        ),
    )
    def go_wrong(self, number, fault):
        """Something goes wrong between a node and the store, or ends to do so."""
        purges, entries = self._purges(number), self.nodes[number].entries
        match fault:
            case "cut off":
                purges.is_cut = True
            case "lost" | "back" if purges.is_cut:
                self.run(self._notice(purges, back=fault == "back"))
            case "still":
                purges.is_still = not purges.is_still
            case "answer":
                purges.answer_is_lost = True
            case "late":
                entries.commits_come_late = not entries.commits_come_late
            case "late ones come":
                while self.server.late:
                    self.server.late.pop()()
            case "short" if self.server.purges:
                self.server.horizon = self.server.purges.pop(0).number

    async def _notice(self, purges, *, back):
        purges.watcher.lost("cut off")
        if back:
            purges.is_cut = False
            purges.deliver()
            purges.watcher.returned()


TestModelLaws = ModelLaws.TestCase
TestModelLaws.settings = settings(max_examples=examples(80), stateful_step_count=30, deadline=None)


class SiblingLaws(ModelLaws):
    """Workers of one program: a purge is in force in all when it is confirmed, even while one is alone."""

    lag = 0.0
    are_siblings = True

    def may_serve_unknown(self, node):
        return False

    @rule(number=st.integers(0, 1), is_still=st.booleans(), selector=orders, key=st.sampled_from(KEYS))
    def ask_a_sibling(self, number, is_still, selector, key):
        """Purge by one, and ask the other, which stands still or answers alone."""
        other = 1 - number
        if is_still:
            self._purges(other).is_still = True
        else:
            self.go_wrong(other, "cut off")
            self.go_wrong(other, "lost")
        for _ in range(2):
            self.fetch(other, key, {b"t"}, b"", stays=False)
            self.purge(number, selector)


TestSiblingLaws = SiblingLaws.TestCase
TestSiblingLaws.settings = settings(max_examples=examples(80), stateful_step_count=30, deadline=None)


async def test_a_paused_node_serves_nothing_that_was_purged():
    """It can read the store before it has heard of the purge there, as a process does after SIGSTOP."""
    server, now = ModelServer(), [START]
    tiers, heard = list[SharedTier](), list[ModelPurges]()
    for _ in range(2):
        heard.append(ModelPurges(server, lambda: now[0]))
        tiers.append(tier_over(ModelEntries(server, heard[-1]), heard[-1], lambda: now[0]))
        await tiers[-1].start(0.01)
    await store(tiers[0], tagged())
    assert await filled(tiers[1])
    await tiers[0].purge(Tags(frozenset((b"t",))), now[0])
    now[0] += BOUND + 0.1
    assert not await filled(tiers[1])
    heard[1].deliver()
    assert not await filled(tiers[1])


class WalkedEntries(ModelEntries):
    """Entries whose walk does nothing: the test asks in its stead up to which number purges are known."""

    followed: Callable[[], int]

    async def walk(self, judge, followed, noted):
        self.followed = followed


async def test_a_lost_node_vouches_for_no_stored_response():
    """It knows the number of a sibling's purge, and has not read what that means."""
    tiers, entries, purges = await siblings(WalkedEntries)
    await tiers[0].purge(Tags(frozenset((b"u",))), START)
    purges[1].deliver()
    assert [each.followed() for each in entries] == [1, 1]
    purges[1].is_cut = True
    tiers[1].lost("cut off")
    await tiers[0].purge(Tags(frozenset((b"t",))), START)
    tiers[1].lookup(KEYS[0], START)
    assert [each.followed() for each in entries] == [2, 0]
    await returned(tiers[1], purges[1])
    assert [each.followed() for each in entries] == [2, 2]


@pytest.mark.parametrize("is_soft", [False, True])
async def test_an_owed_purge_holds_for_responses_of_the_store(monkeypatch, is_soft):
    """The store takes no purge, and answers otherwise: it is in force at the node that was asked."""
    server = ModelServer()
    purges = ModelPurges(server, lambda: START)
    tier = tier_over(ModelEntries(server, purges), purges, lambda: START)
    await tier.start(0.01)
    await store(tier, tagged())

    async def refuse(*_):
        raise StoreUnavailableError

    with monkeypatch.context() as patched:
        patched.setattr(purges, "publish", refuse)
        with pytest.raises(RefusedError):
            await tier.purge(Tags(frozenset((b"t",)), soft=is_soft), START)
        tier.memory.purge(Everything(), START)
        served = await filled(tier)
        assert [one.fresh_until <= START for one in served] == ([True] if is_soft else [])
    while tier._owed:
        await tier._publish_owed()
    assert len(server.purges) == 1


async def siblings(entries_of):
    """Two nodes over one store, with the entries and the purges of each."""
    server = ModelServer(are_siblings=True)
    purges = [ModelPurges(server, lambda: START) for _ in range(2)]
    entries = [entries_of(server, each) for each in purges]
    tiers = [tier_over(*each, lambda: START) for each in zip(entries, purges, strict=True)]
    for tier in tiers:
        await tier.start(0.01)
    return tiers, entries, purges


async def returned(tier, purges):
    """Have a node that was cut off hear of all purges again."""
    purges.is_cut = False
    purges.deliver()
    tier.returned()
    await asyncio.wait_for(tier._there.wait(), 30)


async def store(tier, stored):
    lease, ended = tier.begin(stored.key, START), asyncio.get_running_loop().create_future()
    assert tier.commit(lease, stored)
    tier.end(lease, lambda: ended.set_result(None))
    await ended
    tier.memory.leases.release(lease)


def tagged():
    return stored_response((b"xkey", b"t"), (b"cache-control", b"max-age=60"), name=KEYS[0], at=START)


async def filled(tier):
    """The responses that the store serves to a node for the first key."""
    served = list[Stored]()

    def judge(servable, _):
        served[:] = servable
        return bool(served)

    lease, done = tier.begin(KEYS[0], tier.clock()), asyncio.get_running_loop().create_future()
    tier.fill(lease, Request(b"GET", b"/", []), judge, done.set_result, joined=False)
    await done
    tier.end(lease, lambda: None)
    tier.memory.leases.release(lease)
    return served


class SlowPurges(ModelPurges):
    """A journal whose server answers each purge in the next turn, and notes it."""

    def __init__(self, server):
        super().__init__(server, lambda: 0.0)
        self.published = []
        self.meanwhile = None

    async def publish(self, selector, now, cause=b""):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.published.append(selector)
        return len(self.published)


@pytest.mark.parametrize("count", [1, 2_000])
async def test_a_purge_owed_while_another_is_published_is_published_after(count):
    """The same again, or so many that they become one of everything."""
    server = ModelServer()
    purges = SlowPurges(server)
    tier = SharedTier(MemoryStore(), lambda: (ModelEntries(server, purges), purges), lambda: 0.0)
    names = [Tags(frozenset((b"%d" % number,))) for number in range(count)]

    def owe():
        for selector in names:
            with suppress(RefusedError):
                tier._owe(selector, 0.0, None)

    with suppress(RefusedError):
        tier._owe(names[0], 0.0, None)
    purges.meanwhile = owe
    while tier._owed:
        await tier._publish_owed()
    assert purges.published[0] == names[0]
    assert names[-1] in purges.published[1:]
    assert count == 1 or Everything() in purges.published[1:]


async def test_a_response_read_during_a_loss_outlives_no_purge():
    """A sibling purges it meanwhile: what this node read is not numbered by a purge that it cannot read."""
    tiers, entries, purges = await siblings(ModelEntries)
    await store(tiers[0], tagged())
    read = entries[1].lookup

    async def read_while_lost(key, now, request=None):
        numbered = await read(key, now, request)
        tiers[1].lost("cut off")
        purges[1].is_cut = True
        await tiers[0].purge(Tags(frozenset((b"t",))), START)
        return numbered

    entries[1].lookup = read_while_lost
    lease, done = tiers[1].begin(KEYS[0], START), asyncio.get_running_loop().create_future()
    tiers[1].fill(lease, Request(b"GET", b"/", []), lambda *_: False, done.set_result, joined=False)
    assert not await done
    await returned(tiers[1], purges[1])
    assert tiers[1].held(lease) == []
