"""The admin listener as an ASGI application."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from univocal.asgi.messages import send_problem
from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.http.fields import prefers_html
from univocal.judge.orders import may_purge
from univocal.judge.runtime import Access
from univocal.judge.trust import networks
from univocal_app.config.tables import Configuration, shown
from univocal_app.observe.admin_discover import Discovering
from univocal_app.observe.admin_drain import Draining
from univocal_app.observe.admin_events import Events
from univocal_app.observe.admin_hosts import Hosts, OwnHosts
from univocal_app.observe.admin_life import Life
from univocal_app.observe.admin_page import ASSETS, locked, page_routes
from univocal_app.observe.admin_problems import FRESH, HANDLERS
from univocal_app.observe.admin_purge import PurgeMethods, preview, purge
from univocal_app.observe.admin_views import Views, explained
from univocal_app.observe.metrics import Metrics

# Balancers and orchestrators have no right, and nothing is in the answers. The third asks by itself, and
# tells the log of a purge that is refused.
_EXEMPT: Final = frozenset(("/-/health", "/-/ready", "/-/purge"))

# A process of its own searches for rules.
_PROCESSES: Final = frozenset(("/-/discover",))

_READ: Final = frozenset(("GET", "HEAD"))

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
        Middleware(_Permitted, proxy=proxy, hosts=hosts, configuration=configuration),
        Middleware(OwnHosts, hosts=hosts),
        Middleware(_Settled, proxy=proxy, life=life),
    ]
    return Starlette(routes=routes, middleware=middleware, exception_handlers=HANDLERS)


class _Permitted:
    """Refuses a request from whoever may neither purge nor read (403): views tell what clients ask for.

    A right to read, by `admin_read` or the token of its own, is for what changes and begins nothing.
    The page's files are everybody's: they are those of the package. With them a browser asks its reader for
    the token, which it cannot send when it asks for a document.
    """

    def __init__(
        self, app: ASGIApp, proxy: CacheMiddleware, hosts: Hosts, configuration: Callable[[], Configuration]
    ) -> None:
        self._app, self._proxy, self._hosts, self._configuration = app, proxy, hosts, configuration

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or _is_everybodys(scope["path"]) or self._may(scope):
            await self._app(scope, receive, send)
        elif scope["path"] == "/" and scope["method"] in _READ and prefers_html(scope["headers"]):
            await locked()(scope, receive, send)
        else:
            await send_problem(send, ("purge-forbidden",), scope)

    def _may(self, scope: Any) -> bool:
        gate, fields = self._proxy.gate, list(scope["headers"])
        if scope["method"] in _READ and (b"sec-fetch-mode", b"navigate") in fields:
            # A link on another site leads here: that site reads nothing of what its reader is shown.
            fields = [field for field in fields if field[0] != b"sec-fetch-site"]
        peer, names, runtime = gate.sender(request_line(scope), fields), self._hosts.names, gate.runtime
        if may_purge(peer, fields, runtime, names):
            return True
        reads = scope["method"] in _READ and scope["path"] not in _PROCESSES
        return reads and may_purge(peer, fields, replace(runtime, access=self._reading()), names)

    def _reading(self) -> Access:
        server = self._configuration().server
        token = os.environ.get(server.admin_read_token_env, "")
        return Access(networks(server.admin_read), token.encode())


def _is_everybodys(path: str) -> bool:
    return path in _EXEMPT or path.startswith(ASSETS)


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
