"""Sizes support a rule if both URLs of its pairs are as long, more often than by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from univocal_learn.corpus import Urls

# So many rules are thinkable for each that is true: what chance explains once in so many times is no rule.
_ODDS: Final = 1000
# Of the pairs of a true rule so many may differ: pages change.
_CHANGED: Final = 0.05
_DRAWN: Final = 400
# Lengths that a page's own URL, or a token, may add: bytes, and a part of the size.
_OCTETS: Final = 16
_PART: Final = 0.005
_MOSTLY: Final = 0.5
_VARYING: Final = 0.2


@dataclass(frozen=True, slots=True)
class Weight:
    """The number of pairs with known sizes, of those alike, and how often chance makes two alike."""

    sized: int
    alike: int
    chance: float

    @property
    def confidence(self) -> float:
        """The certainty that the pairs are one page each; 0 where the sizes speak against it."""
        missed = self.sized - self.alike
        if not self.alike or missed > _CHANGED * self.sized:
            return 0.0
        likely = max(self.chance, 0.02) ** max(self.alike - 10 * missed, 0)
        return max(0.0, 1 - _ODDS * likely)


def sizes_tell(urls: Urls) -> bool:
    """Sizes tell pages apart: not most have one size, and most have the same size each time."""
    sized = [number for number in range(len(urls)) if urls.low[number] >= 0]
    again = [number for number in sized if urls.count[number] > 1]
    varying = sum(urls.high[n] > (1 + 10 * _PART) * urls.low[n] + 4 * _OCTETS for n in again)
    most = Counter(urls.low[number] for number in sized).most_common(1)
    return bool(sized) and most[0][1] <= _MOSTLY * max(len(sized), 3) and varying <= _MOSTLY * len(again)


def alike(urls: Urls, one: int, other: int, *, exactly: bool = False) -> bool | None:
    """The sizes of two URLs overlap, or nearly do; None where one is not known."""
    low, high = urls.low, urls.high
    if low[one] < 0 or low[other] < 0:
        return None
    gap = max(low[one], low[other]) - min(high[one], high[other])
    return bool(gap <= 0) if exactly else bool(gap <= _OCTETS + _PART * low[one])


def weigh(urls: Urls, pairs: Sequence[tuple[int, int]], *, nearly: bool = False) -> Weight:
    """The weight of the pairs: by equal sizes, or by similar ones where that is surer.

    Similar ones count if the same URL has several sizes, or with `nearly`: else a page may differ by no more
    than the word that its URL chose.
    """
    ways = (True, False) if nearly or _varies(urls, pairs) else (True,)
    return max((_weigh(urls, pairs, exactly=way) for way in ways), key=lambda weight: weight.confidence)


def _varies(urls: Urls, pairs: Sequence[tuple[int, int]]) -> bool:
    """The same URL is answered in other sizes when it is asked for again."""
    again = {number for pair in pairs for number in pair if urls.count[number] > 1 and urls.low[number] >= 0}
    return sum(urls.high[number] > urls.low[number] for number in again) > _VARYING * len(again)


def _weigh(urls: Urls, pairs: Sequence[tuple[int, int]], *, exactly: bool) -> Weight:
    sized = [pair for pair in pairs if urls.low[pair[0]] >= 0 and urls.low[pair[1]] >= 0]
    if not sized:
        return Weight(0, 0, 1.0)
    same = sum(bool(alike(urls, one, other, exactly=exactly)) for one, other in sized)
    return Weight(len(sized), same, _chance(urls, sized, exactly=exactly))


def _chance(urls: Urls, pairs: Sequence[tuple[int, int]], *, exactly: bool) -> float:
    """The share of cases in which one URL of a pair is like the other URL of another pair."""
    drawn = random.Random(len(pairs))  # noqa: S311 - the same for the same log
    tried = hits = 0
    for _ in range(_DRAWN):
        (one, mate), (_, other) = drawn.choice(pairs), drawn.choice(pairs)
        if other in {one, mate} or urls.targets[mate] == urls.targets[other]:
            continue
        tried += 1
        hits += bool(alike(urls, one, other, exactly=exactly))
    return hits / tried if tried >= 2 else 1.0
