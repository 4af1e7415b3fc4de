"""The page of a mounted cache: its figures, its rights, and what it purges."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from examples import cases
from univocal import CacheMiddleware, ConfigurationError, Rules, cached, tag
from univocal.store.shared import SharedTier

HTML = {"accept": "text/html"}


def shop(**page: Any) -> CacheMiddleware:
    app = FastAPI()
    settings = {
        name: page.pop(name) for name in ("sites", "purge_token", "trusted_proxies", "store") if name in page
    }
    cache = CacheMiddleware(app, rules=Rules(ttl=60), **settings)

    @app.get("/items/{name}")
    @cached(tags=["items"])
    def item(name: str) -> str:
        tag(name)
        return name

    app.mount("/-/cache", cache.page(**page))
    return cache


async def ask(
    cache: CacheMiddleware,
    path: str,
    method: str = "GET",
    host: str = "127.0.0.1:8000",
    client: str = "127.0.0.1",
    **more: Any,
) -> httpx.Response:
    transport = httpx.ASGITransport(cache, client=(client, 50000))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as browser:
        return await browser.request(method, path, **more)


async def test_a_mounted_cache_shows_its_figures_and_purges():
    cache = shop()
    for path in ("/items/a", "/items/a", "/items/%61", "/items/b"):
        await ask(cache, path)
    await ask(cache, "/items/c", headers={"x-api-key": "ann"})
    page = await ask(cache, "/-/cache/", headers=HTML)
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    for name in ("page.css", "page.js", "charts.js"):
        assert f'-/page/{name}"' in page.text or name == "charts.js"
        assert (await ask(cache, f"/-/cache/-/page/{name}")).status_code == 200
    totals = (await ask(cache, "/-/cache/-/stats")).json()["totals"]
    assert totals["hits"] == 2
    top = (await ask(cache, "/-/cache/-/top?by=requests&n=1")).json()
    assert top == [{"key": "http://127.0.0.1:8000/items/a", "count": 3}]
    assert (await ask(cache, "/-/cache/-/top?by=personal")).json()[0]["field"] == "x-api-key"
    url = "http://127.0.0.1:8000/items/%61"
    assert (
        (await ask(cache, f"/-/cache/-/explain?url={url.replace('%', '%25')}"))
        .json()["canonical"]
        .endswith("/a")
    )
    assert (await ask(cache, "/-/cache/-/spellings")).json()["folded"] == 1
    assert (await ask(cache, "/-/cache/-/purge/preview", "POST", json={"tag": "items"})).json()[
        "would_purge"
    ] == 2
    assert (await ask(cache, "/-/cache/-/purge", "POST", json={"tag": "items"})).json()["purged"] == 2
    assert cache.entries(url) == []
    for path in ("origins", "failures", "purge-misses", "config"):
        assert (await ask(cache, f"/-/cache/-/{path}")).status_code == 200


async def test_a_mounted_page_shows_what_a_store_behind_memory_holds(tmp_path):
    cache = shop(store=f"file://{tmp_path / 'store'}")
    await ask(cache, "/items/a")
    stored = dict[str, Any]()
    for _ in range(1500):
        stored = (await ask(cache, "/-/cache/-/stats")).json()["totals"]["stored"]
        if stored["responses"]:
            break
        await asyncio.sleep(0.02)
    assert stored["shared"]["responses"] == stored["memory"]["responses"] == 1
    assert stored["max_bytes"] != stored["memory"]["max_bytes"]
    assert isinstance(cache.tiers, SharedTier)
    await cache.tiers.aclose()


@cases(
    "asked, settings, status",
    ({}, {}, 200),
    ({"host": "localhost:8000"}, {}, 200),
    ({"client": "192.0.2.1"}, {}, 403),
    ({"host": "evil.example"}, {}, 403),  # a name that somebody has pointed here
    ({"host": "shop.example"}, {"sites": {"shop.example": "asgi"}}, 200),
    ({"headers": {"sec-fetch-site": "cross-site"}}, {}, 403),
    ({"headers": {"x-forwarded-for": "192.0.2.1"}}, {}, 403),
    ({"headers": {"x-forwarded-for": "192.0.2.1"}}, {"trusted_proxies": ["127.0.0.1"]}, 403),
    ({"client": "192.0.2.1", "headers": {"authorization": "Bearer open"}}, {"purge_token": "open"}, 200),
    ({"host": "evil.example", "headers": {"authorization": "Bearer open"}}, {"purge_token": "open"}, 200),
    ({}, {"allow": lambda scope: False}, 403),
    ({"client": "192.0.2.1", "host": "a.example"}, {"allow": lambda scope: scope["type"] == "http"}, 200),
)
async def test_the_rights_are_those_of_purge_or_the_users(asked, settings, status):
    cache = shop(**settings)
    for path, method in (("/-/cache/-/stats", "GET"), ("/-/cache/-/purge", "POST")):
        content = {"json": {"all": True}} if method == "POST" else {}
        assert (await ask(cache, path, method, **asked, **content)).status_code == status
    page = await ask(cache, "/-/cache/", **{**asked, "headers": {**HTML, **asked.get("headers", {})}})
    assert page.status_code == status
    assert "<!doctype html>" in page.text.lower()  # it asks for the token


async def test_an_awaited_right_counts():
    async def nobody(_: Any) -> bool:
        return False

    assert (await ask(shop(allow=nobody), "/-/cache/-/stats")).status_code == 403


def test_a_right_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match=r"^CacheMiddleware: allow: found True; allowed: a callable"):
        shop(allow=True)
