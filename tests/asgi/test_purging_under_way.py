"""Purges of other nodes while something is fetched; one's own are rows of tests/exchanges."""

import asyncio

import pytest

from examples import cases
from store.model import ModelEntries, ModelPurges, ModelServer, tier_over
from support import RevalidatedPage
from univocal import CacheMiddleware
from univocal.store.purge_selectors import Everything

SAME = [(b"cache-control", b"max-age=60, stale-if-error=600"), (b"etag", b'"same"')]


class Origin(RevalidatedPage):
    """Each answer waits for its turn in `turns`, if that is set."""

    turns = None

    def __init__(self, fields=SAME):
        super().__init__(fields)

    async def turn(self, fields):
        if self.turns is not None:
            turn = asyncio.get_running_loop().create_future()
            self.turns.append(turn)
            await turn


@pytest.fixture
def origin():
    return Origin()


async def held_back(origin, client, idle, *, requests=1):
    """Requests for the page, of which one waits for the origin."""
    origin.turns = []
    asking = [asyncio.create_task(client("/a")) for _ in range(requests)]
    await idle()
    assert len(origin.turns) == 1
    return asking


# With a shared store


class Elsewhere(ModelEntries):
    """A store whose other nodes' purges are not heard until a test lets them; `held` is what it has."""

    def __init__(self, server, purges):
        super().__init__(server, purges)
        self.tier = tier_over(self, purges, purges.clock)
        self.trusted_until = float("inf")
        purges.trusted_until = lambda: self.trusted_until

    @property
    def memory(self):
        return self.tier.memory


@pytest.fixture
async def elsewhere(clock):
    server = ModelServer()
    made = Elsewhere(server, ModelPurges(server, clock))
    await made.tier.start()
    return made


@pytest.fixture
def node(elsewhere, origin, clock, client_of):
    return client_of(CacheMiddleware(origin, store=elsewhere.tier, clock=clock))


@cases(
    "began, trusted, asked, joined",
    (0, 100, 50, True),
    (0, 10, 50, False),  # what was purged elsewhere since 10 is unknown here
    (0, 10, 10, False),
    (9.9, 10, 10.1, False),
    (20, 10, 21, True),  # a purge of this last second would not be known with trust either
    (20, 10, 30, False),
)
async def test_an_untrusted_memory_joins_no_earlier_flight(
    node, elsewhere, origin, clock, idle, began, trusted, asked, joined
):
    start = clock.now
    elsewhere.trusted_until = start + trusted
    clock.now = start + began
    first = await held_back(origin, node, idle)
    clock.now = start + asked
    second = asyncio.create_task(node("/a"))
    await idle()
    assert len(origin.asked) == (1 if joined else 2)
    for turn in origin.turns:
        turn.set_result(None)
    await asyncio.gather(*first, second)


async def test_responses_missing_from_memory_are_validated_from_the_shared_store(
    node, elsewhere, clock, idle
):
    await node("/a")
    await idle()  # until all nodes have it
    clock.now += 100
    elsewhere.memory.purge(Everything(), clock.now)
    assert (await node("/a")).handling >= {"fwd=stale", "fwd-status=304"}


async def test_a_304_freshens_a_response_lost_from_memory_meanwhile(node, elsewhere, origin, clock, idle):
    await node("/a")
    clock.now += 100
    (asking,) = await held_back(origin, node, idle)
    elsewhere.memory.purge(Everything(), clock.now)  # as another variant of the key is stored elsewhere
    origin.turns[0].set_result(None)
    assert (await asking).handling >= {"fwd=stale", "fwd-status=304"}


async def test_a_response_forgotten_by_memory_is_still_a_fallback(node, elsewhere, origin, clock, idle):
    await node("/a")
    clock.now += 100
    (asking,) = await held_back(origin, node, idle)
    elsewhere.memory.purge(Everything(), clock.now)
    origin.status = 503
    origin.turns[0].set_result(None)
    assert (await asking).body == b"old"
