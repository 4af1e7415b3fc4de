"""Validations under way while other requests, and other nodes, change what is stored under the same key."""

import asyncio

import httpx
import pytest

from support import RevalidatedPage
from univocal import CacheMiddleware

FIELDS = [
    (b"cache-control", b"max-age=600, stale-while-revalidate=600"),
    (b"etag", b'"same"'),
    (b"vary", b"accept-language"),
]


class Origin(RevalidatedPage):
    """A page in several languages; each answer waits for the event of its language in `turns`."""

    def __init__(self):
        super().__init__(FIELDS)
        self.turns = {}

    async def turn(self, fields):
        if (turn := self.turns.get(fields[b"accept-language"])) is not None:
            await turn.wait()


def unheard(changed):
    """Nothing is heard of what other nodes do."""


@pytest.fixture
def origin():
    return Origin()


@pytest.fixture
async def nodes(join, origin):
    """Two nodes, and who asks them."""
    joined = [await join() for _ in range(2)]
    transports = [httpx.ASGITransport(CacheMiddleware(origin, store=node.tier)) for node in joined]
    return [
        (node, httpx.AsyncClient(transport=transport, base_url="http://a.example"))
        for node, transport in zip(joined, transports, strict=True)
    ]


async def get(client, language="en", **fields):
    return await client.get("/x", headers={"accept-language": language, **fields})


async def test_another_variant_that_is_stored_meanwhile_is_no_purge(nodes, origin, until):
    """Memory forgets all variants of a key when one of them changes."""
    (_, client), _ = nodes
    for language in ("en", "de"):
        await get(client, language)
        origin.turns[language.encode()] = asyncio.Event()
    asking = [
        asyncio.create_task(get(client, language, **{"cache-control": "no-cache"}))
        for language in ("en", "de")
    ]
    await until(lambda: len(origin.asked) == 4)
    for turn, task in zip(origin.turns.values(), asking, strict=True):
        turn.set()
        assert (await task).text == "old"
    assert origin.asked == [None, None, b'"same"', b'"same"']


async def test_a_purge_on_another_node_ends_what_is_validated(nodes, origin, until):
    (node, client), (_, other) = nodes
    await get(client)
    origin.turns[b"en"] = asyncio.Event()
    asking = asyncio.create_task(get(client, **{"cache-control": "no-cache"}))
    await until(lambda: len(origin.asked) == 2)
    assert (await other.request("PURGE", "/x")).json()["purged"] == 1
    await until(lambda: not node.memory.stats.entries)
    origin.content = b"new"
    origin.turns[b"en"].set()
    assert (await asking).text == "new"
    assert origin.asked == [None, b'"same"', None]
    for each in (client, other):
        assert (await get(each)).text == "new"


@pytest.mark.parametrize("field", [{}, {"cache-control": "no-cache"}], ids=["in the background", "asked for"])
async def test_an_untold_purge_elsewhere_is_no_news_to_others(nodes, origin, until, monkeypatch, field):
    """The lease is younger than the purge: only its number keeps a 304 from bringing the response back."""
    (node, client), (_, other) = nodes
    await get(client)
    assert (await client.request("PURGE", "/x", headers={"soft-purge": "1"})).json()["softened"] == 1
    assert "hit" in (await get(client, **{"cache-control": "max-stale"})).headers["cache-status"]
    monkeypatch.setattr(node.tier._purges, "_keep", unheard)
    monkeypatch.setattr(node.tier._purges, "_advance", unheard)
    await other.request("PURGE", "/x")
    assert node.memory.stats.entries == 1
    origin.content = b"new"
    await get(client, **field)
    await until(lambda: len(origin.asked) == 2)
    assert (await get(other)).text == "new"
