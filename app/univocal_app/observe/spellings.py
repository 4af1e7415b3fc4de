"""The spellings by which pages are asked for, counted in bounded memory: a listener that counts Outcomes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from univocal.engine.audience import HitCounter
from univocal.engine.outcome import Outcome
from univocal.judge.hits import AlikeHits
from univocal_app.observe.survey import Row, Survey, summed

Key = TypeVar("Key", bound=Hashable)


class Frequent(Generic[Key]):
    """Sums by key, of `most` keys at least and twice as many at most.

    It is space-saving (Metwally et al. 2005), in batches: when there are too many keys, the least go, and a
    key that is new begins with as much as those had at most. So no sum is too small, and none is too large by
    more than the sum of all by `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.sums: dict[Key, int] = {}
        self.examples: dict[Key, bytes] = {}  # the first of each key that came with one
        self._floor = 0  # of what is not counted by now, none had more

    def add(self, key: Key, weight: int = 1) -> None:
        """Add to a key's sum."""
        known = self.sums.get(key)
        if known is None:
            self._meet(key, weight)
        else:
            self.sums[key] = known + weight

    def note(self, key: Key, example: bytes) -> None:
        """Add 1 to a key's sum, and keep its first example."""
        self.add(key)
        self.examples.setdefault(key, example)

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        return iter(self.sums.items())

    def _meet(self, key: Key, weight: int) -> None:
        if len(self.sums) >= 2 * self.most:
            self._floor = sorted(self.sums.values())[-self.most]
            self.sums = {each: count for each, count in self.sums.items() if count > self._floor}
            self.examples = {each: noted for each, noted in self.examples.items() if each in self.sums}
        self.sums[key] = self._floor + weight


Counted: TypeAlias = tuple[bytes, bytes, int]
"""A key, a target as it was received, and how often it was asked for."""

MOST: Final = 10_000  # spellings that stay when there are too many
LONGEST: Final = 512  # bytes of a target; what is longer is not counted

_PAGES: Final = frozenset({200, 304})


class Spellings(HitCounter):
    """The spellings by which clients got a page with GET, by the key under which it is stored.

    Each process counts for itself, and by the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None) -> None:
        self._counts = Frequent[tuple[bytes, bytes]](MOST)
        self._survey = survey or Survey()
        self._survey.add("spellings", self.counted)

    def __call__(self, outcome: Outcome) -> None:
        canonical, received = outcome.canonical, outcome.received
        if canonical is None or outcome.status not in _PAGES or received.method != b"GET":
            return
        self._add(canonical.key, received.target, outcome.alike)

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        for each in hits:
            if each.status in _PAGES:
                self._add(each.canonical.key, each.target, each.count)

    def _add(self, key: bytes, target: bytes, count: int) -> None:
        if len(target) <= LONGEST and target[:1] == b"/":
            self._counts.add((key, target), count)

    def counted(self) -> list[Counted]:
        """The spellings that this process has counted."""
        return [(key, target, count) for (key, target), count in self._counts]

    async def gathered(self) -> list[Counted]:
        """The `MOST` spellings that were asked for most, of all processes that answer in time."""
        return await asyncio.to_thread(_summed, await self._survey.rows("spellings"))

    async def by_key(self) -> dict[bytes, list[tuple[bytes, int]]]:
        """The spellings of each key with their counts: the key of most spellings and the most asked first."""
        return await asyncio.to_thread(_by_key, await self._survey.rows("spellings"))


# In threads: of many spellings this takes longer than others may wait.


def _summed(rows: list[Row]) -> list[Counted]:
    return [(key, target, count) for (key, target), count in summed(rows).most_common(MOST)]


def _by_key(rows: list[Row]) -> dict[bytes, list[tuple[bytes, int]]]:
    by_key = defaultdict[bytes, list[tuple[bytes, int]]](list)
    for key, target, count in _summed(rows):
        by_key[key].append((target, count))
    return dict(sorted(by_key.items(), key=lambda each: len(each[1]), reverse=True))
