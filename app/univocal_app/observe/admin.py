"""The admin listener as an ASGI application."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from univocal.asgi.middleware import CacheMiddleware
from univocal_app.config.tables import Configuration, shown
from univocal_app.observe.admin_discover import Discovering
from univocal_app.observe.admin_drain import Draining
from univocal_app.observe.admin_events import Events
from univocal_app.observe.admin_hosts import Hosts, OwnHosts
from univocal_app.observe.admin_life import Life
from univocal_app.observe.admin_page import page_routes
from univocal_app.observe.admin_problems import FRESH, HANDLERS
from univocal_app.observe.admin_purge import PurgeMethods, preview, purge
from univocal_app.observe.admin_rights import Permitted
from univocal_app.observe.admin_views import Views, explained
from univocal_app.observe.metrics import Metrics

# These views read the files of all processes. The other views ask each of them.
_SUMS: Final = frozenset(("/metrics", "/-/stats"))

_WRITER: Final = "univocal_app.observe.exposition"

View = Callable[[Request], Awaitable[Response]]


def admin(
    proxy: CacheMiddleware,
    configuration: Callable[[], Configuration],
    metrics: Metrics,
    views: Views,
    events: Events,
    life: Life,
) -> Starlette:
    """The application; it purges what `proxy` stores, by the same rules as the PURGE method.

    `configuration` gives the one in force.
    """
    hosts = Hosts(lambda: configuration().server)
    draining = Draining(views.origin_states, life.drains)
    endpoints: list[tuple[str, str, View]] = [
        ("/-/health", "GET", _health),
        ("/-/ready", "GET", partial(life.answer_ready, proxy)),
        ("/-/config", "GET", partial(_config, configuration)),
        ("/-/reload", "POST", life.answer_reload),
        ("/-/purge", "POST", partial(purge, proxy, hosts)),
        ("/-/purge/preview", "POST", partial(preview, proxy)),
        ("/-/stats", "GET", views.answer_stats),
        ("/-/top", "GET", views.answer_top),
        ("/-/origins", "GET", views.answer_origins),
        ("/-/origins/drain", "POST", draining.drain),
        ("/-/origins/enable", "POST", draining.enable),
        ("/-/failures", "GET", views.answer_failures),
        ("/-/spellings", "GET", partial(views.answer_spellings, proxy)),
        ("/-/purge-misses", "GET", partial(views.answer_purge_misses, proxy.tiers)),
        ("/-/events", "GET", events.answer),
        ("/-/explain", "GET", partial(explained, proxy)),
        ("/-/discover", "GET", Discovering(views.spellings).answer),
        ("/metrics", "GET", partial(_metrics, metrics)),
    ]
    routes = [Route(path, endpoint, methods=[method]) for path, method, endpoint in endpoints]
    routes += page_routes()
    middleware = [
        Middleware(PurgeMethods, proxy=proxy),
        Middleware(Permitted, proxy=proxy, hosts=hosts),
        Middleware(OwnHosts, hosts=hosts),
        Middleware(_Settled, proxy=proxy, life=life),
    ]
    return Starlette(routes=routes, middleware=middleware, exception_handlers=HANDLERS)


class _Settled:
    """Lets everything that has ended be counted, by every process, before a request looks at the counts."""

    def __init__(self, app: ASGIApp, proxy: CacheMiddleware, life: Life) -> None:
        self._app, self._audience, self._life = app, proxy.engine.audience, life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._audience.settle()
        if scope["type"] == "http" and scope["path"] in _SUMS:
            if _WRITER not in sys.modules:  # clients are served meanwhile
                await asyncio.to_thread(import_module, _WRITER)
            await self._life.look()
        await self._app(scope, receive, send)


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers=FRESH)


async def _config(configuration: Callable[[], Configuration], _: Request) -> Response:
    return JSONResponse(shown(configuration()), headers=FRESH)


async def _metrics(metrics: Metrics, request: Request) -> Response:
    text, media_type = metrics.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": media_type, "vary": "Accept", **FRESH})
