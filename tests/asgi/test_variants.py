"""Variants of one page, as stock middleware makes them (RFC 9111 §4.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from univocal import CacheMiddleware, Rules

FRESH = {"cache-control": "max-age=60"}
RELOAD = ("cache-control", "no-cache")
HERE, THERE = "https://here.example", "https://there.example"


@pytest.fixture
def shared(client_of: Any) -> Any:
    """A client of a page that says `Vary: Origin` to those alone that have one, as older middleware does."""

    async def page(request: Any) -> Response:
        origin = request.headers.get("origin")
        fields = {"access-control-allow-origin": origin, "vary": "Origin"} if origin else {}
        return PlainTextResponse("page", headers=FRESH | fields)

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)

    async def ask(origin: str = "", *fields: tuple[str, str]) -> tuple[str, bool]:
        answer = await client("/a", fields=[*([("origin", origin)] if origin else []), *fields])
        return answer["access-control-allow-origin"], "hit" in answer.handling

    return ask


async def test_responses_with_and_without_vary_stay_side_by_side(shared):
    assert await shared(HERE) == (HERE, False)
    assert await shared() == ("", False)
    for _ in range(2):
        assert await shared(HERE) == (HERE, True)
        assert await shared() == ("", True)
    assert await shared(THERE) == (THERE, False)
    assert [await shared(origin) for origin in (HERE, THERE, "")] == [(HERE, True), (THERE, True), ("", True)]


@pytest.mark.parametrize(
    ("allowed", "own", "hits"),
    [
        # Two requests each of none, here and there.
        (lambda origin: [(b"access-control-allow-origin", origin)] if origin else [], [], "-h-h-h"),
        (lambda origin: [], [], "-h-h-h"),
        (lambda origin: [(b"access-control-allow-origin", b"*")], [], "-hhhhh"),
        (lambda origin: [(b"access-control-allow-origin", b"*")] if origin else [], [], "-h-hhh"),
        (lambda origin: [(b"cache-control", b"public")], [], "-h-h-h"),
        (lambda origin: [], [(b"cache-control", b"max-age=60")], "-hhhhh"),  # its own lifetime says for whom
    ],
)
async def test_a_lifetime_of_ours_is_for_one_origin(cached, application, allowed, own, hits):
    def answer(scope):
        origin = dict(scope["headers"]).get(b"origin")
        return 200, [*allowed(origin), *own], b"for %b" % (origin or b"none")

    application.script = answer
    client, told = cached(rules=Rules(ttl=60)), ""
    for origin in ("", HERE, THERE):
        for _ in range(2):
            given = await client("/a", fields=[("origin", origin)] if origin else [])
            told += "h" if "hit" in given.handling else "-"
            assert hits != "-h-h-h" or given.body == b"for " + (origin.encode() or b"none")
    assert told == hits


async def test_a_default_response_answers_alone_what_nothing_varies(client_of):
    """A request that lacks the field says which of the two answers it: the newest."""
    varies = {"vary": "x-var"}

    async def page(request: Any) -> Response:
        return PlainTextResponse(request.headers.get("x-number", ""), headers=FRESH | varies)

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)
    varies.clear()
    await client("/a", fields=[("x-number", "1")])
    varies["vary"] = "x-var"
    await client("/a", fields=[("x-number", "2"), RELOAD])
    assert (await client("/a")).body == b"2"
    assert "vary-miss" not in (await client("/a")).handling
    assert "fwd=vary-miss" in (await client("/a", fields=[("x-var", "1")])).handling


# One strong entity-tag for two codings


@pytest.fixture
async def files(client_of: Any, tmp_path: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Clients of Starlette's files, compressed by its middleware, with the cache and without."""
    (tmp_path / "a.txt").write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))
    bare = GZipMiddleware(Starlette(routes=[Mount("/", StaticFiles(directory=tmp_path))]))
    yield client_of(CacheMiddleware(bare, rules=Rules(ttl=60))), client_of(bare)
    if calls := asyncio.all_tasks() - {asyncio.current_task()}:  # a file is closed after its last bytes
        await asyncio.wait(calls, timeout=5)


# Older ones say only of what they compress that it varies.
says_of_all_that_they_vary = pytest.mark.needs("starlette>=0.46")
PACKED, PLAIN = ("accept-encoding", "gzip"), ("accept-encoding", "identity")


@says_of_all_that_they_vary
@pytest.mark.parametrize("span", ["bytes=0-9", "bytes=100-", "bytes=-10", "bytes=100-200"])
@pytest.mark.parametrize("seen", [[PACKED, PLAIN], [PLAIN, PACKED]], ids=["gzip first", "plain first"])
@pytest.mark.parametrize("own", [PACKED, PLAIN], ids=["gzip", "plain"])
@pytest.mark.parametrize("conditional", [False, True])
async def test_ranges_of_an_etag_with_two_codings_are_the_origins(files, span, seen, own, conditional):
    client, bare = files
    tags = {(await client("/a.txt", fields=[coding]))["etag"] for coding in seen}
    assert len(tags) == 1
    fields = [own, ("range", span), *([("if-range", tags.pop())] if conditional else [])]
    for _ in range(2):
        answer, expected = await client("/a.txt", fields=fields), await bare("/a.txt", fields=fields)
        for name in ("content-range", "content-encoding"):
            assert answer[name] == expected[name]
        assert (answer.status, answer.body) == (expected.status, expected.body)
    for coding in seen:
        assert "hit" in (await client("/a.txt", fields=[coding])).handling


@says_of_all_that_they_vary
async def test_a_doubted_etag_stays_doubted_when_one_coding_goes(files):
    client, _ = files
    for coding in (PLAIN, PACKED):
        await client("/a.txt", fields=[coding])
    store = client.app.store
    held = store.lookup(next(iter(store._entries)))
    assert [(one.etag is not None, one.strong) for one in held] == [(True, None)] * 2
