"""`GET /`: the page, one document with its style and script; and the rights to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from univocal.asgi.messages import send_problem
from univocal.http.fields import prefers_html
from univocal.http.messages import Fields
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
    return Response(
        _content(_DOCUMENT), 403, media_type=_KINDS["html"], headers={**_FIELDS, "vary": "Accept"}
    )


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


class Permitted:
    """Refuses a request (403) whose sender has no right by `may`, except for `public` paths.

    The page's files are excepted, too. The browser loads these files to ask for the token, which a request
    for a document cannot carry.
    """

    def __init__(
        self, app: ASGIApp, may: Callable[[Any], Awaitable[bool]], public: Container[str] = ()
    ) -> None:
        self._app, self._may, self._public = app, may, public

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in self._public or path.startswith(ASSETS) or await self._may(scope):
            await self._app(scope, receive, send)
        elif path in {"", "/"} and scope["method"] in READ and prefers_html(scope["headers"]):
            await locked()(scope, receive, send)
        else:
            await send_problem(send, ("purge-forbidden",), scope)


async def _answer(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_FIELDS)
