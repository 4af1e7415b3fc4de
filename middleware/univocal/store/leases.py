"""Purges of one memory, in order, and leases.

Each lease is the right to store what is being fetched, unless a purge concerns it meanwhile. Each loan is
content that a slow client is still being sent, while the store may have let go of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from univocal.cache.stored import Stored
from univocal.http.compiling import mypyc_attr
from univocal.store.purge_selectors import LocalSelector, Purge, Selector


class Loan:
    """One client's part in content that is held for it; `recall` takes it back early."""

    __slots__ = ("_content", "recall")

    def __init__(self, content: bytes, recall: Callable[[], None]) -> None:
        self._content = content
        self.recall = recall

    @property
    def number(self) -> int:
        """The content's own number: it lives as long as this does."""
        return id(self._content)


class _Lent:
    """Content that is lent, and to whom; `kept` while the store has it, too."""

    __slots__ = ("kept", "loans", "octets")

    def __init__(self, octets: int, *, kept: bool) -> None:
        self.octets = octets
        self.kept = kept
        self.loans: dict[Loan, None] = {}


class Loans:
    """Every loan. Of what the store does not have itself, at most so many bytes are lent.

    Beyond that, the content that was not read from for the longest time is recalled.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lent: OrderedDict[int, _Lent] = OrderedDict()  # the last to be taken from at the end
        self.outside = 0  # bytes that are held for clients alone

    def lend(self, content: bytes, recall: Callable[[], None], *, kept: bool) -> Loan:
        """Lend content, of which the store itself has a reference if `kept`."""
        loan = Loan(content, recall)
        lent = self.lent.get(loan.number)
        if lent is None:
            lent = self.lent[loan.number] = _Lent(len(content), kept=kept)
            self.outside += 0 if kept else lent.octets
        lent.loans[loan] = None
        self.taken(loan)
        return loan

    def taken(self, loan: Loan) -> None:
        """Record that a reader has taken a part of the lent content."""
        if loan.number in self.lent:
            self.lent.move_to_end(loan.number)

    def give_back(self, loan: Loan) -> None:
        """End a loan; a second time does nothing."""
        lent = self.lent.get(loan.number)
        if lent is None or loan not in lent.loans:
            return
        del lent.loans[loan]
        if not lent.loans:
            del self.lent[loan.number]
            self.outside -= 0 if lent.kept else lent.octets

    def keep(self, content: bytes, *, kept: bool) -> None:
        """Record that the store keeps the content from now on, or keeps it no longer."""
        lent = self.lent.get(id(content))
        if lent is not None and lent.kept is not kept:
            lent.kept = kept
            self.outside += -lent.octets if kept else lent.octets

    def trim(self, room: int | None = None) -> None:
        """Recall what is too much, or more than there is room for."""
        most = self.most if room is None else min(self.most, room)
        while self.outside > most:
            number = next((number for number, lent in self.lent.items() if not lent.kept), None)
            if number is None:
                return
            for loan in tuple(self.lent[number].loans):
                self.give_back(loan)
                loan.recall()


# Bytes that the purges since the oldest lease take; a lease older than what was dropped cannot commit.
_LIMIT: Final = 4 << 20
# Purges that are kept though no lease needs them: a lease may begin late, with the number of an earlier one.
_RECENT: Final = 64
# Steps (see purge_selectors.py) that the question whether a lease still holds may take: 4 ms.
_STEPS: Final = 500_000
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

    __slots__ = ("has_lock", "holder", "kept", "key", "owed", "seen", "token")

    def __init__(self, key: bytes, token: bytes) -> None:
        self.key = key
        self.token = token
        self.has_lock = False
        self.holder = b""  # the token of the fetch that has the lock instead, if another has
        self.seen: Sequence[Numbered] = ()  # the store's responses of this key, as they were read
        self.owed: list[Stored | Selector] = []  # what the store hears at its end
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
        self.passed = began
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
        lease.spared, lease.passed, lease.known = again.spared, again.passed, None

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
            lease.known, lease.passed = known, lease.began
        steps = _STEPS
        for purge in self.log.since(lease.passed):
            if purge.number not in lease.spared:
                if steps <= 0 or concerns(purge.selector, lease.key, stored):
                    return False
                steps -= purge.selector.effort(lease.key, 1)
            lease.passed = purge.number
        return True


def concerns(selector: LocalSelector, key: bytes, stored: Stored | None) -> bool:
    """Tell whether a purge is about the response that came under a lease of this key, or may come."""
    if stored is None:
        return selector.may_mean(key)
    return selector.means(stored) or (key != stored.key and selector.means(stored, key))
