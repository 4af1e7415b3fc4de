"""The last requests that failed: a listener that keeps a few Outcomes' reasons."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from univocal.engine.outcome import HitCounter, Outcome
from univocal_app.observe.handled import cut_for, failed_for
from univocal_app.observe.survey import Row, Survey

FEW: Final = 20  # failures that are kept
LONGEST: Final = 512  # bytes of a target, and of the system's words


# Of the texts that did not come from clients.
_CHARSETS: Final = {"site": "utf-8", "origin": "utf-8", "error": "utf-8"}


class _Failed(NamedTuple):
    """The row of one failure; `at` is in milliseconds since the epoch."""

    at: int
    status: int
    site: bytes
    method: bytes
    url: bytes
    reason: bytes
    origin: bytes
    cause: bytes
    error: bytes


class LastFailures(HitCounter):
    """The last failures: requests answered with 502, 503 or 504 here, or by a stale response in its place.

    Each process keeps its own, and by the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None) -> None:
        self._kept = deque[Row](maxlen=FEW)
        self._survey = survey or Survey()
        self._survey.add("failures", "nnbbbbbbb", lambda: list(self._kept))

    def __call__(self, outcome: Outcome) -> None:
        failure, reason = outcome.failure, failed_for(outcome)
        if failure is None and not reason:
            return
        received, canonical, times = outcome.received, outcome.canonical, outcome.times
        target = received.target if canonical is None else canonical.url
        origin, cause, error = ("", "", "") if failure is None else (failure.origin, *failure[2:])
        self._kept.append(
            _Failed(
                at=int((times.start + times.total) * 1000),
                status=outcome.status,
                site=outcome.site.encode(),
                method=received.method[:32],
                url=target[:LONGEST],
                reason=(reason or cut_for(outcome) or "stale").encode(),
                origin=origin.encode(),
                cause=cause.encode(),
                error=error.encode("utf-8", "replace")[:LONGEST],
            )
        )

    async def last(self) -> list[dict[str, Any]]:
        """The last failures of all processes that answer in time, the latest first."""
        failed = map(_Failed._make, await self._survey.rows("failures"))
        latest_first = sorted(failed, key=lambda each: each.at)[::-1]  # also of one millisecond
        return [_as_object(each) for each in latest_first[:FEW]]


def _as_object(failed: _Failed) -> dict[str, Any]:
    texts = {
        name: each.decode(_CHARSETS.get(name, "latin-1"), "replace")
        for name, each in failed._asdict().items()
        if isinstance(each, bytes)
    }
    return {"at": failed.at / 1000, "status": failed.status, **texts}
