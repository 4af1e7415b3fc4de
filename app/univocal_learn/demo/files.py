"""A store of files like upload.wikimedia.org's, with thumbnails beside the files they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

_STAR = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" width="{width}" height="{width}">'
    '<path fill="{colour}" d="M50 5 61 39 97 39 68 60 79 95 50 74 21 95 32 60 3 39 39 39z"/></svg>\n'
)

FILES = {
    "/commons/3/37/Star_(yellow).svg": _STAR.format(width=400, colour="#e8b10c"),
    "/commons/thumb/3/37/Star_(yellow).svg/120px-Star_(yellow).svg": _STAR.format(
        width=120, colour="#e8b10c"
    ),
    "/commons/a/a1/Étoile,_bleue.svg": _STAR.format(width=400, colour="#2a6fdb"),
}


@dataclass
class FileStore:
    """An ASGI application; the field `X-Reads` counts how often this store was asked."""

    reads: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reads += 1
        known = Request(scope).headers.get("if-none-match")
        await self._read(unquote(scope["raw_path"].decode("ascii")), known)(scope, receive, send)

    def _read(self, path: str, known: str | None) -> Response:
        content = FILES.get(path)
        if content is None:
            return PlainTextResponse("There is no such file.\n", 404, {"x-reads": str(self.reads)})
        fields = {
            "etag": f'"{len(content):x}"',
            "last-modified": "Fri, 01 Nov 2024 12:00:00 GMT",
            "cache-control": "public, max-age=3600",
            "x-reads": str(self.reads),
        }
        if known == fields["etag"]:
            return Response(status_code=304, headers=fields)
        return Response(content, media_type="image/svg+xml", headers=fields)
