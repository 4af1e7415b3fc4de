"""Bans: patterns that responses stored before them are tested against, on lookup or by a sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from univocal.cache.selectors import Pattern

__all__ = ["MOST_BANS", "Ban", "Bans"]

MOST_BANS: Final = 1_000


class Ban(NamedTuple):
    """A pattern and when it was set (seconds); bans are numbered from 1 on."""

    number: int
    time: float
    pattern: Pattern


class Bans:
    """The live bans, oldest first: those that some stored response may not have been tested against."""

    __slots__ = ("_live", "newest")

    def __init__(self) -> None:
        self.newest = 0  # the number of the last ban
        self._live: deque[Ban] = deque()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def full(self) -> bool:
        """Whether one must be forgotten before another is set."""
        return len(self._live) >= MOST_BANS

    def add(self, pattern: Pattern, now: float) -> None:
        """Set a ban; one on the same pattern that is as hard takes its place."""
        self.newest += 1
        self._live = deque(ban for ban in self._live if ban.pattern != pattern)
        self._live.append(Ban(self.newest, now, pattern))

    def since(self, number: int) -> Iterator[Ban]:
        """The bans after that number, newest first."""
        for ban in reversed(self._live):
            if ban.number <= number:
                return
            yield ban

    def forget(self, number: int) -> None:
        """Forget the bans up to that number: every stored response has been tested against them."""
        while self._live and self._live[0].number <= number:
            self._live.popleft()
