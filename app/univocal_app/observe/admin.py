"""The admin listener as an ASGI application, and its endpoints about the life of the program."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.http.errors import ConfigurationError, UnivocalError
from univocal.judge.orders import may_purge
from univocal_app.config.tables import Configuration, shown
from univocal_app.observe.admin_door import READ, Hosts, behind_door, judged_fields
from univocal_app.observe.admin_problems import FRESH, bad_request, failed
from univocal_app.observe.admin_purge import purge
from univocal_app.observe.admin_views import Views
from univocal_app.observe.events import Events
from univocal_app.observe.figures import Figures
from univocal_app.observe.origin_states import OriginStates

logger: Final = logging.getLogger("univocal")

LONGEST: Final = 4096  # bytes of a request's content
# A process of its own searches for rules.
_PROCESSES: Final = frozenset(("/-/discover",))


@dataclass
class Drains:
    """Gives the origin servers that are taken out, by scheme and authority; `set_in_force` changes them."""

    set_in_force: Callable[[frozenset[str]], Awaitable[None]]
    urls: Callable[[], frozenset[str]] = frozenset
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


async def answer_drain(states: OriginStates, drains: Drains, request: Request, *, enable: bool) -> Response:
    """Give an origin server requests again, or no new one; 409 for the last of its upstream that is up."""
    try:
        url = await _url(request)
    except (ValueError, RecursionError) as error:
        return bad_request(str(error), request)
    async with drains.lock:
        servers, drained = states.servers(url), drains.urls()
        if enable:  # it may be of no site since a reload
            servers |= {url.rstrip("/")} & drained
        if not servers:
            return failed(404, f"no origin server has the URL {url}; configured: {states.known()}", request)
        urls = drained - servers if enable else drained | servers
        if not enable and (site := states.left_alone(urls)):
            return failed(409, f"no other origin server of {site} is up and takes requests", request)
        if urls != drained:
            await drains.set_in_force(urls)
            for server in sorted(servers):
                logger.warning("%s is %s by an operator", server, "enabled" if enable else "drained")
    shown = states.shown(servers)
    rows = [each for each in await states.document() if each["url"] in shown]
    return JSONResponse({"enabled" if enable else "drained": url, "origins": rows}, headers=FRESH)


async def _url(request: Request) -> str:
    """The URL in a request's content. Raises ValueError, RecursionError, ClientDisconnect."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > LONGEST:
            raise ValueError(f"more than {LONGEST} bytes of content")
    document = json.loads(content)
    url = document.get("url") if isinstance(document, dict) else None
    if not isinstance(url, str) or len(document) > 1:
        raise ValueError('the content must be a JSON object with one member, the "url" of an origin server')
    return url


class ReloadError(UnivocalError):
    """Workers failed at a reload: which, and whether the new configuration is in force in the others."""


async def _nothing(*_: object) -> Any:
    return []


@dataclass(frozen=True)
class Life:
    """The program behind the listener, as far as it is asked about here.

    `working` gives the number of processes that serve clients, `leaving` is true from the moment on at which
    the program was told to end. `reload` returns the keys that have changed; it raises ConfigurationError,
    and ReloadError. `look` returns when the other processes have written down what they have counted.
    `drains` are the origin servers that are taken out.
    """

    working: Callable[[], int] = lambda: 1
    leaving: Callable[[], bool] = lambda: False
    reload: Callable[[], Awaitable[list[str]]] = _nothing
    look: Callable[[], Awaitable[None]] = _nothing
    drains: Drains = field(default_factory=lambda: Drains(_nothing))

    def orders(self, states: OriginStates) -> list[Route]:
        """The endpoints of orders to the whole program."""
        draining = partial(answer_drain, states, self.drains)
        return [
            Route("/-/reload", self.answer_reload, methods=["POST"]),
            Route("/-/origins/drain", partial(draining, enable=False), methods=["POST"]),
            Route("/-/origins/enable", partial(draining, enable=True), methods=["POST"]),
        ]

    async def answer_ready(self, cache: CacheMiddleware, _: Request) -> Response:
        """Tell a balancer whether to send clients here."""
        # The listeners are bound before any answers, and the configuration was whole before that.
        if self.leaving():
            return PlainTextResponse("about to end\n", 503, headers=FRESH)
        if not self.working():
            return PlainTextResponse("no worker is there to serve clients\n", 503, headers=FRESH)
        detached, text = cache.tiers.detached_ttl, "ready\n"
        if detached is not None:
            # Clients are answered all the same: were this no readiness, all nodes would go with one Redis.
            text = f"ready, without the shared store: memory alone, {detached:g} seconds a response\n"
        return PlainTextResponse(text, headers=FRESH)

    async def answer_reload(self, request: Request) -> Response:
        """Have the configuration read again: what has changed, or all that is wrong with it."""
        try:
            changed = await self.reload()
        except ConfigurationError as error:
            return refused(error, request)
        except ReloadError as error:
            return failed(503, str(error), request)
        return JSONResponse({"reloaded": True, "changed": changed}, headers=FRESH)


def refused(error: ConfigurationError, request: Request) -> Response:
    """The answer that a configuration cannot be (422), with all that is wrong with it."""
    errors = [
        {"detail": str(each), "key": each.key, "file": each.source, "line": each.line}
        for each in (error, *error.beside)
    ]
    return failed(422, "\n".join(str(each["detail"]) for each in errors), request, {"errors": errors})


def admin(
    cache: CacheMiddleware,
    configuration: Callable[[], Configuration],
    views: Views,
    events: Events,
    life: Life,
    orders: Sequence[Route] | None = None,
) -> Starlette:
    """The application; it purges what `cache` stores, by the same rules as the PURGE method.

    `configuration` gives the one in force. A worker takes `orders` in place of those to the whole program.
    Only its parent can ask at its socket, so it answers all.
    """
    hosts = Hosts(lambda: configuration().server)
    routes = [
        Route("/-/health", _health),
        Route("/-/ready", partial(life.answer_ready, cache)),
        Route("/-/config", partial(_config, configuration)),
        Route("/-/purge", partial(purge, cache, hosts), methods=["POST"]),
        Route("/-/events", events.answer),
        Route("/metrics", partial(_metrics, views.figures)),
        *views.routes(cache),
        *(life.orders(views.origin_states) if orders is None else orders),
    ]
    if orders is not None:
        return behind_door(routes, cache=cache, may=_anybody)
    return behind_door(routes, cache=cache, may=partial(_may, cache, hosts), hosts=hosts, look=life.look)


async def _may(cache: CacheMiddleware, hosts: Hosts, scope: Any) -> bool:
    """Tell whether a request has a right to a view, which tells what clients ask for: to purge or to read.

    A right to read, by `admin_read` or the token of its own, is for what changes and begins nothing.
    """
    fields, runtime = judged_fields(scope), cache.gate.runtime
    peer = cache.gate.sender(request_line(scope), fields)
    reads = scope["method"] in READ and scope["path"] not in _PROCESSES
    rights = (runtime.purging, runtime.reading) if reads else (runtime.purging,)
    return any(may_purge(peer, fields, each, hosts.names) for each in rights)


async def _anybody(_: Any) -> bool:
    return True


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers=FRESH)


async def _config(configuration: Callable[[], Configuration], _: Request) -> Response:
    return JSONResponse(shown(configuration()), headers=FRESH)


async def _metrics(figures: Figures, request: Request) -> Response:
    await figures.look_behind()
    text, media_type = figures.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": media_type, "vary": "Accept", **FRESH})
