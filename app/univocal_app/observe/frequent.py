"""The most frequent of many keys, counted in bounded memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

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
        self._floor = 0  # of what is not counted by now, none had more

    def add(self, key: Key, weight: int = 1) -> None:
        """Add to a key's sum."""
        known = self.sums.get(key)
        if known is None:
            self._meet(key, weight)
        else:
            self.sums[key] = known + weight

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        return iter(self.sums.items())

    def _meet(self, key: Key, weight: int) -> None:
        if len(self.sums) >= 2 * self.most:
            self._floor = sorted(self.sums.values())[-self.most]
            self.sums = {each: count for each, count in self.sums.items() if count > self._floor}
        self.sums[key] = self._floor + weight
