"""Large entries, a Redis that is full or that takes no writes: no client is held up for long, purges work."""

import asyncio
import time
from functools import partial

import pytest

from support import Stopwatch
from univocal.http.errors import RefusedError
from univocal.http.messages import Request
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Tags
from univocal.store.redis.commands import MOST_OCTETS

KEY = b"0123456789abcdef http en.example /wiki/A"


def large(made, foo, octets):
    return made(body=bytes(octets), more=[(b"vary", b"foo"), (b"xkey", b"red")], asked=[(b"foo", foo)])


async def test_an_entry_is_bounded_in_bytes_the_oldest_go(join, made, server):
    node = await join()
    part = MOST_OCTETS // 4
    for number in range(9):
        assert await node.put(large(made, b"%d" % number, part))
        await asyncio.sleep(0.002)
    entry = server.entry()
    stored = [field for field in server.client.hkeys(entry) if field.startswith(b"b")]
    assert len(stored) == 3
    assert sum(server.client.hstrlen(entry, field) for field in stored) <= MOST_OCTETS
    held = await (await join()).store.lookup(KEY, time.time())
    assert [one.vary[0][1] for one in held] == [b"8", b"7", b"6"]


async def test_larger_responses_stay_with_their_node_and_purges_reach_them(join, made, server, until):
    first, second = await join(), await join()
    first.memory.max_object_bytes = first.memory.max_bytes
    assert await first.put(made(body=bytes(MOST_OCTETS)))
    assert len(first.bodies()) == 1
    assert server.names("*:e:*") == []
    await second.purge()
    await until(lambda: not first.bodies())


async def test_a_request_that_selects_nothing_moves_no_large_content(join, made, server):
    first, second = await join(), await join()
    for number in range(3):
        assert await first.put(large(made, b"%d" % number, MOST_OCTETS // 8))
    server.client.config_resetstat()
    for number in range(20):
        request = Request(b"GET", b"/", [(b"foo", b"x%d" % number)])
        described = await second.store.lookup(KEY, time.time(), request)
        assert len(described) == 3
        assert not any(one.body for one in described)
        assert second.bodies() == []
    assert server.client.info("stats")["total_net_output_bytes"] < 200_000
    (one, *others) = await second.store.lookup(KEY, time.time(), Request(b"GET", b"/", [(b"foo", b"2")]))
    assert len(one.body) == MOST_OCTETS // 8
    assert [other.body for other in others] == [b"", b""]
    assert second.bodies() == [one.body]


async def test_reading_the_largest_entry_detaches_nobody(join, made):
    nodes = [await join(times={"heartbeat": 0.1, "command": 3.0}) for _ in range(3)]
    for number in range(8):
        assert await nodes[0].put(large(made, b"%d" % number, MOST_OCTETS // 4))
    going, seen = True, set()

    async def watch():
        while going:
            seen.update(node.store.connected for node in nodes)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    for node in nodes:
        assert len(await node.store.lookup(KEY, time.time())) == 3
    await asyncio.sleep(0.3)
    going = False
    await watching
    assert seen == {True}


async def test_purges_work_in_a_redis_that_is_full(join, made, server, until):
    first, second = await join(), await join()
    names = [b"0123456789abcdef http en.example /%d" % number for number in range(5)]
    for name in names:
        await first.put(made(name, more=[(b"xkey", b"red" if name == names[0] else b"blue")]))
        assert await second.read(name) == [b"content"]
    server.client.config_set("maxmemory", 1_000_000)
    assert await first.purge(names[1]) == 1
    assert await first.store.purge(Tags(frozenset((b"red",))), time.time()) == 1
    assert await first.store.purge(Prefix(frozenset((b"http en.example /2",))), time.time()) == 1
    assert await first.store.purge(Keys(frozenset((names[3],)), soft=True), time.time()) == 1
    await first.store.purge(Pattern("/4$", lambda url: url.endswith(b"/4")), time.time())
    await until(lambda: not any(second.bodies(name) for name in names))
    assert await first.store.purge(Everything(), time.time()) == 1
    assert first.store.connected
    # A response that the full Redis refuses is served from this node's memory for its lifetime.
    assert await first.put(made(names[0]))
    assert first.memory.lookup(names[0])[0].fresh_until > time.time() + 50
    assert await second.read(names[0]) == []
    # A node that starts now attaches as well.
    assert (await join()).store.connected


async def test_a_debt_is_paid_to_a_redis_that_is_full(join, made, server, until):
    first, second = await join(times={"command": 0.3}), await join()
    await first.put(made())
    assert await second.read() == [b"content"]
    server.client.config_set("maxmemory", 1_000_000)
    with server.standing_still(), pytest.raises(RefusedError):
        await first.purge()
    await until(lambda: first.store.connected)
    await until(lambda: not second.bodies())


async def test_a_debt_is_paid_as_soon_as_redis_takes_it(join, made, server, until):
    rights = ["~*", "&*", "+@all", "-hincrby"]  # which only purges need
    server.client.execute_command("ACL", "SETUSER", "cache", "on", ">pw", *rights)
    node, other = await join(url=server.url.replace("://", "://cache:pw@")), await join()
    assert await node.put(made())
    assert await other.read() == [b"content"]
    with pytest.raises(RefusedError):
        await node.store.purge(Everything())
    assert node.bodies() == []
    assert node.store.connected
    server.client.execute_command("ACL", "SETUSER", "cache", "+hincrby")
    await until(lambda: not other.bodies())
    assert await node.read() == []


async def test_a_detached_node_asks_redis_for_nothing(join, made, server, until):
    node = await join(times={"command": 1.2, "heartbeat": 0.1})
    with server.standing_still():
        await until(lambda: not node.store.connected)
        with Stopwatch() as watch:
            for _ in range(20):
                with pytest.raises(RefusedError, match="shared-store-unavailable"):
                    await node.purge()
                assert await node.put(made())
        assert node.bodies() == [b"content"]
        assert watch.seconds < 1.1  # one command would wait longer
    await until(lambda: node.store.connected)


async def test_where_nothing_can_be_written_only_the_first_miss_waits(join, made, server, until):
    first, second = await join(times={"command": 1.5}), await join(times={"command": 1.5})
    assert await first.put(made())
    server.client.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
    with Stopwatch() as miss:
        await second.get(KEY + b"1", partial(answered, made(KEY + b"1")))
    assert miss.seconds < 2.9  # two commands would wait longer
    with Stopwatch() as later:
        for number in range(9):
            name = KEY + b"2%d" % number
            assert await second.get(name, partial(answered, made(name))) == b"content"
        with pytest.raises(RefusedError):
            await second.purge()
    assert later.seconds < 1.4
    assert second.store.connected or miss.stood_still + later.stood_still > 1
    server.client.execute_command("CLIENT", "UNPAUSE")
    await until(lambda: not first.bodies())


async def answered(response):
    return response
