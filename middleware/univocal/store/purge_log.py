"""The purges of one memory, in order: one log for stored responses and for leases."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from univocal.store.purge_selectors import LocalSelector

MOST_BANS: Final = 1_000
# Bytes that the purges since the oldest lease take; a lease older than what was dropped cannot commit.
_LIMIT: Final = 4 << 20
# Purges that are kept though no lease needs them: a lease may begin late, with the number of an earlier one.
_RECENT: Final = 64
# How many bans one walk through all entries is for: the less, the sooner there is room for another.
_TOGETHER: Final = 8


class LoggedPurge:
    """A purge, numbered from 1 on, and its time in seconds; `meant` counts responses."""

    __slots__ = ("meant", "number", "selector", "time")

    def __init__(self, number: int, time: float, selector: LocalSelector) -> None:
        self.number: Final = number
        self.time: Final = time
        self.selector: Final = selector
        self.meant = 0


class PurgeLog:
    """All purges since the oldest lease began, and the bans.

    Bans are the purges that some stored response may not have been tested against, oldest first.
    """

    __slots__ = ("_cost", "bans", "forgotten", "kept", "lost", "newest", "number")

    def __init__(self) -> None:
        self.number = 0  # of the last purge
        self.newest = 0  # of the last ban
        self.lost = 0  # of the last ban that had to make room: who has not met it is taken for banned
        self.forgotten = 0  # of the last purge that leases can be tested against no more
        self._cost = 0
        self.kept: deque[LoggedPurge] = deque()  # for leases
        self.bans: list[LoggedPurge] = []

    def add(self, selector: LocalSelector, now: float, oldest: int) -> LoggedPurge:
        """Number a purge for the leases, as in `trim`; `ban` makes it one for stored responses."""
        self.number += 1
        purge = LoggedPurge(self.number, now, selector)
        self.kept.append(purge)
        self._cost += selector.cost
        if self._cost > _LIMIT or len(self.kept) > _RECENT:
            self.trim(oldest)
        return purge

    # For leases

    def since(self, number: int) -> Iterator[LoggedPurge]:
        """The purges after a number that are kept for leases."""
        first = self.kept[0].number if self.kept else 0
        return islice(self.kept, max(0, number + 1 - first), None)

    def trim(self, oldest: int) -> None:
        """Drop the purges up to the number at which the oldest lease began, and those without room."""
        kept = self.kept
        while self._cost > _LIMIT or (len(kept) > _RECENT and kept[0].number <= oldest):
            dropped = kept.popleft()
            self.forgotten = dropped.number
            self._cost -= dropped.selector.cost

    # For stored responses

    @property
    def oldest(self) -> int:
        """The number up to which the next walk through all entries is to test; there is one ban at least."""
        return self.bans[:_TOGETHER][-1].number

    def admits(self, selector: LocalSelector) -> bool:
        """True if there is room for a ban without another being lost."""
        return len(self.bans) < MOST_BANS or any(ban.selector == selector for ban in self.bans)

    def ban(self, purge: LoggedPurge) -> None:
        """Have responses tested against a purge; an equal ban goes, and where there is no room the oldest."""
        self.newest = purge.number
        self.bans = [ban for ban in self.bans if ban.selector != purge.selector]
        if len(self.bans) >= MOST_BANS:
            self.lost = self.bans.pop(0).number
        self.bans.append(purge)

    def bans_between(self, after: int, last: int) -> list[LoggedPurge]:
        """The bans after a number, up to another."""
        return self.bans[self._place(after) : self._place(last)]

    def forget_bans(self, number: int) -> None:
        """Forget the bans up to that number: every stored response has been tested against them."""
        del self.bans[: self._place(number)]

    def _place(self, number: int) -> int:
        """The count of bans up to that number."""
        return bisect_right(self.bans, number, key=_number)


def _number(purge: LoggedPurge) -> int:
    return purge.number
