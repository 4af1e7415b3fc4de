"""Purges at the admin listener: by name, `POST /-/purge`, by PURGE and BAN, and what one would remove."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.engine.outcome import Outcome, Times
from univocal.engine.purge import Purged, carry_out, foresee
from univocal.http.errors import RefusedError
from univocal.http.messages import Fields
from univocal.judge.orders import PURGES, may_purge, ordered
from univocal.judge.trust import Peer
from univocal_app.observe.admin_hosts import Hosts
from univocal_app.observe.admin_problems import FRESH, bad_request, refusal

MAX_PURGE: Final = 4 * 2**20  # bytes of a purge request's content


class PurgeMethods:
    """Hands PURGE and BAN to the proxy, whatever their target; everything else to the application."""

    def __init__(self, app: ASGIApp, proxy: CacheMiddleware) -> None:
        self._app, self._proxy = app, proxy

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        named = scope["type"] == "http" and scope["method"].encode("latin-1") in PURGES
        await (self._proxy if named else self._app)(scope, receive, send)


async def purge(proxy: CacheMiddleware, hosts: Hosts, request: Request) -> Response:
    """Carry out what the request's content names, if its sender may; the proxy's listeners hear of it."""
    begun, ticks = time.time(), time.perf_counter()
    said, fields = request_line(request.scope), list(request.scope["headers"])
    peer = proxy.gate.sender(said, fields)
    purge_request = _PurgeRequest(proxy, hosts, peer, fields)
    try:
        response = await purge_request.answer(request)
        status, octets = response.status_code, len(response.body)
    except ClientDisconnect:  # before it had said what to purge
        response, status, octets = Response(), 0, 0
    seconds = time.perf_counter() - ticks
    times = Times(begun, seconds, seconds)
    outcome = Outcome.of_purge(
        said, purge_request.purged, status, octets, times, peer.client, purge_request.reasons
    )
    proxy.engine.audience.announce(outcome)
    return response


@dataclass
class _PurgeRequest:
    """One request, and what becomes of it."""

    proxy: CacheMiddleware
    hosts: Hosts
    peer: Peer
    fields: Fields
    purged: Purged | None = None
    reasons: tuple[str, ...] = ()

    async def answer(self, request: Request) -> Response:
        try:
            purged = await self._purge(request)
        except RefusedError as refused:
            self.reasons = refused.reasons
            return refusal(refused, request)
        except (ValueError, RecursionError) as error:
            return bad_request(str(error), request)
        return Response(purged.body(), media_type="application/json", headers=FRESH)

    async def _purge(self, request: Request) -> Purged:
        gate = self.proxy.gate
        if not may_purge(self.peer, self.fields, gate.runtime, self.hosts.names):
            raise RefusedError("purge-forbidden")
        if not self.hosts.has(request.scope):
            raise RefusedError("unknown-host")
        order = await ordered(await content_of(request), gate.runtime)
        self.purged = Purged(order)
        self.purged = await carry_out(order, self.proxy.tiers, time.time())
        return self.purged


async def preview(proxy: CacheMiddleware, request: Request) -> Response:
    """Tell how many stored responses the purge that the request's content names would mean."""
    try:
        order, count = await foresee(await content_of(request), proxy.gate.runtime, proxy.tiers)
    except RefusedError as refused:
        return refusal(refused, request)
    except (ValueError, RecursionError) as error:
        return bad_request(str(error), request)
    except ClientDisconnect:
        return Response()
    selectors = (order.selector, *order.also)
    exact = {} if all(map(proxy.tiers.counts, selectors)) else {"exact": False}
    return JSONResponse({"would_purge": count, **exact, **order.members}, headers=FRESH)


async def content_of(request: Request) -> dict[str, object]:
    """The JSON object in a request. Raises RefusedError, ValueError, RecursionError, ClientDisconnect."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_PURGE:
            raise RefusedError("body-too-large")
    try:
        document = json.loads(content)  # a JSONDecodeError is a ValueError
    except UnicodeDecodeError:  # its message has bytes of the content in it
        raise ValueError("the content is not in a Unicode encoding") from None
    if not isinstance(document, dict):
        raise ValueError("the content is not a JSON object")
    return document
