"""What one client, or one bad moment of the origin, cannot do to the others; how much a slow one can hold."""

from __future__ import annotations

from typing import Any

from univocal import CacheMiddleware
from univocal.engine.broadcast import WINDOW


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
