"""The endpoints of the page's data: figures, keys, spellings, `/-/explain` and `/-/discover`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from univocal.asgi.middleware import CacheMiddleware
from univocal.engine.outcome import OutcomeListener, foresee
from univocal.http.errors import RefusedError
from univocal.http.grammar import split_absolute
from univocal.store.purge_selectors import Keys, url_of
from univocal.store.tiers import Tiers
from univocal_app.observe.admin_problems import FRESH, bad_request
from univocal_app.observe.admin_purge import preview
from univocal_app.observe.explain import explain
from univocal_app.observe.figures import Figures
from univocal_app.observe.last_failures import LastFailures
from univocal_app.observe.origin_states import List, OriginStates
from univocal_app.observe.purge_misses import FEW as NEIGHBOURS
from univocal_app.observe.purge_misses import Neighbour, neighbours
from univocal_app.observe.stats import SPANS, Stats
from univocal_app.observe.survey import Survey
from univocal_app.observe.top import MEASURES, Counted, Top

MOST: Final = 1000  # of `n`
FEW: Final = 20  # where no `n` is given


class Views:
    """The endpoints of the page's data, and the listeners that count it.

    `survey` asks all processes. `origins` gives the sites with the URLs of their origin servers, `listed`
    these servers, `certificates` those in force.
    """

    def __init__(
        self,
        figures: Figures,
        clock: Callable[[], float] = time.time,
        survey: Survey | None = None,
        origins: Callable[[], list[dict[str, str]]] = list,
        listed: List = tuple,
        certificates: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        survey = survey or Survey()
        self.figures, self.stats = figures, Stats(figures, clock)
        self.top, self.failures = Top(survey), LastFailures(survey)
        self.origin_states = OriginStates(listed, survey)
        self._origins, self._certificates = origins, certificates
        self._search: asyncio.Task[bytes] | None = None  # for rules

    @property
    def listeners(self) -> list[OutcomeListener]:
        """Those of them that count."""
        return [self.top, self.top.spellings, self.failures]

    def routes(self, cache: CacheMiddleware) -> list[Route]:
        """The routes of what the page reads."""
        return [
            Route("/-/stats", self.answer_stats),
            Route("/-/top", self.answer_top),
            Route("/-/origins", self.answer_origins),
            Route("/-/failures", self.answer_failures),
            Route("/-/spellings", partial(self.answer_spellings, cache)),
            Route("/-/purge-misses", partial(self.answer_purge_misses, cache.tiers)),
            Route("/-/purge/preview", partial(preview, cache), methods=["POST"]),
            Route("/-/explain", partial(explained, cache)),
            Route("/-/discover", self.answer_discover),
        ]

    async def answer_stats(self, request: Request) -> Response:
        """The numbers since the start and by second; with `step=15` by 15 seconds, of an hour."""
        span = next((each for each in SPANS if str(each) == request.query_params.get("step", "1")), None)
        if span is None:
            return bad_request(f"step must be one of {', '.join(map(str, SPANS))}", request)
        await self.stats.look()
        document: dict[str, Any] = await asyncio.to_thread(self.stats.document, SPANS[span])
        document["totals"]["origins"] = self._origins()
        document["certificates"] = self._certificates()
        return JSONResponse(document, headers=FRESH)

    async def answer_failures(self, _: Request) -> Response:
        """The last failures, with their reasons."""
        return JSONResponse(await self.failures.last(), headers=FRESH)

    async def answer_origins(self, _: Request) -> Response:
        """The origin servers, how they are and how much they were asked."""
        return JSONResponse(await self.origin_states.document(), headers=FRESH)

    async def answer_top(self, request: Request) -> Response:
        """The first `n` by a measure."""
        by, number = request.query_params.get("by", "requests"), request.query_params.get("n", str(FEW))
        measure = next((each for each in MEASURES if each == by), None)
        if measure is None:
            return bad_request(f"by must be one of {', '.join(MEASURES)}", request)
        if not (number.isascii() and number.isdigit() and len(number) < 5 and 0 < int(number) <= MOST):
            return bad_request(f"n must be a number from 1 to {MOST}", request)
        search = request.query_params.get("search", "")
        return JSONResponse(await self.top.top(measure, int(number), search), headers=FRESH)

    async def answer_spellings(self, cache: CacheMiddleware, request: Request) -> Response:
        """The sums of what folding has saved; with `url` the spellings of that page, and what is stored."""
        url = request.query_params.get("url")
        if url is None:
            return JSONResponse(await self.top.folding(FEW), headers=FRESH)
        try:
            order, stored = await foresee({"url": url}, cache.gate.runtime, cache.tiers)
        except ValueError as error:
            return bad_request(str(error), request)
        assert order.canonical is not None
        spelled = await self.top.spelled(order.canonical.key)
        return JSONResponse({**spelled, "stored": stored}, headers=FRESH)

    async def answer_purge_misses(self, tiers: Tiers, _: Request) -> Response:
        """The purges that removed nothing, the last first, with what is stored of a similar name."""
        missed = await self.top.purges.last(FEW)
        alike = await asyncio.to_thread(neighbours, missed, await self.top.keys() if missed else ())
        rows = list[dict[str, Any]]()
        for each in missed:
            row = {"by": each.by, "value": each.name, "count": each.count, "at": each.at}
            rows.append(row | {"neighbours": await _stored(alike[each], tiers)})
        return JSONResponse(rows, headers=FRESH)

    async def answer_discover(self, _: Request) -> Response:
        """The rules that `univocal discover --json` prints; none is applied.

        The search is a process, one at a time: clients that ask meanwhile get the same answer.
        """
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._discover())
        document = await asyncio.shield(self._search)
        return Response(document, media_type="application/json", headers=FRESH)

    async def _discover(self) -> bytes:
        return await asyncio.to_thread(_discovered, await self.top.spellings.gathered())


async def _stored(near: list[Neighbour], tiers: Tiers) -> list[dict[str, Any]]:
    """The first few neighbours of which there are stored responses."""
    rows = list[dict[str, Any]]()
    for each in near:
        with suppress(RefusedError):  # a shared store that is away tells of nothing
            if stored := await tiers.count(Keys(frozenset((each.key,)))):
                rows.append({"url": each.url, "differs": each.differs, "stored": stored})
        if len(rows) == NEIGHBOURS:
            break
    return rows


async def explained(cache: CacheMiddleware, request: Request) -> Response:
    """The stages of the URL that `url` names, by the configuration in force.

    The upstream's is left out: its path may have a variable of the environment, which is shown to no client.
    """
    runtime = cache.gate.runtime
    try:
        url, rules_of = request.query_params.get("url", ""), runtime.rules_of
        explanation = explain(url, runtime.sites, rules_of=rules_of, guards_of=runtime.restrictions_of)
    except ValueError as error:
        return bad_request(str(error), request)
    stages = [stage for stage in explanation.stages if stage.name != "upstream"]
    explanation = replace(explanation, stages=stages)
    return Response(explanation.as_json() + "\n", media_type="application/json", headers=FRESH)


# A search takes seconds of a processor, and modules that the proxy has no other use for.
_DISCOVER: Final = "-P", "-X", "utf8", "-m", "univocal_app", "discover", "--json", "--format", "counted", "-"
_PATIENCE: Final = 120.0  # seconds


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
