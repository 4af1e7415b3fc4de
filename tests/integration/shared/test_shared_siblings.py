"""Workers of one program over a Redis: a purge that one has confirmed is in force in all of them then."""

import asyncio
import time

import pytest

from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags
from univocal.store.redis.purges import Siblings, _MissedError

KEY = b"0123456789abcdef http en.example /wiki/A"
OTHER = b"0123456789abcdef http en.example /other"
SELECTORS = [
    Keys(frozenset((KEY,))),
    Tags(frozenset((b"red",))),
    Prefix(frozenset((b"http en.example /wiki/",))),
    Everything(),
]


class Held:
    """Keeps a node from following the journal until it is let go."""

    def __init__(self, node):
        self._purges = node.tier._purges
        self._read = self._purges._read
        self._stands, self._goes = asyncio.Event(), asyncio.Event()
        self._purges._read = self._wait

    async def _wait(self, pipe):
        self._stands.set()
        await self._goes.wait()
        await self._read(pipe)

    def attach_anew(self, history=b"of the server before"):
        """Have the node find another server: it knows another history than this one's."""

        async def missed(_):
            raise _MissedError

        self._purges._history = history or self._purges._history
        self._purges._read, self._read = self._read, missed
        self._goes.set()

    async def stands(self):
        await asyncio.wait_for(self._stands.wait(), 30)

    def let_go(self):
        self._purges._read = self._read
        self._goes.set()


async def held(node):
    one = Held(node)
    await one.stands()
    return one


async def servable(node, name=KEY):
    """The bodies that a request may get from memory or Redis."""
    seen = []

    def judge(_, others):
        seen[:] = [one.body for one in others]
        return bool(seen)

    lease = node.tier.begin(name, time.time())
    filled = asyncio.get_running_loop().create_future()
    node.tier.fill(lease, Request(b"GET", b"/", []), judge, filled.set_result, joined=True)
    await filled
    await node.store.release(lease)
    return seen


@pytest.fixture
async def pair(join, tmp_path):
    path = tmp_path / "purges"
    return await join(in_force=path), await join(in_force=path)


@pytest.mark.parametrize("selector", SELECTORS)
async def test_a_worker_that_is_behind_serves_nothing_purged(pair, made, until, selector):
    first, second = pair
    await first.put(made(more=[(b"xkey", b"red")]))
    assert await second.read() == second.bodies() == [b"content"]
    follower = await held(second)
    began = time.time()
    await first.store.purge(selector)
    assert second.bodies() == []
    assert not second.tier.trusted(began, time.time())
    assert await servable(second) == []
    follower.let_go()
    await until(lambda: second.tier.trusted(time.time(), time.time()))
    assert second.bodies() == await servable(second) == []


async def test_a_worker_that_has_caught_up_serves_the_rest(pair, made):
    first, second = pair
    for name in (KEY, OTHER):
        await first.put(made(name))
        await second.read(name)
    follower = await held(second)
    await first.purge()
    assert second.bodies(OTHER) == []
    waiting = asyncio.ensure_future(servable(second, OTHER))
    await asyncio.sleep(0)
    follower.let_go()
    assert await waiting == [b"content"]
    assert second.bodies(OTHER) == [b"content"]
    assert second.bodies() == []


async def test_a_worker_without_the_store_forgets_what_a_sibling_purged(pair, made):
    first, second = pair
    follower = await held(second)
    second.tier.lost("a test")
    await second.put(made())
    assert second.bodies() == [b"content"]
    lease = await second.store.begin(OTHER)
    await first.purge()
    assert second.bodies() == []
    assert not second.tier.commit(lease, made(OTHER))
    await second.store.release(lease)
    await second.put(made())
    assert second.bodies() == [b"content"]
    follower.let_go()


async def test_a_failover_before_a_worker_caught_up_empties_it(pair, made, until):
    """The purge that it did not hear of may be lost with the server that had it."""
    first, second = pair
    for name in (KEY, OTHER):
        await first.put(made(name))
        await second.read(name)
    follower = await held(second)
    await first.purge()
    follower.attach_anew()
    await until(lambda: second.tier.trusted(time.time(), time.time()))
    assert await servable(second, OTHER) == await servable(second) == []
    assert await servable(first, OTHER) == [b"content"]


async def test_a_journal_that_ends_before_a_confirmed_purge_begins_anew(pair, made, tmp_path, until):
    """Its server lost the end of it, and the worker that knew is gone."""
    first, second = pair
    await first.put(made())
    await second.read()
    lost = second.tier._purges.last() + 5_000
    third = Siblings(tmp_path / "purges")
    await third.raise_to(lost)
    third.close()
    assert first.bodies() == second.bodies() == []
    await until(lambda: first.tier._purges._position > lost and second.tier._purges._position > lost)
    assert await servable(first) == await servable(second) == []
    assert await first.put(made(body=b"new"))
    assert await second.read() == [b"new"]


# A node's own purge, whose number it knows before the stream brings it


async def test_an_own_purge_does_not_wait_for_the_stream(join, made, until):
    node, other = await join(), await join()
    for name in (KEY, OTHER):
        await node.put(made(name))
        await other.read(name)
    follower = await held(node)
    assert await node.purge() == 1
    assert (node.bodies(), node.bodies(OTHER)) == ([], [b"content"])
    await until(lambda: not other.bodies())
    follower.let_go()
    await other.purge(OTHER)
    await until(lambda: not node.bodies(OTHER))


async def test_the_stream_brings_an_own_purge_without_effect(join, made, until):
    node = await join()
    await node.put(made(OTHER))
    for _ in range(3):
        await node.put(made())
        await node.purge()
        trusted = node.store.trusted_until
        await until(lambda trusted=trusted: node.store.trusted_until > trusted)
    assert node.bodies(OTHER) == [b"content"]
    numbers = [each.number for each in node.tier._purges._kept]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_own_purge_waits_for_unread_purges_of_others(join, made, is_lost):
    node, other = await join(), await join()
    for name in (KEY, OTHER):
        await node.put(made(name))
    follower = await held(node)
    await other.purge(OTHER)
    purging = asyncio.ensure_future(node.purge())
    await asyncio.wait([purging], timeout=0.05)
    assert not purging.done()
    if is_lost:
        follower.attach_anew(history=b"")
    else:
        follower.let_go()
    assert await purging == 1
    assert node.bodies() == node.bodies(OTHER) == []
    assert node.store.connected


async def test_an_own_purge_of_another_server_waits_for_the_stream(join, made):
    node = await join()
    await node.put(made())
    follower = await held(node)
    node.tier._purges._place = ("the one before", 6379)
    purging = asyncio.ensure_future(node.purge())
    await asyncio.wait([purging], timeout=0.05)
    assert not purging.done()
    follower.let_go()
    assert await purging == 1
    assert node.bodies() == []


async def test_a_purge_by_a_worker_behind_is_in_force_everywhere(pair, made, until):
    first, second = pair
    for name in (KEY, OTHER):
        await first.put(made(name))
        await second.read(name)
    followers = [await held(first), await held(second)]
    assert await first.purge() == 1
    assert first.bodies() == second.bodies() == []
    assert first.bodies(OTHER) == [b"content"]
    assert second.bodies(OTHER) == []  # it may have missed more
    waiting = asyncio.ensure_future(second.purge(OTHER))
    await until(lambda: not first.bodies(OTHER))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    for follower in followers:
        follower.let_go()
    await waiting
    await until(lambda: first.tier.trusted(time.time(), time.time()))
    assert not any(node.bodies(name) for node in pair for name in (KEY, OTHER))


async def test_an_own_purge_answered_after_a_failover_is_not_confirmed(join, made, until):
    node, other = await join(), await join()
    await node.put(made())
    await other.read()
    follower, purges = await held(node), node.tier._purges
    publish = purges._publish

    async def late(*purge):
        purges._publish = publish
        number = await publish(*purge)
        purges._history = b"of the server behind it"
        return number

    purges._publish = late
    with pytest.raises(RefusedError):
        await node.purge()
    follower.attach_anew()
    assert node.bodies() == []
    await until(lambda: not node.tier._owed)
    await until(lambda: not other.bodies())


async def test_a_purge_with_a_number_known_before_is_not_confirmed(join, made, until):
    """The server has come back with an older journal, and no node has attached to it anew."""
    node, other = await join(), await join()
    for each in (node, other):
        await each.put(made())
    follower, purges = await held(node), node.tier._purges
    publish = purges._publish

    async def older(*purge):
        await publish(*purge)
        return purges._position

    purges._publish = older
    with pytest.raises(RefusedError):
        await node.purge()
    purges._publish = publish
    follower.attach_anew()
    await until(lambda: not node.tier._owed)
    await until(lambda: not other.bodies())
    assert node.bodies() == []
