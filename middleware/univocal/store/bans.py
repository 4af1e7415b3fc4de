"""Bans are purges that may mean many: responses stored before are tested, on lookup or by a sweep."""

from __future__ import annotations

from typing import Final

from univocal.cache.stored import Stored
from univocal.store.eviction import Entry
from univocal.store.purge_selectors import LocalSelector, Pattern, matches, url_of

MOST_BANS: Final = 1_000
# How many bans one walk through all entries is for: the less, the sooner there is room for another.
_TOGETHER: Final = 8
# Work is counted in steps of RE2's slowest engine, some 8 ns each; a search takes these beside its URL's.
_SEARCH: Final = 150
# Steps of any other selector.
_MATCH: Final = 60


class Ban:
    """A selector and when it was set (seconds); bans are numbered from 1 on. `meant` counts responses."""

    __slots__ = ("meant", "number", "selector", "time")

    def __init__(self, number: int, time: float, selector: LocalSelector) -> None:
        self.number: Final = number
        self.time: Final = time
        self.selector: Final = selector
        self.meant = 0


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

    def admits(self, selector: LocalSelector) -> bool:
        """Tell whether a ban can be set without another being lost."""
        return len(self._live) < MOST_BANS or any(ban.selector == selector for ban in self._live)

    def add(self, selector: LocalSelector, now: float) -> Ban:
        """Set a ban; an equal one that is as hard goes, and where there is no room the oldest."""
        self.newest += 1
        self._live = [ban for ban in self._live if ban.selector != selector]
        if len(self._live) >= MOST_BANS:
            self.lost = self._live.pop(0).number
        ban = Ban(self.newest, now, selector)
        self._live.append(ban)
        return ban

    def lose(self) -> None:
        """Take every response that is stored by now for banned."""
        self.newest += 1
        self.lost = self.newest
        self._live.clear()

    def meet(self, entry: Entry, last: int, steps: int) -> tuple[list[tuple[Ban, list[Stored]]], int]:
        """Test an entry against the bans up to a number that are new to it, and note which it has met.

        Those that mean some of it, with these responses, and what is left of the steps: when these are used
        up, the rest waits.
        """
        selected: list[tuple[Ban, list[Stored]]] = []
        if entry.tested >= last:
            return selected, steps
        url = b""
        for place in range(self._place(entry.tested), self._place(last)):
            ban = self._live[place]
            entry.tested = ban.number
            selector = ban.selector
            if isinstance(selector, Pattern):
                url = url or url_of(entry.key)
                steps -= _SEARCH + selector.steps * len(url)
                variants = list(entry.variants) if selector.search(url) else []
            else:
                steps -= _MATCH * len(entry.variants)
                variants = [one for one in entry.variants if matches(selector, entry.key, one)]
            if variants:
                selected.append((ban, variants))
                if len(variants) == len(entry.variants) and not selector.soft:
                    break
            if steps <= 0:
                return selected, steps
        entry.tested = last
        return selected, steps

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
