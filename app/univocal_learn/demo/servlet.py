"""An application that reads paths as servlet containers do: parameters off, decoded, then dot segments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send


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
    """An ASGI application with a shop for everybody, and pages below /admin for the few."""

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
