"""Variants of one page, as stock middleware makes them (RFC 9111 §4.1)."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from univocal import CacheMiddleware

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


async def test_a_response_with_vary_leaves_the_default_one(shared):
    assert await shared() == ("", False)
    assert await shared(HERE, RELOAD) == (HERE, False)
    assert await shared() == ("", True)
    assert await shared(HERE) == (HERE, True)
    assert await shared(THERE) == (THERE, False)
    assert await shared("", RELOAD) == ("", False)
    assert [await shared(origin) for origin in (HERE, THERE, "")] == [(HERE, True), (THERE, True), ("", True)]


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


@pytest.mark.parametrize("vary", [None, "Origin", "Accept-Encoding"])
async def test_coded_content_goes_to_clients_that_accept_the_coding(client_of, vary):
    async def page(request: Any) -> Response:
        fields = FRESH | ({"vary": vary} if vary else {})
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(gzip.compress(b"page"), headers=fields | {"content-encoding": "gzip"})
        return PlainTextResponse("page", headers=fields)

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)
    for number in range(3):
        for fields in ([("accept-encoding", "gzip, br")], [("accept-encoding", "identity")], []):
            answer = await client("/a", fields=fields)
            packed = bool(fields) and fields[0][1] != "identity"
            assert (answer["content-encoding"] == "gzip") == packed
            assert (gzip.decompress(answer.body) if packed else answer.body) == b"page"
            assert ("hit" in answer.handling) == (number > 0)


async def test_followers_of_coded_content_without_vary_ask_for_themselves(client_of):
    async def page(request: Any) -> Response:
        return Response(gzip.compress(b"page"), headers=FRESH | {"content-encoding": "gzip"})

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)
    await client("/a", fields=[("accept-encoding", "gzip")])
    assert "fwd=vary-miss" in (await client("/a")).handling
    assert "hit" in (await client("/a", fields=[("accept-encoding", "gzip;q=0.5")])).handling
