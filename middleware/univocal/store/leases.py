"""Validity by number: a response may be stored, and used, unless a later purge means it.

Each purge of a store has a number, greater than all before it. A fetch has a lease with the number of the
last purge that its node knows as it begins. Its response is stored with that number, or with a later one up
to which no purge means it. `Leases` judge what is being fetched, a `Journal` judges what is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Final

from univocal.cache.directives import split_key
from univocal.cache.stored import Stored, softened
from univocal.http.compiling import mypyc_attr
from univocal.store.purge_selectors import LocalSelector, Purge, Selector, located, variant_name

# Bytes that the purges since the oldest lease take; a lease older than what was dropped cannot commit.
_LIMIT: Final = 4 << 20
# Purges that are kept though no lease needs them: a lease may begin late, with the number of an earlier one.
_RECENT: Final = 64
# Steps (see purge_selectors.py) that the question whether a lease still holds may take: 4 ms.
_STEPS: Final = 500_000
MOST_LISTED: Final = 1_000
# Bytes that the last numbers may take, and those of one beside its name, measured.
_NAMES: Final = 16 << 20
_NAME_COST: Final = 350
# Steps (see purge_selectors.py) that the patterns may take for one response: 32 ms.
_READING_STEPS: Final = 4_000_000
_NOTHING_SPARED: Final = frozenset[int]()


class PurgeLog:
    """All purges since the oldest lease began, numbered from 1 on."""

    def __init__(self) -> None:
        self.number = 0  # of the last purge
        self.forgotten = 0  # of the last purge that leases can be tested against no more
        self._cost = 0
        self.kept: deque[Purge] = deque()

    def add(self, selector: LocalSelector, now: float, oldest: int) -> Purge:
        """Number a purge, as in `trim`."""
        self.number += 1
        purge = Purge(self.number, now, selector)
        self.kept.append(purge)
        self._cost += selector.cost
        if self._cost > _LIMIT or len(self.kept) > _RECENT:
            self.trim(oldest)
        return purge

    def since(self, number: int) -> Iterator[Purge]:
        """The purges after a number that are kept."""
        first = self.kept[0].number if self.kept else 0
        return islice(self.kept, max(0, number + 1 - first), None)

    def trim(self, oldest: int) -> None:
        """Drop the purges up to the number at which the oldest lease began, and those without room."""
        kept = self.kept
        while self._cost > _LIMIT or (len(kept) > _RECENT and kept[0].number <= oldest):
            dropped = kept.popleft()
            self.forgotten = dropped.number
            self._cost -= dropped.selector.cost


@mypyc_attr(acyclic=True)
class Numbered:
    """A stored response, and a number up to which no purge means it.

    `has_content` is False for one that was read without its content.
    """

    __slots__ = ("has_content", "number", "stored")

    def __init__(self, number: int, stored: Stored, has_content: bool = True) -> None:
        self.number = number
        self.stored = stored
        self.has_content = has_content


class FetchLease:
    """A lease as far as the store behind memory matters to it.

    `token` is drawn at random, and names it: as the cause of a purge, and as the one who has the key's
    fetch lock, while it `has_lock`.
    """

    __slots__ = ("has_lock", "holder", "kept", "key", "results", "seen", "token")

    def __init__(self, key: bytes, token: bytes) -> None:
        self.key = key
        self.token = token
        self.has_lock = False
        self.holder = b""  # the token of the fetch that has the lock instead, if another has
        self.seen: Sequence[Numbered] = ()  # the store's responses of this key, as they were read
        self.results: list[Stored | Selector] = []  # what the store hears at its end
        self.kept: Stored | None = None  # what memory has of it


@mypyc_attr(acyclic=True)
class Lease:
    """The right to commit what is being fetched, unless it is purged meanwhile.

    Where a store behind memory has it, too, it is a `fetch` of that store.
    """

    def __init__(self, key: bytes, began: int, time: float) -> None:
        self.key = key
        self.began = began  # the number of the last purge before it
        self.time = time
        self.reserved = 0
        self.live = True
        self.fetch: FetchLease | None = None
        self.waited = False  # for another node's fetch, in vain if the store has no answer then
        self.spared = _NOTHING_SPARED  # purges that do not concern it
        # The last purge that was found not to concern it, and what was known of its response by then.
        self.compared = began
        self.known: tuple[object, ...] | None = None


class Leases:
    """The live leases, and what is reserved under them, up to `limit` bytes; purges are in the `log`."""

    def __init__(self, limit: int, log: PurgeLog) -> None:
        self.reserved = 0
        self.limit = limit
        self.log: Final = log
        # How many leases are live, by the number at which they began.
        self._live: dict[int, int] = {}

    def begin(self, key: bytes, now: float, since: int | None = None) -> Lease:
        """A new lease; a purge `since` that number concerns it, too."""
        began = self.log.number if since is None else since
        self._live[began] = self._live.get(began, 0) + 1
        return Lease(key, began, now)

    def begin_anew(self, lease: Lease, now: float) -> None:
        """Begin a lease once more: no purge until now means what is not fetched yet."""
        self.release(lease)
        again = self.begin(lease.key, now)
        lease.began, lease.time, lease.live = again.began, now, True
        lease.spared, lease.compared, lease.known = again.spared, again.compared, None

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
        if self.log.kept:
            self.log.trim(self.oldest())

    def oldest(self) -> int:
        """The number at which the oldest lease began, but for a late one, which then does not hold."""
        return next(iter(self._live), self.log.number)

    def holds(self, lease: Lease, stored: Stored | None = None) -> bool:
        """Tell whether no purge since the lease began concerns the response that came or may come.

        Each purge is tested once. Where there are too many patterns for one call, the lease does not hold,
        until another call has tested the rest: to fetch a response again is less work.
        """
        if not lease.live or lease.began < self.log.forgotten:
            return False
        if self.log.number == lease.began:
            return True
        known: tuple[object, ...] | None = None
        if stored is not None:
            known = stored.key, stored.tags, stored.search, stored.vary, stored.response_time
        if known != lease.known:
            lease.known, lease.compared = known, lease.began
        steps = _STEPS
        for purge in self.log.since(lease.compared):
            if purge.number not in lease.spared:
                if steps <= 0 or concerns(purge.selector, lease.key, stored):
                    return False
                steps -= purge.selector.effort(lease.key, 1)
            lease.compared = purge.number
        return True


def concerns(selector: LocalSelector, key: bytes, stored: Stored | None) -> bool:
    """Tell whether a purge is about the response that came under a lease of this key, or may come."""
    if stored is None:
        return selector.may_mean(key)
    return selector.means(stored) or (key != stored.key and selector.means(stored, key))


@dataclass(slots=True)
class _Last:
    """The last hard and the last soft purge of a name: numbers, the latest receipt meant, and a time."""

    hard: int = 0
    hard_until: float = 0.0
    soft: int = 0
    soft_until: float = 0.0
    time: float = 0.0


class Journal:
    """The purges up to `last`: of each purged name the last number, and the patterns, which are `listed`.

    With `lists_all` it keeps no names, but lists every purge: for a memory that tests each of its entries
    against each purge once, and counts what that meant. Equal purges are listed once, the newest last.

    Bounded: what is dropped raises the `horizon`. A response stored before that counts as purged.
    """

    def __init__(self, horizon: int = 0, limit: int = _NAMES, *, lists_all: bool = False) -> None:
        self.listed: list[Purge] = []
        self._lists_all: Final = lists_all
        self.horizon = self.last = horizon
        self.trimmed = 0
        self.noted = 0  # purged names, each counted at each purge
        self._limit = limit
        self._octets = 0
        self._named: OrderedDict[bytes, _Last] = OrderedDict()  # the last to be purged at the end
        self._lengths: dict[int, int] = {}  # of the prefixes, and how many have it
        self._all = _Last()  # soft purges of everything

    def add(self, purge: Purge) -> None:
        """Take in the next purge; its number is greater than `last`."""
        if purge.number <= self.last:
            raise ValueError(f"purge {purge.number} comes after {self.last}")
        self.last = purge.number
        selector = purge.selector
        if self._lists_all or selector.by_search:
            self.listed = [each for each in self.listed if each.selector != selector]
            self.listed.append(purge)
            if len(self.listed) > MOST_LISTED:
                self._rise(self.listed.pop(0).number)
        elif not selector.means_all:
            self._note(selector, purge)
        elif selector.soft:
            self._all.soft, self._all.time = purge.number, purge.time
        else:
            self.forget(purge.number)

    def forget(self, horizon: int) -> None:
        """Know nothing of purges up to a number: what was stored before it counts as purged."""
        self._rise(horizon)
        self.last = max(self.last, horizon)
        self._named.clear()
        self._lengths.clear()
        self.listed.clear()
        self._octets, self._all = 0, _Last()

    def trim(self, first: int, lost: int) -> None:
        """Forget the purges up to `first`: those up to `lost` count as if they meant everything.

        The others have been carried out on all that was stored by then, which may be read no more.
        """
        self._rise(lost)
        if first <= self.trimmed:
            return
        self.trimmed = first
        self.last = max(self.last, first)
        while self._named:
            name, last = next(iter(self._named.items()))
            if max(last.hard, last.soft) > first:
                break
            self._forget_name(name)
        del self.listed[: self._place(first)]
        if self._all.soft <= first:
            self._all = _Last()

    def surviving(self, number: int, stored: Stored) -> Stored | None:
        """The response as the purges after this number leave it: itself, the same but stale, or None."""
        if number < self.horizon:
            return None
        if number >= self.last:
            return stored
        soft, since = self._all.soft > number, self._all.time
        for name in self._names(stored):
            last = self._named.get(name)
            if last is None:
                continue
            if last.hard > number and stored.response_time <= last.hard_until:
                return None
            if last.soft > number and stored.response_time <= last.soft_until:
                soft, since = True, max(since, last.time)
        for time, pattern in self._found(number, stored.key):
            if not pattern.soft:
                return None
            soft, since = True, max(since, time)
        return softened(stored, since) if soft else stored

    def covered(self, selector: LocalSelector) -> int:
        """The number up to which a purge removed all that a selector means; it may be greater."""
        names = selector.names()
        if not names or selector.received < inf:
            return self.horizon
        lasts = [self._named.get(name) for name in names]
        return max(self.horizon, min(0 if last is None else last.hard for last in lasts))

    # Listed purges

    def admits(self, selector: LocalSelector) -> bool:
        """True if there is room for a listed purge without another being lost."""
        return len(self.listed) < MOST_LISTED or any(each.selector == selector for each in self.listed)

    def between(self, after: int, last: int) -> list[Purge]:
        """The listed purges after a number, up to another."""
        return self.listed[self._place(after) : self._place(last)]

    def _place(self, number: int) -> int:
        """The count of listed purges up to that number."""
        return bisect_right(self.listed, number, key=attrgetter("number"))

    # Names

    def _note(self, selector: LocalSelector, purge: Purge) -> None:
        until = selector.received
        for name in selector.names():
            self.noted += 1
            last = self._named.get(name)
            if last is None:
                last = self._named[name] = _Last()
                self._octets += _NAME_COST + len(name)
                if name[:1] == b"p":
                    self._lengths[len(name) - 1] = self._lengths.get(len(name) - 1, 0) + 1
            else:
                self._named.move_to_end(name)
            if selector.soft:
                last.soft, last.time = purge.number, purge.time
                last.soft_until = max(last.soft_until, until)
            else:
                last.hard, last.hard_until = purge.number, max(last.hard_until, until)
        while self._octets > self._limit:
            # The first was not purged for the longest time.
            name, last = next(iter(self._named.items()))
            self._rise(max(last.hard, last.soft))
            self._forget_name(name)

    def _forget_name(self, name: bytes) -> None:
        del self._named[name]
        self._octets -= _NAME_COST + len(name)
        if name[:1] == b"p":
            length = len(name) - 1
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]

    def _rise(self, horizon: int) -> None:
        self.horizon = max(self.horizon, horizon)

    def _names(self, stored: Stored) -> Iterator[bytes]:
        """The names by which a purge can mean a response."""
        key = stored.key
        yield b"k" + key
        yield variant_name(key, stored.vary)
        if stored.search is not None:
            yield b"n" + split_key(key)[0]
        located_key = located(key)
        if stored.tags:
            origin = b" ".join(located_key.split(b" ", 2)[:2])
            for tag in stored.tags:
                yield b"t\0" + tag
                yield b"t%b\0%b" % (origin, tag)
        for length in self._lengths:
            yield b"p" + located_key[:length]

    def _found(self, number: int, key: bytes) -> Iterator[tuple[float, LocalSelector]]:
        """The patterns after a number that the URL of a key has; where that takes too long, all the rest."""
        steps = _READING_STEPS
        for purge in self.between(number, self.last) if self.listed else ():
            steps -= purge.selector.effort(key, 1)
            if steps < 0 or purge.selector.may_mean(key):
                yield purge.time, purge.selector
