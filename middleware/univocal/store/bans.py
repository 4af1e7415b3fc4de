"""Bans are patterns: responses stored before them are tested against them, on lookup or by a sweep."""

from __future__ import annotations

from typing import Final, NamedTuple

from univocal.store.eviction import Entry
from univocal.store.purge_selectors import Pattern, url_of

__all__ = ["MOST_BANS", "Ban", "Bans"]

MOST_BANS: Final = 1_000
# How many bans one walk through all entries is for: the less, the sooner there is room for another.
_TOGETHER: Final = 8
# Work is counted in steps of RE2's slowest engine, some 8 ns each; a search takes these beside its URL's.
_SEARCH: Final = 150


class Ban(NamedTuple):
    """A pattern and when it was set (seconds); bans are numbered from 1 on."""

    number: int
    time: float
    pattern: Pattern


class Bans:
    """The live bans, oldest first: those that some stored response may not have been tested against."""

    __slots__ = ("_live", "lost", "newest")

    def __init__(self) -> None:
        self.newest = 0  # the number of the last ban
        self.lost = 0  # of the last one that had to make room: who has not met it is taken for banned
        self._live: list[Ban] = []

    def __len__(self) -> int:
        return len(self._live)

    @property
    def oldest(self) -> int:
        """The number up to which the next walk through all entries is to test; one ban at least is live."""
        return self._live[:_TOGETHER][-1].number

    def admits(self, pattern: Pattern) -> bool:
        """Tell whether a ban can be set without another being lost."""
        return len(self._live) < MOST_BANS or any(ban.pattern == pattern for ban in self._live)

    def add(self, pattern: Pattern, now: float) -> None:
        """Set a ban; one on the same pattern that is as hard goes, and where there is no room the oldest."""
        self.newest += 1
        self._live = [ban for ban in self._live if ban.pattern != pattern]
        if len(self._live) >= MOST_BANS:
            self.lost = self._live.pop(0).number
        self._live.append(Ban(self.newest, now, pattern))

    def lose(self) -> None:
        """Take every response that is stored by now for banned."""
        self.newest += 1
        self.lost = self.newest
        self._live.clear()

    def meet(self, entry: Entry, last: int, steps: int) -> tuple[list[Ban], int]:
        """Test an entry against the bans up to a number that are new to it, and note which it has met.

        Those that mean it, and what is left of the steps: when these are used up, the rest waits.
        """
        meant: list[Ban] = []
        if entry.tested >= last:
            return meant, steps
        url = url_of(entry.key)
        for place in range(self._place(entry.tested), self._place(last)):
            ban = self._live[place]
            entry.tested = ban.number
            steps -= _SEARCH + ban.pattern.steps * len(url)
            if ban.pattern.search(url):
                meant.append(ban)
                if not ban.pattern.soft:
                    break
            if steps <= 0:
                return meant, steps
        entry.tested = last
        return meant, steps

    def forget(self, number: int) -> None:
        """Forget the bans up to that number: every stored response has been tested against them."""
        del self._live[: self._place(number)]

    def _place(self, number: int) -> int:
        """The count of live bans up to that number."""
        low, high = 0, len(self._live)
        while low < high:
            middle = (low + high) // 2
            if self._live[middle].number <= number:
                low = middle + 1
            else:
                high = middle
        return low
