"""The page of a mounted cache: an ASGI application for `app.mount("/-/cache", cache.page())`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import CANONICAL, request_line
from univocal.engine.outcome import Outcome, Times, carry_out
from univocal.http.grammar import parse_authority
from univocal.http.messages import values
from univocal.judge.orders import may_purge, ordered
from univocal.judge.trust import Peer
from univocal.store.shared import SharedTier
from univocal.uri.sites import Sites
from univocal_app.observe.admin_door import behind_door, judged_fields
from univocal_app.observe.admin_problems import FRESH, bad_request
from univocal_app.observe.admin_purge import content_of
from univocal_app.observe.admin_views import Views
from univocal_app.observe.figures import Figures


def mounted(cache: CacheMiddleware, allow: Callable[[Any], Any] | None = None) -> ASGIApp:
    """The page, figures, keys, spellings, purge and explain of `cache`, of this process, from now on.

    A client that may see it may purge. `allow` gets the scope of each request, and gives or awaits True.
    Without it the rights are those of PURGE.
    """
    shared = cache.tiers if isinstance(cache.tiers, SharedTier) else None
    figures = Figures()
    figures.attend(cache.store, shared)
    views = Views(figures, cache.engine.clock)
    cache.engine.audience.counters += [figures, *views.listeners]
    routes = [
        Route("/-/config", _no_configuration),
        Route("/-/purge", partial(_purge, cache), methods=["POST"]),
        *views.routes(cache),
    ]
    return behind_door(routes, cache=cache, may=partial(_may, cache, allow))


async def _may(cache: CacheMiddleware, allow: Callable[[Any], Any] | None, scope: Any) -> bool:
    """Tell whether a request has a right to the page: that which `allow` gives; without it, that of PURGE."""
    if allow is not None:
        allowed = allow(scope)
        return bool(await allowed if inspect.isawaitable(allowed) else allowed)
    fields, runtime, peer = judged_fields(scope), cache.gate.runtime, _sender(cache, scope)
    hosts = values(fields, b"host")
    names = [each.rpartition(b":")[0] or each for each in hosts if _is_own(hosts, runtime.sites)]
    if not names:  # any name can be pointed here: then an address gives no right
        peer = Peer(peer.hosts, peer.scheme, None, known=False)
    return may_purge(peer, fields, runtime.purging, names)


def _is_own(hosts: list[bytes], sites: Sites) -> bool:
    """Tell whether a request's only Host is an address, localhost or a host that a site names."""
    authority = parse_authority(hosts[0]) if len(hosts) == 1 else None
    if authority is None:
        return False
    host, port = authority
    located = sites.locate(host, port or 80)
    is_address = b":" in host or host.replace(b".", b"").isdigit()
    return is_address or host == b"localhost" or (located is not None and located[0] is not sites.default)


def _sender(cache: CacheMiddleware, scope: Any) -> Peer:
    """The sender of a request, as the cache in front believed it: it takes forwarded fields away."""
    passed = scope.get("extensions", {}).get(CANONICAL)
    if passed is not None:
        sender: Peer = passed["sender"]
        return sender
    return cache.gate.sender(request_line(scope), list(scope["headers"]))


async def _no_configuration(_: Request) -> Response:
    return JSONResponse({}, headers=FRESH)


async def _purge(cache: CacheMiddleware, request: Request) -> Response:
    """Carry out what the request's content names; the cache's listeners hear of it."""
    begun, ticks = time.time(), time.perf_counter()
    try:
        order = await ordered(await content_of(request), cache.gate.runtime)
        purged = await carry_out(order, cache.tiers, cache.engine.clock())
    except (ValueError, RecursionError) as error:
        return bad_request(str(error), request)
    seconds = time.perf_counter() - ticks
    cache.engine.audience.announce(Outcome.ordered(purged, Times(begun, seconds, seconds)))
    return Response(purged.body(), media_type="application/json", headers=FRESH)
