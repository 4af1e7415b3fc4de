"""What one client, or one bad moment of the origin, cannot do to the others; how much a slow one can hold."""

from __future__ import annotations

import asyncio
from typing import Any

from support import Clock
from univocal import CacheMiddleware
from univocal.engine.broadcast import WINDOW


async def test_an_error_lets_nobody_wait_for_ten_seconds(application: Any, client_of: Any, idle: Any) -> None:
    clock = Clock()
    application.script = lambda scope: (503, [], b"ill")
    ask = client_of(CacheMiddleware(application, clock=clock))
    await ask("/a")
    for seconds, requests in ((9.9, 20), (10, 1)):
        clock.now += seconds
        before, application.gate = application.count, asyncio.Event()
        waiting = [asyncio.ensure_future(ask("/a")) for _ in range(20)]
        await idle()
        assert application.count == before + requests
        application.gate.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {503}


async def test_one_client_s_own_answer_does_not_switch_collapsing_off(
    application: Any, client_of: Any
) -> None:
    ask = client_of(CacheMiddleware(application))
    await ask("/a", fields=[("authorization", "Basic eDp5")])
    application.gate = asyncio.Event()
    waiting = [asyncio.ensure_future(ask("/a")) for _ in range(20)]
    await application.reached(2)
    application.gate.set()
    await asyncio.gather(*waiting)
    assert application.count == 2


async def test_a_client_s_reload_does_not_remove_what_is_fresh(application: Any, client_of: Any) -> None:
    def script(scope: dict[str, Any]) -> Any:
        own = any(name == b"authorization" for name, _ in scope["headers"])
        return 200, [(b"cache-control", b"max-age=60"), (b"etag", b'"%d"' % own)], b"own" if own else b"all"

    application.script = script
    ask = client_of(CacheMiddleware(application))
    await ask("/a")
    await ask("/a", fields=[("authorization", "Basic eDp5"), ("cache-control", "no-cache")])
    assert (await ask("/a")).body == b"all"
    assert application.count == 2


async def test_a_large_stored_body_is_sent_in_pieces(application: Any) -> None:
    application.body = bytes(range(256)) * (3 * WINDOW // 256) + b"end"
    middleware = CacheMiddleware(application)
    sizes: list[int] = []
    received = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal received
        if message["type"] == "http.response.body":
            sizes.append(len(message["body"]))
            received += message["body"]

    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/a",
        "raw_path": b"/a",
        "query_string": b"",
        "headers": [(b"host", b"en.example")],
        "http_version": "1.1",
        "client": ("127.0.0.1", 1),
    }
    for _ in range(2):  # the origin's answer, then the stored one
        sizes.clear()
        received = b""
        await middleware(scope, receive, send)
        assert received == application.body
        assert max(sizes) <= WINDOW
    assert application.count == 1
