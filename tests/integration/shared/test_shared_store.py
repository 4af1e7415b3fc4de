"""All nodes have a response that one stores; all forget a response that one purges."""

import asyncio
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from examples import cases
from univocal.http.errors import RefusedError
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Tags

KEY = b"0123456789abcdef http en.example /wiki/A"


async def test_a_node_keeps_what_it_stored_itself(join, made):
    node = await join()
    for body in (b"1", b"2", b"3"):
        assert await node.put(made(body=body))
        assert node.bodies() == [body]


async def test_a_new_response_makes_other_nodes_forget_theirs(join, made, until):
    first, second = await join(), await join()
    await first.put(made(body=b"1"))
    await second.read()
    await first.put(made(body=b"2"))
    await until(lambda: second.bodies() == [])
    assert await second.read() == [b"2"]


async def test_variants_are_bounded(join, made, server):
    node = await join()
    node.memory.max_variants = 4
    for number in range(9):
        await node.put(made(body=b"%d" % number, more=[(b"vary", b"foo")], asked=[(b"foo", b"%d" % number)]))
        await asyncio.sleep(0.002)
    assert sorted(await node.read()) == [b"5", b"6", b"7", b"8"]
    assert server.client.hlen(server.entry()) == 8


SELECTORS = [
    (Keys(frozenset((KEY,))), 1),
    (Tags(frozenset((b"red", b"none"))), 2),
    (Tags(frozenset((b"red",)), origin=b"http en.example"), 1),
    (Prefix(frozenset((b"http en.example /wiki/",))), 2),
    (Pattern("A$", lambda url: url.endswith(b"/wiki/A")), 2),
    (Everything(), 4),
]


def some(made):
    other = b"0123456789abcdef http de.example "
    return [
        made(more=[(b"xkey", b"red blue")]),
        made(b"0123456789abcdef http en.example /wiki/B*"),
        made(b"0123456789abcdef http en.example /w/C", more=[(b"cache-tag", b"blue")]),
        made(other + b"/wiki/A", more=[(b"surrogate-key", b"red")]),
    ]


@cases("selector, count", *SELECTORS, (Tags(frozenset((b"blue", b"none", b"red"))), 3))
async def test_the_responses_that_a_purge_means_are_counted(join, made, server, selector, count):
    first, second = await join(), await join()
    stored = some(made)
    for one in stored:
        assert await first.put(one)
    names = server.names()
    assert await first.store.count(selector) == count
    assert second.store.tier.counts(selector) == isinstance(selector, Keys)
    # Of entries that only Redis has, a node knows how many are under a URL.
    assert await second.store.count(selector) == (count if isinstance(selector, Keys) else 0)
    assert server.names() == names
    assert sum([len(await second.read(one.key)) for one in stored]) == 4


async def test_nobody_counts_without_the_shared_store(join, made, server):
    node = await join()
    await node.put(made())
    server.kill()
    await node.loses_redis()
    with pytest.raises(RefusedError, match="shared-store-unavailable"):
        await node.store.count(Everything())


@pytest.mark.parametrize(("selector", "count"), SELECTORS)
async def test_a_soft_purge_marks_stale_everywhere(join, made, until, selector, count):
    first, second = await join(), await join()
    stored = some(made)
    for one in stored:
        await first.put(one)
        await second.read(one.key)
    fields = {name: getattr(selector, name) for name in selector.__dataclass_fields__} | {"soft": True}
    told = 0 if isinstance(selector, Pattern) else count  # it is tested later
    assert await first.store.purge(type(selector)(**fields)) == told

    def fresh(node):
        held = [found for one in stored for found in node.memory.lookup(one.key)]
        return sum(one.fresh_until > time.time() for one in held)

    await until(lambda: fresh(second) == 4 - count)
    read = [found for one in stored for found in await second.store.lookup(one.key, time.time())]
    assert len(read) == 4
    assert sum(one.fresh_until > time.time() for one in read) == 4 - count


@pytest.mark.parametrize("selector", [one for one, _ in SELECTORS])
async def test_a_soft_purge_reaches_memory_only_responses_too(join, made, until, selector):
    first, second = await join(), await join()
    more = [(b"no-vary-search", b'params=("utm")'), (b"xkey", b"red")]
    for node in (first, second):
        assert await node.put(made(more=more))
    await first.store.purge(replace(selector, soft=True), time.time())
    await first.put(made(b"another key, whose notice comes after that of the purge"))
    await until(lambda: not second.bodies())
    for node in (first, second):
        (held,) = node.memory.lookup(KEY)
        assert held.fresh_until <= time.time()
    await first.store.purge(selector, time.time())
    await until(lambda: not second.memory.lookup(KEY))


async def test_a_flushed_redis_empties_memory(join, made, server, until):
    node = await join()
    await node.put(made())
    server.client.flushall()
    await until(lambda: not node.bodies())


async def test_an_unreadable_entry_is_a_miss(join, made, server):
    first, second = await join(), await join()
    await first.put(made())
    entry = server.entry()
    (field,) = [name for name in server.client.hkeys(entry) if name.startswith(b"m")]
    line, _, described = server.client.hget(entry, field).partition(b"\n")
    fresh, cost = described.split(b" ")[2], b" %d " % made().cost
    altered = [
        described.replace(old, new, 1)
        for old, new in ((b"w", b"x"), (fresh, b"1e999"), (fresh, b"nan"), (cost, b" 1e999 "))
    ]
    assert described not in altered
    unreadable = [b"", b"2 w", line, b"x" + line + b"\n" + described, b"\xff" * 99]
    for octets in [*unreadable, *(line + b"\n" + text for text in (described[:-1], *altered))]:
        server.client.hset(entry, field, octets)
        assert await second.read() == []
        assert await second.store.purge(Tags(frozenset((b"t",)))) == 0
    assert await second.purge() == 0
    assert await second.put(made())
    assert await first.read() == [b"content"]


async def test_nothing_stays_behind(join, made, server):
    node = await join()
    for _ in range(3):
        await node.put(made(more=[(b"xkey", b"red")]))
    lease = await node.store.obtain(KEY + b"2", lambda _: None)
    journal = {b"univocal:3:%b:{journal}" % name for name in (b"head", b"log", b"last", b"how")}
    others = set(server.names()) - journal - {b"univocal:3:walk:{journal}"}
    assert others == {server.entry(), b"univocal:3:t:{%b2}" % KEY}
    assert all(server.client.pttl(name) > 0 for name in others)
    await node.store.release(lease)
    await node.purge()
    assert set(server.names()) - {b"univocal:3:walk:{journal}"} == journal


@pytest.mark.parametrize(
    "selector",
    [Everything(), Prefix(frozenset((b"http en.example /",))), Tags(frozenset((b"all",)))],
    ids=["everything", "prefix", "tags"],
)
async def test_a_purge_by_another_node_goes_in_slices(join, made, named, selector):
    """Between each two of them the event loop goes on."""
    purger, node = await join(), await join()
    one = made(named("/0"), more=[(b"surrogate-key", b"all")])
    for number in range(3_000):
        lease = node.memory.leases.begin(named(f"/{number}"), one.response_time)
        assert node.memory.commit(lease, replace(one, key=lease.key))
        node.memory.leases.release(lease)
    left = list[int]()
    task = asyncio.create_task(purger.store.purge(selector, time.time()))
    async with asyncio.timeout(20):
        while node.memory.stats.responses or not task.done():
            left.append(node.memory.stats.responses)
            await asyncio.sleep(0)
    removed = [before - after for before, after in pairwise([*left, 0]) if before != after]
    assert len(removed) >= 6
    assert max(removed) <= 400  # one slice in each iteration of the event loop
    assert node.store.connected
