"""ASGI applications for plain uvicorn, each a factory: bare, and behind a middleware.

    uvicorn --factory benchmarks.applications:bare

All of them answer as the origin does (servers.py), from memory; /count tells how many requests have arrived.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.contents import CACHEABLE, CONTENTS, UNCACHEABLE


def fields_of(content: bytes, cache_control: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", cache_control),
    ]


def bare() -> Any:
    """An application that looks a path up and sends two messages."""
    arrived = 0
    answers = {
        path: (content, fields_of(content, UNCACHEABLE if path == "/nostore" else CACHEABLE))
        for path, content in CONTENTS.items()
    }
    key = answers["/hit"]

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        nonlocal arrived
        if scope["type"] != "http":
            return
        if scope["path"] == "/count":
            content = b"%d" % arrived
            fields = fields_of(content, UNCACHEABLE)
        else:
            arrived += 1
            content, fields = answers.get(scope["path"], key)
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": content})

    return application


def with_univocal() -> Any:
    """The same behind univocal's middleware with its defaults."""
    from univocal import CacheMiddleware  # noqa: PLC0415 - the others are to start without it

    return CacheMiddleware(bare())


def with_base_http() -> Any:
    """The same behind a middleware of Starlette that does nothing."""
    from starlette.middleware.base import BaseHTTPMiddleware  # noqa: PLC0415 - optional

    async def through(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    return BaseHTTPMiddleware(bare(), dispatch=through)


def with_hishel() -> Any:
    """The same behind hishel's middleware with its default storage, a database in BENCHMARK_FOLDER."""
    from hishel import AsyncSqliteStorage  # noqa: PLC0415 - optional
    from hishel.asgi import ASGICacheMiddleware  # noqa: PLC0415

    database = os.path.join(os.environ["BENCHMARK_FOLDER"], "hishel.db")
    return ASGICacheMiddleware(bare(), AsyncSqliteStorage(database_path=database))
