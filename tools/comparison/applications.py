"""The application that stands behind hishel, and writes down which targets it was asked for."""

from __future__ import annotations

import os
from typing import Any


def note(target: str) -> None:
    """Write down what was asked for, in the file COMPARISON_SEEN."""
    with open(os.environ["COMPARISON_SEEN"], "a", encoding="utf-8") as seen:
        seen.write(f"GET {target}\n")


async def application(scope: Any, _receive: Any, send: Any) -> None:
    """Answer a GET with 200, fresh for a minute, and write its target down; anything else with 405."""
    if scope["type"] != "http":
        return
    if scope["method"] != "GET":
        await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"GET")]})
        await send({"type": "http.response.body", "body": b""})
        return
    note(scope["raw_path"].decode("latin-1"))
    fields = [(b"cache-control", b"max-age=60"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": b"ok"})


def with_hishel() -> Any:
    """The application behind hishel's middleware with its default storage, in a database of its own."""
    from hishel import AsyncSqliteStorage  # noqa: PLC0415 - optional
    from hishel.asgi import ASGICacheMiddleware  # noqa: PLC0415

    database = f"{os.environ['COMPARISON_SEEN']}.db"
    return ASGICacheMiddleware(application, AsyncSqliteStorage(database_path=database))
