"""The admin listener as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.judge.orders import may_purge
from univocal_app.config.tables import Configuration, shown
from univocal_app.observe.admin_door import READ, Door, Hosts, judged_fields, page_routes
from univocal_app.observe.admin_life import Life, answer_drain
from univocal_app.observe.admin_problems import FRESH, HANDLERS
from univocal_app.observe.admin_purge import purge
from univocal_app.observe.admin_views import View, Views
from univocal_app.observe.events import Events
from univocal_app.observe.figures import Figures

# A process of its own searches for rules.
_PROCESSES: Final = frozenset(("/-/discover",))


def admin(
    cache: CacheMiddleware,
    configuration: Callable[[], Configuration],
    views: Views,
    events: Events,
    life: Life,
) -> Starlette:
    """The application; it purges what `cache` stores, by the same rules as the PURGE method.

    `configuration` gives the one in force.
    """
    hosts = Hosts(lambda: configuration().server)
    draining = partial(answer_drain, views.origin_states, life.drains)
    endpoints: list[tuple[str, str, View]] = [
        ("/-/health", "GET", _health),
        ("/-/ready", "GET", partial(life.answer_ready, cache)),
        ("/-/config", "GET", partial(_config, configuration)),
        ("/-/reload", "POST", life.answer_reload),
        ("/-/purge", "POST", partial(purge, cache, hosts)),
        ("/-/origins/drain", "POST", partial(draining, enable=False)),
        ("/-/origins/enable", "POST", partial(draining, enable=True)),
        ("/-/events", "GET", events.answer),
        ("/metrics", "GET", partial(_metrics, views.figures)),
        *views.endpoints(cache),
    ]
    routes = [Route(path, endpoint, methods=[method]) for path, method, endpoint in endpoints]
    door = Middleware(Door, cache=cache, may=partial(_may, cache, hosts), hosts=hosts, look=life.look)
    return Starlette(routes=[*routes, *page_routes()], middleware=[door], exception_handlers=HANDLERS)


async def _may(cache: CacheMiddleware, hosts: Hosts, scope: Any) -> bool:
    """Tell whether a request has a right to a view, which tells what clients ask for: to purge or to read.

    A right to read, by `admin_read` or the token of its own, is for what changes and begins nothing.
    """
    fields, runtime = judged_fields(scope), cache.gate.runtime
    peer = cache.gate.sender(request_line(scope), fields)
    reads = scope["method"] in READ and scope["path"] not in _PROCESSES
    rights = (runtime.access, runtime.reading) if reads else (runtime.access,)
    return any(may_purge(peer, fields, each, hosts.names) for each in rights)


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers=FRESH)


async def _config(configuration: Callable[[], Configuration], _: Request) -> Response:
    return JSONResponse(shown(configuration()), headers=FRESH)


async def _metrics(figures: Figures, request: Request) -> Response:
    await figures.look_behind()
    text, media_type = figures.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": media_type, "vary": "Accept", **FRESH})
