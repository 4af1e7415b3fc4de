"""A wiki that reads titles as MediaWiki does: `%2F` is a slash, and every spelling of a title is one page."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes

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
    """An ASGI application; PUT and POST write a page, and nobody tells the cache."""

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
        page = self.pages.get(title)
        if page is None:
            self.pages[title] = WikiPage(text)
            return PlainTextResponse(f"{title}: revision 1\n", 201)
        self.pages[title] = WikiPage(text, page.revision + 1)
        return PlainTextResponse(f"{title}: revision {page.revision + 1}\n")
