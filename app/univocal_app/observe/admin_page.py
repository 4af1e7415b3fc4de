"""`GET /`: the page, one document with the style and the script that stand beside it in the package."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from univocal_app.observe.admin_problems import FRESH

ASSETS: Final = "/-/page/"
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


async def _answer(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_FIELDS)
