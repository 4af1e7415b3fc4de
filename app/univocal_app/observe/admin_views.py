"""`GET /-/stats` and `GET /-/top`: what the page shows, for programs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from univocal.engine.outcome import Listener
from univocal_app.observe.admin_purge import FRESH, bad_request
from univocal_app.observe.spellings import Spellings
from univocal_app.observe.stats import Stats
from univocal_app.observe.top import MEASURES, Top

__all__ = ["Views"]

MOST: Final = 1000  # of `n`
FEW: Final = 20  # where no `n` is given


@dataclass(frozen=True)
class Views:
    """The endpoints, and the listeners that they show.

    `origins` are the sites with the URLs of their origin servers.
    """

    stats: Stats
    top: Top
    spellings: Spellings
    origins: list[dict[str, str]]

    @property
    def listeners(self) -> list[Listener]:
        """All that count."""
        return [self.stats, self.top, self.spellings]

    def look(self) -> None:
        """Tell the other processes what they have asked: a worker calls this every second or so."""
        self.stats.look()
        self.top.hand_over()
        self.spellings.hand_over()

    async def answer_stats(self, _: Request) -> Response:
        """The numbers since the start and by second."""
        told: dict[str, Any] = await asyncio.to_thread(self.stats.told)
        told["totals"]["origins"] = self.origins
        return JSONResponse(told, headers=FRESH)

    async def answer_top(self, request: Request) -> Response:
        """The first `n` by a measure."""
        by, number = request.query_params.get("by", "requests"), request.query_params.get("n", str(FEW))
        measure = next((each for each in MEASURES if each == by), None)
        if measure is None:
            return bad_request(f"by is one of {', '.join(MEASURES)}")
        if not (number.isascii() and number.isdigit() and len(number) < 5 and 0 < int(number) <= MOST):
            return bad_request(f"n is a number from 1 to {MOST}")
        return JSONResponse(await self.top.top(measure, int(number)), headers=FRESH)
