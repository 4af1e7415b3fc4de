"""Eviction in constant time: SIEVE (Zhang et al., NSDI 2024), in which a hit moves nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from univocal.cache.stored import Stored

# The part of a key's variants that may be waiting for their first use.
_UNTRIED: Final = 1 / 4
# Ghosts at most: some 2 MB.
_MOST_GHOSTS: Final = 10_000


class Entry:
    """All stored responses of one key, newest first, and the last ban they met; a node of the queue."""

    __slots__ = ("cost", "key", "newer", "older", "tested", "variants", "visited")

    def __init__(self, key: bytes, tested: int) -> None:
        self.key: Final = key
        self.tested = tested
        self.variants: tuple[Stored, ...] = ()
        self.cost = 0
        self.visited = False
        self.newer: Entry | None = None
        self.older: Entry | None = None


NO_ENTRY: Final = Entry(b"", 0)
"""The entry of a key that has none: nothing is ever stored there."""


def least_used(variants: Sequence[Stored]) -> Stored:
    """The variant of one key, newest first, to evict: the least recently used.

    Anybody can have variants stored by making up values. So those that have not been used since they came go
    before all others, unless they are few: what is new must have the time to be asked for again.
    """
    untried = [one for one in variants if not one.used]
    among = untried if len(untried) > len(variants) * _UNTRIED else variants
    return min(reversed(among), key=lambda one: max(one.used, one.response_time))


class Walk:
    """A way through a queue from its newest entry to its oldest, some at a time, past what is removed."""

    def __init__(self, newest: Entry | None) -> None:
        self.at = newest  # None at the end


class Sieve:
    """A queue of entries by age, and a hand that walks from oldest to newest, sparing the visited once.

    Beside the hand there is an endless walk of the bans, and one of each purge.
    """

    def __init__(self) -> None:
        self._newest: Entry | None = None
        self._oldest: Entry | None = None
        self._hand: Entry | None = None
        self._walks: list[Walk] = []
        self.walked: Entry | None = None  # where the walk is; None at its end

    def add(self, entry: Entry) -> None:
        """Put an entry at the newest end."""
        entry.older, entry.newer = self._newest, None
        if self._newest is None:
            self._oldest = entry
        else:
            self._newest.newer = entry
        self._newest = entry

    def remove(self, entry: Entry) -> None:
        """Take an entry out of the queue."""
        if self._hand is entry:
            self._hand = entry.newer
        if self.walked is entry:
            self.walked = entry.newer
        for walk in self._walks:
            if walk.at is entry:
                walk.at = entry.older
        if entry.newer is None:
            self._newest = entry.older
        else:
            entry.newer.older = entry.older
        if entry.older is None:
            self._oldest = entry.newer
        else:
            entry.older.newer = entry.newer
        entry.newer = entry.older = None

    def victim(self) -> Entry | None:
        """The entry to evict next, still in the queue; None if that is empty."""
        hand = self._hand or self._oldest
        while hand is not None and hand.visited:
            hand.visited = False
            hand = hand.newer or self._oldest
        self._hand = hand
        return hand

    @contextmanager
    def through(self) -> Iterator[Walk]:
        """A walk that meets every entry there is by now, unless it is removed before."""
        walk = Walk(self._newest)
        self._walks.append(walk)
        try:
            yield walk
        finally:
            self._walks.remove(walk)

    def walk(self) -> None:
        """Begin the walk at the oldest entry; it goes past those that are added meanwhile, too."""
        self.walked = self._oldest

    def step(self) -> None:
        """Go on to the next newer entry."""
        if self.walked is not None:
            self.walked = self.walked.newer


class Ghosts:
    """The keys of responses that were read from another store and not kept, the latest ones.

    One that comes back soon would still be in memory, had it been kept (2Q: Johnson and Shasha, VLDB 1994).
    """

    def __init__(self) -> None:
        # By the key's hash: a collision keeps a response too early.
        self._costs: OrderedDict[int, int] = OrderedDict()
        self._octets = 0

    def returns(self, key: bytes, cost: int, most: int) -> bool:
        """Tell whether a key comes back before others of so many bytes; else it is a ghost from now on."""
        costs, marked = self._costs, hash(key)
        before = costs.pop(marked, 0)
        self._octets -= before
        if before:
            return True
        costs[marked] = cost
        self._octets += cost
        while self._octets > most or len(costs) > _MOST_GHOSTS:
            self._octets -= costs.popitem(last=False)[1]
        return False
