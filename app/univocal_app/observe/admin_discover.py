"""`GET /-/discover`: the rules that the spellings of recent requests support."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from univocal.http.grammar import split_absolute
from univocal.store.purge_selectors import url_of
from univocal_app.observe.admin_problems import FRESH
from univocal_app.observe.spellings import Counted, Spellings

# A search takes seconds of a processor, and modules that the proxy has no other use for.
_DISCOVER: Final = "-P", "-X", "utf8", "-m", "univocal_app", "discover", "--json", "--format", "counted", "-"
_PATIENCE: Final = 120.0  # seconds


class Discovering:
    """The endpoint: it answers with what `univocal discover --json` prints, and applies nothing.

    The search is a process, one at a time: clients that ask meanwhile get the same answer.
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
    lines = b"".join(b"%d http://%b%b\n" % (count, _authority(key), target) for key, target, count in counted)
    command = sys.executable, *_DISCOVER
    ended = subprocess.run(command, input=lines, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    if ended.returncode not in {0, 1}:  # 1: no rules were found
        raise RuntimeError(ended.stderr.decode("utf-8", "backslashreplace"))
    return ended.stdout


def _authority(key: bytes) -> bytes:
    absolute = split_absolute(url_of(key))
    return absolute.authority if absolute is not None else b""
