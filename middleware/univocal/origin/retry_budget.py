"""The retries that origin servers bear: a share of the requests, so that they help and do not flood.

How often one request is sent again, `Balancing.retries` in `balance.py` says.
"""

from __future__ import annotations

from typing import Final

SPAN: Final = 10  # seconds, counted whole
ALWAYS: Final = 3  # retries that nobody has to earn


class RetryBudget:
    """Grants retries: `share` of the requests of the last ten seconds, and always three.

    `now` is in seconds of a clock that never goes back.
    """

    __slots__ = ("_requests", "_retries", "_second", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._second = 0
        # By second, modulo their number.
        self._requests = [0] * SPAN
        self._retries = [0] * SPAN

    def earn(self, now: float) -> None:
        """Count a request."""
        second = int(now)
        if second != self._second:
            self._turn(second)
        self._requests[second % SPAN] += 1

    def spend(self, now: float) -> bool:
        """Count a retry, if there may be one more."""
        second = int(now)
        if second != self._second:
            self._turn(second)
        if sum(self._retries) >= max(ALWAYS, int(self._share * sum(self._requests))):
            return False
        self._retries[second % SPAN] += 1
        return True

    def _turn(self, second: int) -> None:
        """Forget what was counted more than `SPAN` seconds ago."""
        for gone in range(max(self._second, second - SPAN) + 1, second + 1):
            self._requests[gone % SPAN] = self._retries[gone % SPAN] = 0
        self._second = second
