"""`GET /`: the page, one document with its style and script; and the door to it and to all other views."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from univocal.asgi.messages import send_problem
from univocal.asgi.middleware import CacheMiddleware
from univocal.http.fields import prefers_html
from univocal.http.messages import Fields
from univocal.judge.orders import PURGES
from univocal_app.observe.admin_hosts import EXEMPT, Hosts
from univocal_app.observe.admin_problems import FRESH

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


def page_routes() -> list[Route]:
    """The routes of the document and of its assets, which are read here."""
    named = [("/", _DOCUMENT), *((f"{ASSETS}{name}", name) for name in _ASSETS)]
    return [Route(path, partial(_answer, _content(name), _kind(name))) for path, name in named]


def locked() -> Response:
    """The refusal (403) that a browser shows: the document, which asks for the token and knows nothing."""
    fields = {**_FIELDS, "vary": "Accept"}
    return Response(_content(_DOCUMENT), 403, media_type=_KINDS["html"], headers=fields)


@cache  # the refusal is of the same document as its assets, whatever replaces the package's files
def _content(name: str) -> bytes:
    return files("univocal_app").joinpath("observe", "page", name).read_bytes()


def _kind(name: str) -> str:
    return _KINDS[name.rpartition(".")[2]]


def judged_fields(scope: Any) -> Fields:
    """The fields by which a request's right is judged, without Sec-Fetch-Site if a browser follows a link.

    The site with the link cannot read the answer.
    """
    fields = list(scope["headers"])
    if scope["method"] in READ and (b"sec-fetch-mode", b"navigate") in fields:
        return [field for field in fields if field[0] != b"sec-fetch-site"]
    return fields


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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (await self._answer(scope))(scope, receive, send)

    async def _answer(self, scope: Any) -> ASGIApp:
        """The application that answers a request."""
        if scope["type"] != "http":
            return self._app
        path, hosts = scope["path"].removeprefix(scope.get("root_path", "")), self._hosts
        is_exempt = hosts is not None and path in EXEMPT
        if hosts is not None and scope["method"].encode("latin-1") in PURGES:
            return self._cache
        if not (is_exempt or path.startswith(ASSETS) or await self._may(scope)):
            is_page = path in {"", "/"} and scope["method"] in READ and prefers_html(scope["headers"])
            return locked() if is_page else _refusing("purge-forbidden")
        if hosts is not None and not (is_exempt or hosts.has(scope)):
            return _refusing("unknown-host")
        self._cache.engine.audience.settle()
        if self._look is not None and path in _SUMS:
            if _WRITER not in sys.modules:  # clients are served meanwhile
                await asyncio.to_thread(import_module, _WRITER)
            await self._look()
        return self._app


def _refusing(reason: str) -> ASGIApp:
    return lambda scope, _, send: send_problem(send, (reason,), scope)


async def _answer(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_FIELDS)
