"""`GET /-/discover`: the rules that the spellings of recent requests support."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from univocal.http.grammar import split_absolute
from univocal.store.purge_selectors import url_of
from univocal_app.observe.admin_problems import FRESH
from univocal_app.observe.spellings import Counted, Spellings


class Discovering:
    """The endpoint: it answers with what `univocal discover --json` prints, and applies nothing.

    The search runs in a thread, one at a time: clients that ask meanwhile get the same answer.
    """

    def __init__(self, spellings: Spellings) -> None:
        self._spellings = spellings
        self._search: asyncio.Task[bytes] | None = None

    async def answer(self, _: Request) -> Response:
        """The answer to one request."""
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._discover())
        document = await asyncio.shield(self._search)
        return Response(document, media_type="application/json", headers=FRESH)

    async def _discover(self) -> bytes:
        return await asyncio.to_thread(_discovered, await self._spellings.gathered())


def _discovered(counted: list[Counted]) -> bytes:
    from univocal_app.learn.discover import discovered_in, estimated  # noqa: PLC0415 - slow, and seldom asked

    discovery = discovered_in((_authority(key), target, count) for key, target, count in counted)
    return discovery.as_json(*estimated(discovery)).encode() + b"\n"


def _authority(key: bytes) -> bytes:
    absolute = split_absolute(url_of(key))
    return absolute.authority if absolute is not None else b""
