"""Leases: each is the right to store what is being fetched, unless a purge concerns it meanwhile."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from univocal.cache.stored import Stored
from univocal.http.subclassing import mypyc_attr
from univocal.store.purge_selectors import (
    Everything,
    LocalSelector,
    Pattern,
    Variants,
    matches,
    may_match,
)

# Bytes that the log of purges takes; a lease older than what was dropped from it cannot commit.
_LOG_LIMIT: Final = 4 << 20
# Purges that are kept though no lease needs them: a lease may begin late, with the number of an earlier one.
_RECENT: Final = 64
# Bytes of an entry in it, of each name beside its own, and of a pattern with what RE2 makes of it, measured.
_SELECTOR_COST: Final = 450
_NAME_COST: Final = 150
_PATTERN_COST: Final = 30 << 10
_STEP_COST: Final = 35
# Steps (see bans.py) that the question whether a lease still holds may take: 4 ms.
_STEPS: Final = 500_000
_SEARCH: Final = 150
_NOTHING_SPARED: Final = frozenset[int]()


@mypyc_attr(acyclic=True)
class Lease:
    """The right to commit what is being fetched, unless it is purged meanwhile."""

    __slots__ = ("began", "key", "known", "live", "passed", "reserved", "spared", "time", "waited")

    def __init__(self, key: bytes, began: int, time: float) -> None:
        self.key = key
        self.began = began  # the number of the last purge before it
        self.time = time
        self.reserved = 0
        self.live = True
        self.waited = False  # as `NodeLease.waited`
        self.spared = _NOTHING_SPARED  # purges that do not concern it
        # The last purge that was found not to concern it, and what was known of its response by then.
        self.passed = began
        self.known: tuple[object, ...] | None = None


class Leases:
    """The live leases, and the purges since the oldest of them; `number` is that of the last purge."""

    __slots__ = ("_forgotten", "_live", "_log", "_weight", "limit", "number", "reserved")

    def __init__(self, limit: int) -> None:
        self.reserved = 0
        self.limit = limit
        self.number = 0
        self._forgotten = 0  # the number of the last purge that was dropped from the log
        self._weight = 0
        self._log: deque[tuple[int, int, LocalSelector]] = deque()  # number, bytes, what was purged
        # How many leases are live, by the number at which they began.
        self._live: dict[int, int] = {}

    def begin(self, key: bytes, now: float, since: int | None = None) -> Lease:
        """A new lease; a purge `since` that number concerns it, too."""
        began = self.number if since is None else since
        self._live[began] = self._live.get(began, 0) + 1
        return Lease(key, began, now)

    def reserve(self, lease: Lease, nbytes: int, at_most: int, *, unread: bool = False) -> bool:
        """Count `nbytes` more for a lease; False if it, or all together, would have more than they may.

        Content that is `unread`, since it comes ahead of its readers, may have half of what all may.
        """
        total, limit = lease.reserved + nbytes, self.limit // 2 if unread else self.limit
        if not lease.live or total > at_most or self.reserved + nbytes > limit:
            return False
        lease.reserved = total
        self.reserved += nbytes
        return True

    def release(self, lease: Lease) -> None:
        """End a lease and count what it reserved no longer; a second time does nothing."""
        if lease.live:
            self.end(lease)
        self.reserved -= lease.reserved
        lease.reserved = 0

    def end(self, lease: Lease) -> None:
        """End a lease, but go on counting what it reserved: it is still being read."""
        if not lease.live:
            return
        lease.live = False
        others = self._live[lease.began] - 1
        if others:
            self._live[lease.began] = others
            return
        del self._live[lease.began]
        if not self._log:
            return
        oldest = next(iter(self._live), self.number)  # or a late one, which then does not hold
        while len(self._log) > _RECENT and self._log[0][0] <= oldest:
            self._drop()

    def purged(self, selector: LocalSelector, sparing: Lease | None) -> None:
        """Note a purge for every lease, except one that knows of it."""
        self.number += 1
        if sparing is not None:
            sparing.spared |= {self.number}
        weight = _weight(selector)
        self._log.append((self.number, weight, selector))
        self._weight += weight
        while self._weight > _LOG_LIMIT or (not self._live and len(self._log) > _RECENT):
            self._drop()

    def _drop(self) -> None:
        self._forgotten, weight, _ = self._log.popleft()
        self._weight -= weight

    def holds(self, lease: Lease, stored: Stored | None) -> bool:
        """Tell whether no purge since the lease began concerns the response that came or may come.

        Each purge is tested once. Where there are too many patterns for one call, the lease does not hold,
        until another call has tested the rest: to fetch a response again is less work.
        """
        if not lease.live or lease.began < self._forgotten:
            return False
        if not self._log:
            return True
        known: tuple[object, ...] | None = None
        if stored is not None:
            known = stored.key, stored.tags, stored.search, stored.vary, stored.response_time
        if known != lease.known:
            lease.known, lease.passed = known, lease.began
        if self._log[-1][0] <= lease.passed:
            return True
        steps = _STEPS
        for number, _, selector in islice(self._log, max(0, lease.passed + 1 - self._log[0][0]), None):
            if number not in lease.spared:
                if steps <= 0 or _concerns(selector, lease.key, stored):
                    return False
                if isinstance(selector, Pattern):
                    steps -= _SEARCH + selector.steps * len(lease.key)
            lease.passed = number
        return True


def _concerns(selector: LocalSelector, key: bytes, stored: Stored | None) -> bool:
    """Tell whether a purge is about the response that came under a lease of this key, or may come."""
    if stored is None:
        return may_match(selector, key)
    return any(matches(selector, each, stored) for each in {key, stored.key})


def _weight(selector: LocalSelector) -> int:
    """The bytes that remembering a purge takes."""
    match selector:
        case Everything():
            return _SELECTOR_COST
        case Variants(names):
            selecting = [field for _, vary in names for field in vary]
            octets = sum(len(name) + len(value or b"") for name, value in selecting)
            return _SELECTOR_COST + octets + sum(_NAME_COST + len(key) for key, _ in names)
        case Pattern(steps=steps):
            return _SELECTOR_COST + _PATTERN_COST + _STEP_COST * steps
        case _:
            return _SELECTOR_COST + sum(_NAME_COST + len(name) for name in selector.names)
