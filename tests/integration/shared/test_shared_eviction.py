"""What Redis evicts, or somebody deletes by hand, is a miss, and nothing that was purged comes back by it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags

KEY = b"0123456789abcdef http en.example /wiki/A"
RED = [(b"xkey", b"red"), (b"vary", b"foo")]


def tagged(made, foo: bytes, tags: bytes = b"red"):
    return made(body=foo, more=[(b"xkey", tags), (b"vary", b"foo")], asked=[(b"foo", foo)])


@pytest.mark.parametrize("soft", [False, True])
async def test_what_a_purge_did_not_find_does_not_come_back_with_its_tag(join, made, server, soft):
    first, second = await join(), await join()
    assert await first.put(tagged(made, b"old"))
    server.client.delete(*server.names("*:t:red"))
    await first.store.purge(Tags(frozenset((b"red",)), soft=soft), time.time())
    assert await second.put(tagged(made, b"new"))
    assert await first.read() == await second.read() == [b"new"]


async def test_nor_with_the_other_of_its_two_tags(join, made, server):
    node = await join()
    assert await node.put(tagged(made, b"old", b"red blue"))
    server.client.delete(*server.names("*:t:red"), *server.names("*:t:blue"))
    await node.store.purge(Tags(frozenset((b"red",))), time.time())
    assert await node.put(tagged(made, b"green", b"green"))
    assert await node.put(tagged(made, b"blue", b"blue"))
    assert await node.put(tagged(made, b"new", b"red"))
    assert sorted(await node.read()) == [b"blue", b"green", b"new"]


async def test_nor_when_another_is_validated(join, made, server):
    first, second = await join(), await join()
    for one in (b"old", b"kept"):
        assert await first.put(tagged(made, one))
    server.client.delete(*server.names("*:t:red"))
    await first.store.purge(Tags(frozenset((b"red",))), time.time())
    assert await second.put(tagged(made, b"kept"))  # as a 304 renews it
    assert await first.read() == [b"kept"]


async def test_what_no_purge_missed_stays(join, made):
    node = await join()
    for one in (b"1", b"2", b"3"):
        assert await node.put(tagged(made, one, b"red blue" if one == b"2" else b"red"))
    assert sorted(await node.read()) == [b"1", b"2", b"3"]


async def test_evicted_for_real(join, made, server, named):
    """Redis evicts some index sets alone; what they led to is purged, then stored anew in another variant."""
    node = await join()
    names = [named(f"/{number}") for number in range(300)]

    def page(name, foo):
        more = [(b"xkey", b"page-" + name.rpartition(b"/")[2]), (b"vary", b"foo")]
        return made(name, foo, more, [(b"foo", foo)])

    for name in names:
        await node.put(page(name, b"old"))
    server.client.config_set("maxmemory-policy", "volatile-random")
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] - 100_000)
    server.client.set("more", 1, ex=1)
    server.client.config_set("maxmemory", 0)
    left = set(server.names("*:e:*"))
    indexed = {name.rpartition(b"page-")[2] for name in server.names("*:t:*")}
    lost = [one for one in names if server.entry(one) in left and one.rpartition(b"/")[2] not in indexed]
    for name in lost:
        tag = b"page-" + name.rpartition(b"/")[2]
        await node.store.purge(Tags(frozenset((tag,))), time.time())
        await node.put(page(name, b"new"))
    assert [await node.read(name) for name in lost] == [[b"new"]] * len(lost)


async def test_a_deletion_by_hand_ends_the_fetch_under_way(join, made, server):
    first, second = await join(), await join()
    assert await first.put(made(body=b"1"))
    lease = await second.store.begin(KEY)
    server.client.delete(server.entry())
    assert not await second.store.commit(lease, made(body=b"1"))
    await second.store.release(lease)
    assert await first.read() == await second.read() == []


async def test_also_if_somebody_stored_it_anew_meanwhile(join, made, server):
    first, second = await join(), await join()
    assert await first.put(made(body=b"1"))
    lease = await second.store.begin(KEY)
    server.client.delete(server.entry())
    assert await first.put(made(body=b"2"))
    assert not await second.store.commit(lease, made(body=b"1"))
    assert await first.read() == await second.read() == [b"2"]


async def test_also_if_it_was_stored_and_deleted_since(join, made, server):
    first, second = await join(), await join()
    lease = await second.store.begin(KEY)
    assert await first.put(made(body=b"1"))
    server.client.delete(server.entry())
    assert not await second.store.commit(lease, made(body=b"1"))
    assert await second.read() == []


async def test_what_merely_expires_ends_no_fetch(join, made, server, until):
    first, second = await join(), await join()
    short = replace(made(body=b"1"), fresh_until=time.time() + 0.2, stale_usable=False)
    assert await first.put(short)
    leases = [await node.store.begin(KEY) for node in (first, second)]
    await until(lambda: not server.client.exists(server.entry()))
    third = await second.store.begin(KEY)
    for number, lease in enumerate((*leases, third)):
        assert await second.store.commit(lease, made(body=b"%d" % number))
    assert await first.read() == [b"2"]


@pytest.mark.parametrize("selector", [Keys(frozenset((KEY,))), Tags(frozenset((b"red",)))])
async def test_a_spared_lease_outlives_the_deletion_that_its_own_purge_is(join, made, selector):
    node = await join()
    assert await node.put(tagged(made, b"old"))
    lease = await node.store.begin(KEY)
    await node.store.purge(selector, time.time(), sparing=lease)
    assert await node.store.commit(lease, tagged(made, b"new"))
    assert await node.read() == [b"new"]


@pytest.mark.parametrize(
    "selector",
    [
        Keys(frozenset((KEY,))),
        Tags(frozenset((b"red",))),
        Prefix(frozenset((b"http en.example /",))),
        Everything(),
    ],
)
async def test_a_purge_leaves_no_key_in_the_index(join, made, server, selector):
    node = await join()
    assert await node.put(tagged(made, b"1", b"red blue"))
    await node.store.purge(selector, time.time())
    assert server.names("*:t:*") == []


async def test_what_replaces_a_response_takes_it_out_of_its_tags(join, made, server):
    node = await join()
    assert await node.put(tagged(made, b"1", b"red blue"))
    assert await node.put(tagged(made, b"2", b"green"))
    assert await node.put(tagged(made, b"1", b"red"))
    assert [name.rpartition(b":")[2] for name in server.names("*:t:*")] == [b"green", b"red"]


async def test_a_purge_of_a_tag_takes_what_is_gone_out_of_it(join, made, server, named):
    first, second = await join(), await join()
    for number in range(5):
        await first.put(made(named(f"/{number}"), more=RED))
    (index,) = server.names("*:t:red")
    server.client.delete(*(server.entry(named(f"/{number}")) for number in range(4)))
    assert server.client.zcard(index) == 5
    assert await second.store.purge(Tags(frozenset((b"red",)), soft=True), time.time()) == 1
    assert server.client.zrange(index, 0, -1) == [named("/4")]


async def test_a_tag_stays_in_proportion_to_what_is_there(join, made, server, named):
    node = await join()
    for number in range(400):
        await node.put(made(named(f"/{number}"), more=RED))
        if number >= 20:
            server.client.delete(server.entry(named(f"/{number - 20}")))  # as Redis would evict the oldest
    (index,) = server.names("*:t:red")
    assert len(server.names("*:e:*")) == 20
    assert server.client.zcard(index) < 60


async def test_an_index_or_a_log_of_another_kind_stops_no_purge(join, made, server):
    node = await join()
    for pattern in ("*:t:red", "*:log"):
        assert await node.put(tagged(made, b"1"))
        (name,) = server.names(pattern)
        server.client.delete(name)
        server.client.set(name, "of another kind")
        await node.store.purge(Tags(frozenset((b"red",))), time.time())
        assert await node.read() == []
        assert node.store.connected
