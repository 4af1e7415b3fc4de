"""A log in bounded memory: each URL once with its sizes, what these support, and the requests in order."""

from __future__ import annotations

import random
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from typing import Final

from univocal_app.observe.log_reader import LogEntry

# Distinct URLs that are kept; beyond, a sample of them, in which spellings of one URL mostly stay together.
MOST_URLS: Final = 150_000
# Requests whose order is kept.
MOST_REQUESTS: Final = 10_000_000
# A URL longer than this is some attack, or data.
_LONGEST: Final = 1024
# Of what a sample is drawn by: words that are in no more than this part of all URLs.
_COMMON: Final = 0.005

_WORD: Final = re.compile(rb"[A-Za-z0-9]+")
UNKNOWN: Final = -1


class Urls:
    """Distinct URLs: host and target of each, how often it was asked for, and the least and largest size."""

    __slots__ = ("count", "good", "high", "hosts", "index", "low", "targets")

    def __init__(self) -> None:
        self.index: dict[bytes, int] = {}
        self.hosts: list[bytes] = []
        self.targets: list[bytes] = []
        self.count = array("L")
        self.low = array("q")  # of complete answers; UNKNOWN where there is none
        self.high = array("q")
        self.good = bytearray()  # whether it was ever answered with a page

    def __len__(self) -> int:
        return len(self.targets)

    def add(self, host: bytes, target: bytes) -> int:
        """The number of a URL, a new one if need be."""
        key = host + target
        number = self.index.get(key)
        if number is None:
            number = self.index[key] = len(self.targets)
            self.hosts.append(host)
            self.targets.append(target)
            self.count.append(0)
            self.low.append(UNKNOWN)
            self.high.append(UNKNOWN)
            self.good.append(0)
        return number

    def sized(self, number: int, low: int, high: int) -> None:
        """Take in the size of a complete answer."""
        if low < 0:
            return
        if self.low[number] < 0 or low < self.low[number]:
            self.low[number] = low
        self.high[number] = max(self.high[number], high)

    def forget_sizes(self) -> None:
        """Take all sizes for unknown."""
        for number in range(len(self.targets)):
            self.low[number] = self.high[number] = UNKNOWN

    def take(self, other: Urls, number: int, target: bytes) -> int:
        """Take in a URL of `other` under another target; its number here."""
        mine = self.add(other.hosts[number], target)
        self.count[mine] += other.count[number]
        self.sized(mine, other.low[number], other.high[number])
        self.good[mine] |= other.good[number]
        return mine

    def find(self, host: bytes, target: bytes) -> int | None:
        """The number of a URL that was answered with a page."""
        number = self.index.get(host + target)
        return number if number is not None and self.good[number] else None


class Corpus:
    """The URLs of a log and the requests for them; GETs that were answered alone are counted."""

    def __init__(self, most: int = MOST_URLS) -> None:
        self.urls = Urls()
        self.order = array("I")
        self.statuses = array("H")  # of the requests in this order
        self.requests = 0
        self.skipped = 0  # lines that are no request for a URL
        self.share = 1.0  # of the URLs, where they are sampled
        self.ordered = True  # whether each request is told by itself
        self.truncated = False  # whether the order of later requests was not kept
        self._most = most
        self._common: frozenset[bytes] = frozenset()

    def add(self, entry: LogEntry | None) -> None:
        """Take in a line."""
        if entry is None or not entry.target.startswith(b"/"):
            self.skipped += 1
            return
        host, target, method, status, size, _, _, count = entry
        if method != b"GET" or not 200 <= status < 600 or status == 499 or len(target) > _LONGEST:
            return
        self.requests += count
        if self.share < 1 and not self._sampled(target):
            return
        urls = self.urls
        number = urls.add(host.lower(), target)
        urls.count[number] += count
        if status in {200, 304}:
            urls.good[number] = 1
            if status == 200 and size >= 0:
                urls.sized(number, size, size)
        if count > 1:
            self.ordered = False
        if len(self.order) < MOST_REQUESTS:
            self.order.append(number)
            self.statuses.append(status)
        else:
            self.truncated = True
        if len(urls) > self._most:
            self._thin_out()

    def _sampled(self, target: bytes) -> bool:
        return _draw(target, self._common) < self.share

    def _thin_out(self) -> None:
        """Keep half of the URLs, drawn by their rarest words, so that spellings of one stay together."""
        old = self.urls
        if not self._common:
            times = Counter(word for target in old.targets for word in set(_WORD.findall(target)))
            self._common = frozenset(word for word, n in times.items() if n > _COMMON * len(old))
        self.share /= 2
        self.urls = Urls()
        moved = array("l", bytes(array("l").itemsize * len(old)))
        for number, target in enumerate(old.targets):
            moved[number] = self.urls.take(old, number, target) if self._sampled(target) else -1
        kept = [moved[each] >= 0 for each in self.order]
        self.order = array("I", (moved[each] for each in compress(self.order, kept)))
        self.statuses = array("H", compress(self.statuses, kept))


def _draw(target: bytes, common: frozenset[bytes]) -> float:
    """A number from 0 to 1 that targets with the same rare words mostly share."""
    rare = [word for word in _WORD.findall(target) if word not in common]
    drawn = (blake2b(word, digest_size=4).digest() for word in rare or [target])
    return int.from_bytes(min(drawn), "big") / 2**32


def read(entries: Iterable[LogEntry | None], most: int = MOST_URLS) -> Corpus:
    """The corpus of all entries."""
    corpus = Corpus(most)
    add = corpus.add
    for entry in entries:
        add(entry)
    return corpus


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
