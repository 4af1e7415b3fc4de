"""What one node hears from the origin server ends older responses on every node."""

import httpx
import pytest

from univocal import CacheMiddleware

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
async def nodes(join, page):
    """Two nodes, and who asks them."""
    joined = [await join() for _ in range(2)]
    transports = [httpx.ASGITransport(CacheMiddleware(page, store=node.tier)) for node in joined]
    return [
        (node, httpx.AsyncClient(transport=transport, base_url="http://a.example"))
        for node, transport in zip(joined, transports, strict=True)
    ]


async def get(client, **fields):
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    return (await client.get("/x", headers=headers)).text


def fresh(*fields):
    return [(b"cache-control", b"max-age=600"), *fields]


async def test_a_304_adding_vary_moves_the_response_on_every_node(nodes, page, until):
    (_, one), (node, other) = nodes
    varied = fresh(TAG, (b"vary", b"x-var"))
    page.replies = [(200, fresh(TAG), b"old"), (304, varied, b""), (200, varied, b"new")]
    await get(one)
    assert await get(other) == "old"
    assert await get(one, cache_control="no-cache", x_var="a") == "old"
    await until(lambda: not node.memory.stats.entries)
    assert await get(other, x_var="b") == "new"
    assert await get(other, x_var="a") == "old"
    assert await get(one, x_var="a") == "old"
    assert not page.replies


@pytest.mark.parametrize("news", [(b"cache-control", b"no-store"), (b"vary", b"*")])
async def test_a_304_forbidding_storage_ends_the_response_on_every_node(nodes, page, until, news):
    (_, one), (node, other) = nodes
    page.replies = [(200, fresh(TAG), b"old"), (304, [TAG, news], b""), (200, fresh(), b"new")]
    await get(one)
    assert await get(other) == "old"
    assert await get(one, cache_control="no-cache", cookie="a=b") == "old"
    await until(lambda: not node.memory.stats.entries)
    assert await get(other) == "new"
    assert not page.replies


async def test_an_answer_that_ends_one_variant_leaves_the_others(nodes, page, until):
    (_, one), (node, other) = nodes
    varied = fresh((b"vary", b"accept-language"))
    page.replies = [
        (200, varied, b"old ru"),
        (200, varied, b"old de"),
        (404, [(b"cache-control", b"no-store")], b"gone"),
        (200, varied, b"new ru"),
    ]
    for language in ("ru", "de"):
        await get(one, accept_language=language)
        assert await get(other, accept_language=language) == f"old {language}"
    assert await get(one, cache_control="no-cache", accept_language="ru") == "gone"
    await until(lambda: node.memory.stats.responses < 2)
    assert await get(other, accept_language="ru") == "new ru"
    for client in (one, other):
        assert await get(client, accept_language="de") == "old de"
    assert not page.replies
