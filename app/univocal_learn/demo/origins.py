"""The demo's origin servers: a wiki, a store of files, and an application that reads paths as servlets do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

TITLES = {
    "Steve_Fuller_(sociologist)": "Steve Fuller is a sociologist; the parentheses tell him from others.",
    "AC/DC": "AC/DC is a band with a slash in its name.",
    "Кошка": "Кошка is the Russian word for cat.",
    "Who's_Afraid_of_Virginia_Woolf?": "A play whose title ends in a question mark.",
}

READABLE = "/:@!$()*,;"  # what MediaWiki leaves as it is in the links it writes


@dataclass
class WikiPage:
    """The text of one title, and how often it was written."""

    text: str
    revision: int = 1


@dataclass
class Wiki:
    """A wiki that reads titles as MediaWiki does: `%2F` is a slash; all spellings of a title are one page.

    PUT and POST write a page, and the cache is not told.
    """

    pages: dict[str, WikiPage] = field(
        default_factory=lambda: {title: WikiPage(text) for title, text in TITLES.items()}
    )
    renders: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = unquote_to_bytes(scope["raw_path"]).decode("utf-8", "replace")
        title = path.removeprefix("/wiki/").replace(" ", "_")
        if path == "/":
            response = self._index()
        elif not path.startswith("/wiki/") or not title:
            response = PlainTextResponse("Not a page of this wiki.\n", 404)
        elif request.method in {"PUT", "POST"}:
            response = self._write(title, (await request.body()).decode("utf-8", "replace"))
        else:
            response = self._read(title, request.headers.get("if-none-match"))
        await response(scope, receive, send)

    def _index(self) -> Response:
        lines = (f"/wiki/{quote(title, safe=READABLE)}\n" for title in self.pages)
        return PlainTextResponse("".join(lines), headers={"cache-control": "s-maxage=5"})

    def _read(self, title: str, known: str | None) -> Response:
        page = self.pages.get(title)
        if page is None:
            return PlainTextResponse(f"There is no page {title!r}.\n", 404)
        self.renders += 1
        fields = {"etag": f'"{page.revision}"', "cache-control": "s-maxage=300, max-age=0"}
        if known == fields["etag"]:
            return Response(status_code=304, headers=fields)
        text = (
            f"{title}, revision {page.revision}\n\n{page.text}\n\n"
            f"Rendering number {self.renders} of this wiki, at {time.strftime('%H:%M:%S')}.\n"
        )
        return PlainTextResponse(text, headers=fields)

    def _write(self, title: str, text: str) -> Response:
        revision = self.pages[title].revision + 1 if title in self.pages else 1
        self.pages[title] = WikiPage(text, revision)
        return PlainTextResponse(f"{title}: revision {revision}\n", 200 if revision > 1 else 201)


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
    """A store like upload.wikimedia.org's, with thumbnails beside the files they are made of.

    The field `X-Reads` counts how often it was asked.
    """

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


def servlet_path(raw: str) -> str:
    """The path that such a container dispatches on: `/shop/..;x=y/admin` is `/admin`."""
    kept: list[str] = []
    for segment in raw.split("/")[1:]:
        name = unquote(segment.partition(";")[0])
        if name == "..":
            kept = kept[:-1]
        elif name not in {"", "."}:
            kept.append(name)
    return "/" + "/".join(kept)


@dataclass
class ServletLike:
    """An application with a shop for everybody, and pages below /admin for the few.

    It reads paths as servlet containers do: parameters off, decoded, then dot segments.
    """

    answers: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.answers += 1
        raw = scope["raw_path"].decode("ascii", "replace")
        await self._answer(raw, servlet_path(raw))(scope, receive, send)

    def _answer(self, raw: str, path: str) -> Response:
        content = (
            f"received {raw}\nread as  {path}\nanswer number {self.answers}, at {time.strftime('%H:%M:%S')}\n"
        )
        if path == "/admin" or path.startswith("/admin/"):
            return PlainTextResponse(
                f"The administrator's page.\n{content}", headers={"cache-control": "private"}
            )
        if path == "/shop" or path.startswith("/shop/"):
            return PlainTextResponse(f"The shop.\n{content}", headers={"cache-control": "public, max-age=60"})
        return PlainTextResponse(f"There is nothing here.\n{content}", 404)
