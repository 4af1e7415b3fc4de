"""The walk in the background that removes from Redis what is purged, and the keys of older versions."""

import asyncio

import pytest

from univocal.store.purge_selectors import Keys, Prefix, Tags
from univocal.store.redis import entries as walking

RED = Tags(frozenset((b"red",)))


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """A walk that waits for nothing, a few keys a step."""
    monkeypatch.setattr(walking, "_IDLE", 0.02)
    monkeypatch.setattr(walking, "_PACE", 0.0)
    monkeypatch.setattr(walking, "_STEP", 3)


def entries(server):
    return sorted(name for name in server.client.keys("*:e:*"))


def number(server, name):
    """The number up to which no purge means the response of an entry."""
    fields = server.client.hgetall(name)
    return int(next(text for field, text in fields.items() if field.startswith(b"m")).split()[0])


async def test_valid_responses_get_the_number_of_the_walk(join, made, named, server, until):
    node = await join()
    await node.put(made(named("/blue")))
    (name,) = entries(server)
    before = number(server, name)
    await node.store.purge(Prefix(frozenset((b"http en.example /red",))))
    await until(lambda: number(server, name) > before)
    assert await (await join()).read(named("/blue")) == [b"content"]


async def test_many_purges_begin_a_walk_before_its_time(join, made, named, server, until, monkeypatch):
    """A node forgets the first of very many purged names: what is older than these counts as purged."""
    monkeypatch.setattr(walking, "_IDLE", 60.0)
    monkeypatch.setattr(walking, "_PRESSED", 20)
    node = await join()
    await node.put(made(named("/blue")))
    (name,) = entries(server)
    before = number(server, name)
    await node.store.purge(Keys(frozenset(named(f"/other/{each}") for each in range(20))))
    await until(lambda: number(server, name) > before)


async def test_without_another_purge_nobody_walks_again(join, made, server, until):
    server.client.set(b"univocal:2:a", b"1")
    node = await join()
    await until(lambda: not server.client.exists(b"univocal:2:a"))  # the first walk
    await asyncio.sleep(0.1)
    server.client.set(b"univocal:2:b", b"1")
    await node.put(made())
    await asyncio.sleep(0.2)
    assert server.client.exists(b"univocal:2:b")
    await node.store.purge(RED)
    await until(lambda: not server.client.exists(b"univocal:2:b"))
    assert len(entries(server)) == 1


async def test_keys_of_older_versions_go_and_strangers_stay(join, made, server, until):
    for name in (b"univocal:2:e:a", b"univocal:1", b"other:1"):
        server.client.set(name, b"1")
    node = await join()
    await node.put(made())
    await node.store.purge(RED)
    await until(lambda: not server.client.exists(b"univocal:2:e:a", b"univocal:1"))
    assert server.client.exists(b"other:1")
    assert len(entries(server)) == 1


async def test_response_that_was_stored_meanwhile_stays(join, made, server, until, monkeypatch):
    """The walk reads a response, another takes its place, and the walk removes what it has read."""
    server.client.set(walking._WALKER, b"another node", px=60_000)  # no walk begins before the purge
    node, taken = await join(), list[bytes]()
    read = walking.decode

    def replaced(*args):
        stored = read(*args)
        text = server.client.hgetall(entries(server)[0])
        field = next(each for each in text if each.startswith(b"m"))
        server.client.hset(entries(server)[0], field, text[field] + b" ")
        taken.append(field)
        return stored

    await node.put(made(more=[(b"xkey", b"red")]))
    await node.store.purge(RED)
    monkeypatch.setattr(walking, "decode", replaced)
    server.client.delete(walking._WALKER)
    await until(lambda: taken)
    await node.store.purge(Tags(frozenset((b"blue",))))
    await until(lambda: len(taken) > 1)  # a second walk: the first has removed all that it removes
    assert entries(server)
