"""The admin listener as an ASGI application."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from univocal.errors import RefusedError
from univocal.gate import Gate
from univocal.problem import problem
from univocal.purge import may_purge, purge_selected
from univocal.scope import received
from univocal.trust import believe

from ..config import Configuration
from ..metrics import CONTENT_TYPE_LATEST, Metrics

__all__ = ["admin"]

MAX_PURGE: Final = 4 * 2**20  # octets of a purge request's content

Endpoint = Callable[[Request], Awaitable[Response]]


def admin(gate: Gate, configuration: Configuration, metrics: Metrics) -> Starlette:
    """The application; it purges what `gate` stores, by the same rules as the PURGE method."""
    endpoints: list[tuple[str, str, Endpoint]] = [
        ("/-/health", "GET", _health),
        ("/-/ready", "GET", _ready),
        ("/-/config", "GET", partial(_config, configuration)),
        ("/-/purge", "POST", partial(_purge, gate)),
        ("/metrics", "GET", partial(_metrics, metrics)),
    ]
    return Starlette(routes=[Route(path, endpoint, methods=[method]) for path, method, endpoint in endpoints])


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers=_FRESH)


async def _ready(_: Request) -> Response:
    # Both listeners are bound before either answers, and the configuration was whole before that.
    return PlainTextResponse("ready\n", headers=_FRESH)


async def _config(configuration: Configuration, _: Request) -> Response:
    # The file holds no secret: the token's environment variable is named, its value is not ours to show.
    return JSONResponse(configuration.model_dump(mode="json"), headers=_FRESH)


async def _metrics(metrics: Metrics, _: Request) -> Response:
    return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST, **_FRESH})


_FRESH: Final = {"cache-control": "no-store"}


async def _purge(gate: Gate, request: Request) -> Response:
    fields = list(request.scope["headers"])
    client = believe(received(request.scope), fields, gate.runtime.trusted).client
    if not may_purge(client, fields, gate.runtime) or _from_elsewhere(request):
        return _refusal(RefusedError("purge-forbidden"))
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_PURGE:
            return _refusal(RefusedError("body-too-large"))
    try:
        asked = json.loads(content)
        if not isinstance(asked, dict):
            return _unreadable("the content is no JSON object")
        purged = purge_selected(asked, gate.runtime, gate.store, time.time())
    except RefusedError as refused:
        return _refusal(refused)
    except (ValueError, RecursionError) as error:  # a JSONDecodeError is a ValueError
        return _unreadable(str(error))
    return Response(purged.body(), media_type="application/json", headers=_FRESH)


def _from_elsewhere(request: Request) -> bool:
    """Whether a browser sends this for another site's page, which the browser's address must not authorize.

    The page's host must be the request's, and an address: a name can be pointed anywhere (DNS rebinding).
    """
    origin = request.headers.get("origin")
    if origin is None:
        return False
    host = request.headers.get("host", "")
    if origin.partition("://")[2] != host:
        return True
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        return not ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name != "localhost"


def _refusal(refused: RefusedError) -> Response:
    told = problem(refused.reasons)
    response = Response(told.body, told.status)
    response.raw_headers = list(told.fields)
    return response


def _unreadable(detail: str) -> Response:
    told = {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": detail}
    return JSONResponse(told, 400, headers=_FRESH, media_type="application/problem+json")
