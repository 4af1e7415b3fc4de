"""Failed refreshes: meanwhile a stale response is served at once, and one request tries now and then."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from univocal.cache.stored import Stored
from univocal.http.messages import NO_NAMES

# Seconds until the next attempt, after the first failure and at most: each time twice as long as before.
_FIRST: Final = 1.0
_MOST: Final = 30.0
# So many stored responses at most are remembered, and as many keys that were answered since.
_REMEMBERED: Final = 10_000


class FailedRefresh:
    """The last failure to refresh a stored response: its `status`, 0 if there was no answer.

    `until` is when the next request may try, in seconds since the epoch. `tries` tells whether one does.
    `number` says which answers and failures it came after.
    """

    __slots__ = ("delay", "number", "status", "tries", "until")

    def __init__(self) -> None:
        self.number = 0
        self.delay = 0.0
        self.until = 0.0
        self.status = 0
        self.tries = False


class Failures:
    """The failures of requests to refresh stored responses.

    A request with fields that ordinary ones have not may have provoked its failure, which then counts for
    requests with the same `odd` fields alone. An answer to a request with the same key ends them all.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[int, FailedRefresh] = OrderedDict()
        self._answered: OrderedDict[bytes, int] = OrderedDict()  # the number of each key's last answer
        self._number = 0  # of the last answer or failure
        self.any = False  # there has been one: else there is nothing to ask

    def note(self, stored: Stored, odd: frozenset[bytes], status: int, now: float) -> None:
        """Record a failure."""
        self.any = True
        name = _name(stored, odd)
        failure = self._failures.get(name)
        if failure is None or self._is_over(failure, stored.key):
            failure = self._failures[name] = FailedRefresh()
        if 0 < failure.until - now <= failure.delay:
            return  # it began before the one that is known
        self._failures.move_to_end(name)
        failure.delay = min(2 * failure.delay or _FIRST, _MOST)
        failure.until, failure.status, failure.tries = now + failure.delay, status, False
        self._number += 1
        failure.number = self._number
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def clear(self) -> None:
        """Have all tried again."""
        self._failures.clear()
        self._answered.clear()
        self.any = False

    def answered(self, key: bytes) -> None:
        """Record that the origin server has answered a request with this key."""
        self._number += 1
        self._answered[key] = self._number
        self._answered.move_to_end(key)
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)

    def _is_over(self, failure: FailedRefresh, key: bytes) -> bool:
        return failure.number < self._answered.get(key, 0)

    def of(self, stored: Stored, odd: frozenset[bytes], now: float) -> FailedRefresh | None:
        """The failure for which a request does not try now; None if it does."""
        for each in {NO_NAMES, odd}:
            failure = self._failures.get(_name(stored, each))
            if failure is None or self._is_over(failure, stored.key):
                continue
            # A clock that is set back makes no request wait longer.
            if failure.tries or 0 < failure.until - now <= failure.delay:
                return failure
        return None

    def begin(self, stored: Stored, odd: frozenset[bytes]) -> list[FailedRefresh]:
        """Begin a request's try; returns the failures for which others do not try until it has ended."""
        found = (self._failures.get(_name(stored, each)) for each in {NO_NAMES, odd})
        tried = [failure for failure in found if failure is not None]
        for failure in tried:
            failure.tries = True
        return tried


def _name(stored: Stored, odd: frozenset[bytes]) -> int:
    return hash((stored.key, stored.vary, stored.response_time, odd))
