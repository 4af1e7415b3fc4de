"""An answer that one node hears ends older responses on every node, also while they are validated."""

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
    """Do nothing: the node hears nothing of other nodes."""


@pytest.fixture
def origin():
    return Origin()


async def joined(join, app):
    """Two nodes before an application, and who asks them."""
    nodes = [await join() for _ in range(2)]
    transports = [httpx.ASGITransport(CacheMiddleware(app, store=node.tier)) for node in nodes]
    clients = [httpx.AsyncClient(transport=each, base_url="http://a.example") for each in transports]
    return [*zip(nodes, clients, strict=True)]


@pytest.fixture
async def nodes(join, origin):
    return await joined(join, origin)


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


# Answers that end a response


TAG = (b"etag", b'"1"')


class Page:
    """An application that gives each of its `replies` once: status, fields and content."""

    def __init__(self):
        self.replies = []

    async def __call__(self, scope, receive, send):
        status, fields, body = self.replies.pop(0)
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def page():
    return Page()


@pytest.fixture
async def pages(join, page):
    return await joined(join, page)


async def text(client, **fields):
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    return (await client.get("/x", headers=headers)).text


def fresh(*fields):
    return [(b"cache-control", b"max-age=600"), *fields]


async def test_a_304_adding_vary_moves_the_response_on_every_node(pages, page, until):
    (_, one), (node, other) = pages
    varied = fresh(TAG, (b"vary", b"x-var"))
    page.replies = [(200, fresh(TAG), b"old"), (304, varied, b""), (200, varied, b"new")]
    await text(one)
    assert await text(other) == "old"
    assert await text(one, cache_control="no-cache", x_var="a") == "old"
    await until(lambda: not node.memory.stats.entries)
    assert await text(other, x_var="b") == "new"
    assert await text(other, x_var="a") == "old"
    assert await text(one, x_var="a") == "old"
    assert not page.replies


@pytest.mark.parametrize("news", [(b"cache-control", b"no-store"), (b"vary", b"*")])
async def test_a_304_forbidding_storage_ends_the_response_on_every_node(pages, page, until, news):
    (_, one), (node, other) = pages
    page.replies = [(200, fresh(TAG), b"old"), (304, [TAG, news], b""), (200, fresh(), b"new")]
    await text(one)
    assert await text(other) == "old"
    assert await text(one, cache_control="no-cache", cookie="a=b") == "old"
    await until(lambda: not node.memory.stats.entries)
    assert await text(other) == "new"
    assert not page.replies


async def test_an_answer_that_ends_one_variant_leaves_the_others(pages, page, until):
    (_, one), (node, other) = pages
    varied = fresh((b"vary", b"accept-language"))
    page.replies = [
        (200, varied, b"old ru"),
        (200, varied, b"old de"),
        (404, [(b"cache-control", b"no-store")], b"gone"),
        (200, varied, b"new ru"),
    ]
    for language in ("ru", "de"):
        await text(one, accept_language=language)
        assert await text(other, accept_language=language) == f"old {language}"
    assert await text(one, cache_control="no-cache", accept_language="ru") == "gone"
    await until(lambda: node.memory.stats.responses < 2)
    assert await text(other, accept_language="ru") == "new ru"
    for client in (one, other):
        assert await text(client, accept_language="de") == "old de"
    assert not page.replies
