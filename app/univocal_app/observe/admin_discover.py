"""`GET /-/discover`: the rules that the spellings speak for by which clients asked lately."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import received
from univocal.engine.purge import may_purge
from univocal.engine.trust import believe
from univocal.http.problem import problem
from univocal_app.learn.discover import discovered_in, estimated
from univocal_app.observe.admin_purge import FRESH
from univocal_app.observe.spellings import Counted, Spellings

__all__ = ["Discovering"]


class Discovering:
    """The endpoint: it answers with what `univocal discover --json` prints, and applies nothing.

    It shows what clients asked for, so it answers whoever may purge. The search runs in a thread, one at a
    time: who asks meanwhile gets the same answer.
    """

    def __init__(self, proxy: CacheMiddleware, spellings: Spellings) -> None:
        self._proxy, self._spellings = proxy, spellings
        self._search: asyncio.Task[bytes] | None = None

    async def answer(self, request: Request) -> Response:
        """The answer to one request."""
        runtime, fields = self._proxy.gate.runtime, list(request.scope["headers"])
        if not may_purge(believe(received(request.scope), fields, runtime.trusted), fields, runtime):
            told = problem(("purge-forbidden",))
            response = Response(told.body, told.status)
            response.raw_headers = list(told.fields)
            return response
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._found())
        found = await asyncio.shield(self._search)
        return Response(found, media_type="application/json", headers=FRESH)

    async def _found(self) -> bytes:
        return await asyncio.to_thread(_discovered, await self._spellings.gathered())


def _discovered(counted: list[Counted]) -> bytes:
    found = discovered_in(counted)
    return found.as_json(*estimated(found)).encode() + b"\n"
