"""The door to the admin listener's views: its hosts, its senders' rights, the page that asks for a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from univocal.asgi.messages import send_problem
from univocal.asgi.middleware import CacheMiddleware
from univocal.http.grammar import parse_authority
from univocal.http.messages import Fields, prefers_html, values
from univocal.judge.orders import PURGES
from univocal.judge.trust import parsed_address
from univocal_app.config.tables import ServerTable
from univocal_app.config.values import Address, host_name
from univocal_app.observe.admin_problems import FRESH, HANDLERS

ASSETS: Final = "/-/page/"
READ: Final = frozenset(("GET", "HEAD"))
_DOCUMENT: Final = "page.html"
_KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_ASSETS: Final = ("page.css", "page.js", "charts.js", "keys.js", "marks.js", "stages.js")

# Nothing from elsewhere, nothing inline, in no other page's frame: what a client sent stays text.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FIELDS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    **FRESH,
}


def _page_routes() -> list[Route]:
    """The routes of the document and of its assets, which are read here."""
    named = [("/", _DOCUMENT), *((f"{ASSETS}{name}", name) for name in _ASSETS)]
    return [
        Route(path, partial(_answer, _content(name), _KINDS[name.rpartition(".")[2]])) for path, name in named
    ]


def locked() -> Response:
    """The refusal (403) that a browser shows: the document, which asks for the token and knows nothing."""
    fields = {**_FIELDS, "vary": "Accept"}
    return Response(_content(_DOCUMENT), 403, media_type=_KINDS["html"], headers=fields)


async def _answer(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_FIELDS)


@cache  # the refusal is of the same document as its assets, whatever replaces the package's files
def _content(name: str) -> bytes:
    return files("univocal_app").joinpath("observe", "page", name).read_bytes()


# Balancers and orchestrators ask the first two by whatever name they know, and nothing is in the answers. The
# third asks for its sender's right first (see admin_purge), and tells of a purge that is refused.
EXEMPT: Final = frozenset(("/-/health", "/-/ready", "/-/purge"))


class Hosts:
    """The names in `admin_hosts`, the hosts that are listened on, and the listener's addresses.

    A page on the web can have its own name point here (DNS rebinding), and then reads what it is answered. It
    cannot choose the name under which its reader's browser asks. `server` gives the table in force.
    """

    def __init__(self, server: Callable[[], ServerTable]) -> None:
        self._server = server

    @property
    def names(self) -> frozenset[bytes]:
        """Those that are no addresses, or that are told by name."""
        server = self._server()
        listened = (host_name(each.host) for each in server.admin if isinstance(each, Address))
        return frozenset(name.encode() for name in (*server.admin_hosts, *listened))

    def has(self, scope: Any) -> bool:
        """Tell whether a request's Host is one of these. Its port does not matter: tunnels change it."""
        named = values(scope["headers"], b"host")
        authority = parse_authority(named[0]) if len(named) == 1 else None
        if authority is None:
            return False
        places = self._server().admin
        everywhere = any(_is_everywhere(each.host) for each in places if isinstance(each, Address))
        return authority[0] in self.names or _is_address(authority[0], scope.get("server"), everywhere)


def _is_everywhere(host: str) -> bool:
    """Tell whether who listens on a host listens on all addresses."""
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return False


def _is_address(host: bytes, server: tuple[str, int | None] | None, everywhere: bool) -> bool:
    """Tell whether a host is the address at which the connection has arrived.

    A listener `everywhere` has the loopback addresses, too: a container's port is published under one.
    """
    try:
        address = parsed_address(host.decode("ascii").strip("[]"))
        own = parsed_address(server[0].partition("%")[0]) if server is not None else None
    except ValueError:
        return False  # a name; or a socket's path
    return address == own or (everywhere and address.is_loopback)


def judged_fields(scope: Any) -> Fields:
    """The fields by which a request's right is judged, without Sec-Fetch-Site if a link leads to the page.

    The site with the link cannot read the answer.
    """
    fields = list(scope["headers"])
    if _is_page(scope) and (b"sec-fetch-mode", b"navigate") in fields:
        return [field for field in fields if field[0] != b"sec-fetch-site"]
    return fields


def _path(scope: Any) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


def _is_page(scope: Any) -> bool:
    """Tell whether a request is for the page's document."""
    return scope["method"] in READ and _path(scope) in {"", "/"}


# These views read the files of all processes. The other views ask each of them.
_SUMS: Final = frozenset(("/metrics", "/-/stats"))
_WRITER: Final = "univocal_app.observe.exposition"


class Door:
    """The way of a request to the views: one whose sender has no right by `may` is refused (403).

    The page's files are excepted. The browser loads these files to ask for the token, which a request for a
    document cannot carry. An admin listener has `hosts`, and refuses requests for others (421), except for
    the `EXEMPT` paths. It hands PURGE and BAN to the cache, whatever their target. Every exchange that has
    ended is counted before a request reads the counts; `look` does so in other processes.
    """

    def __init__(
        self,
        app: ASGIApp,
        cache: CacheMiddleware,
        may: Callable[[Any], Awaitable[bool]],
        hosts: Hosts | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._app, self._cache, self._may, self._hosts, self._look = app, cache, may, hosts, look
        self._has_writer = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (await self._answer(scope))(scope, receive, send)

    async def _answer(self, scope: Any) -> ASGIApp:
        """The application that answers a request."""
        if scope["type"] != "http":
            return self._app
        path, hosts = _path(scope), self._hosts
        is_exempt = hosts is not None and path in EXEMPT
        if hosts is not None and scope["method"].encode("latin-1") in PURGES:
            return self._cache
        if not (is_exempt or path.startswith(ASSETS) or await self._may(scope)):
            shows = _is_page(scope) and prefers_html(scope["headers"])
            return locked() if shows else _refusing("purge-forbidden")
        if hosts is not None and not (is_exempt or hosts.has(scope)):
            return _refusing("unknown-host")
        self._cache.engine.audience.settle()
        if self._look is not None and path in _SUMS:
            if not self._has_writer:  # clients are served meanwhile
                await asyncio.to_thread(import_module, _WRITER)
                self._has_writer = True
            await self._look()
        return self._app


def _refusing(reason: str) -> ASGIApp:
    return lambda scope, _, send: send_problem(send, (reason,), scope)


def behind_door(routes: list[Route], **door: Any) -> Starlette:
    """The application of these routes and the page's, behind a `Door` that is made of the rest."""
    middleware = [Middleware(Door, **door)]  # by name: Starlette 0.40 takes no others
    return Starlette(routes=[*routes, *_page_routes()], middleware=middleware, exception_handlers=HANDLERS)
