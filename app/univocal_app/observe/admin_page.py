"""`GET /`: the page, one document with the style and the script that stand beside it in the package."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from univocal_app.observe.admin_purge import FRESH

__all__ = ["page_routes"]

_ASSETS: Final = {
    "/": ("page.html", "text/html"),
    "/-/page/page.css": ("page.css", "text/css"),
    "/-/page/page.js": ("page.js", "text/javascript"),
}

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
    return [Route(path, partial(_answer, _content(name), kind)) for path, (name, kind) in _ASSETS.items()]


def _content(name: str) -> bytes:
    return files("univocal_app").joinpath("observe", "page", name).read_bytes()


async def _answer(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_FIELDS)
