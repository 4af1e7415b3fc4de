"""The last requests that failed: a listener that keeps a few Outcomes' reasons."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from univocal.engine.audience import HitCounter
from univocal.engine.outcome import Outcome
from univocal_app.observe.handled import cut_for, failed_for
from univocal_app.observe.survey import Row, Survey

FEW: Final = 20  # failures that are kept
LONGEST: Final = 512  # bytes of a target, and of the system's words


class LastFailures(HitCounter):
    """The last failures: requests answered with 502, 503 or 504 here, or by a stale response in its place.

    Each process keeps its own, and by the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None) -> None:
        self._kept = deque[Row](maxlen=FEW)
        self._survey = survey or Survey()
        self._survey.add("failures", lambda: list(self._kept))

    def __call__(self, outcome: Outcome) -> None:
        failure, reason = outcome.failure, failed_for(outcome)
        if failure is None and not reason:
            return
        received, canonical, times = outcome.received, outcome.canonical, outcome.times
        target = received.target if canonical is None else canonical.url
        origin, cause, error = ("", "", "") if failure is None else (failure.origin, *failure[2:])
        at = int((times.start + times.total) * 1000), outcome.status
        asked = outcome.site.encode(), received.method[:32], target[:LONGEST]
        why = (reason or cut_for(outcome) or "stale").encode(), origin.encode(), cause.encode()
        self._kept.append((*at, *asked, *why, error.encode("utf-8", "replace")[:LONGEST]))

    async def last(self) -> list[dict[str, Any]]:
        """The last failures of all processes that answer in time, the latest first."""
        rows = await self._survey.rows("failures")
        latest_first = sorted(rows, key=lambda row: int(row[0]))[::-1]  # also of one millisecond
        return [_as_object(row) for row in latest_first[:FEW]]


def _as_object(row: Row) -> dict[str, Any]:
    at, status, *texts = row
    names = ("site", "method", "url", "reason", "origin", "cause", "error")
    decoded = {
        name: text.decode("utf-8" if name in ("site", "origin", "error") else "latin-1", "replace")
        for name, text in zip(names, texts, strict=True)
        if isinstance(text, bytes)
    }
    return {"at": int(at) / 1000, "status": int(status), **decoded}
