"""The memory store: synchronous, bounded by what responses really cost, O(1) per hit.

It evicts in constant time by SIEVE (Zhang et al., NSDI 2024), in which a hit moves nothing. Loans are content
that slow clients are still being sent, while the store may have let go of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from typing import Final, SupportsIndex

from univocal.cache.directives import NoVarySearch, split_key
from univocal.cache.stored import Stored, cost_of, softened
from univocal.http.errors import ConfigurationError
from univocal.store.leases import Journal, Lease, Leases, PurgeLog
from univocal.store.purge_selectors import LocalSelector

logger: Final = logging.getLogger("univocal")

# The requests of so many keys at most are not collapsed.
_MOST_UNCOLLAPSED: Final = 10_000
# CPython keeps most of what small objects took for other small ones. So the most that they ever cost counts
# beside the content that came after them: both together are at most this often `max_bytes`, and what is
# resident is less (benchmarks/memory.py).
_HELD: Final = 1.5
# Steps (see purge_selectors.py) that an entry costs a sweep which has met all bans; that a sweep may take, at
# most 4 ms; that each commit sweeps along, so that bans are forgotten some time; and that a lookup may take.
_VISIT: Final = 20
_SLICE: Final = 500_000
_COMMITTED: Final = 25_000
_LOOKED_UP: Final = 4_000_000
# How many bans one walk through all entries is for: the less, the sooner there is room for another.
_TOGETHER: Final = 8
_NOTHING: Final = frozenset[bytes]()
# Entries, and tags of theirs, that one slice of a purge looks at: 3 ms where all of them go.
_PURGED: Final = 400
# Bytes that are stored at most where the system has given no more.
_LEAST: Final = 1 << 20
# The part of a key's variants that may be waiting for their first use.
_UNTRIED: Final = 1 / 4
# Responses of one key, where nothing else is said.
MOST_VARIANTS: Final = 64
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
    """Content that is lent, to whom, and when it was `taken` from; `kept` while the store has it, too."""

    __slots__ = ("kept", "loans", "octets", "taken")

    def __init__(self, octets: int) -> None:
        self.octets = octets
        self.kept = True
        self.taken = 0
        self.loans: dict[Loan, None] = {}


class Loans:
    """Every loan. Of what the store does not have itself, at most so many bytes are lent.

    Beyond that, the content that was not read from for the longest time is recalled.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lent: dict[int, _Lent] = {}
        self._moments: Final = count(1)
        # A heap of what the store does not have: when it was taken from, then or later, and its number.
        self._queue: list[tuple[int, int]] = []
        self.outside = 0  # bytes that are held for clients alone

    def lend(self, content: bytes, recall: Callable[[], None], *, kept: bool) -> Loan:
        """Lend content, of which the store itself has a reference if `kept`."""
        loan = Loan(content, recall)
        lent = self.lent.get(loan.number)
        if lent is None:
            lent = self.lent[loan.number] = _Lent(len(content))
            self.keep(content, kept=kept)
        lent.loans[loan] = None
        self.taken(loan)
        return loan

    def taken(self, loan: Loan) -> None:
        """Record that a reader has taken a part of the lent content."""
        lent = self.lent.get(loan.number)
        if lent is not None:
            lent.taken = next(self._moments)

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
            if not kept:
                heappush(self._queue, (lent.taken, id(content)))
            if len(self._queue) > 2 * len(self.lent):  # of which many are given back, or kept again
                self._queue = sorted((one.taken, each) for each, one in self.lent.items() if not one.kept)

    def trim(self, room: int | None = None) -> None:
        """Recall what is too much, or more than there is room for."""
        most = self.most if room is None else min(self.most, room)
        while self.outside > most and self._queue:
            taken, number = heappop(self._queue)
            lent = self.lent.get(number)
            if lent is None or lent.kept:
                continue
            if lent.taken > taken:
                heappush(self._queue, (lent.taken, number))
                continue
            for loan in tuple(lent.loans):
                self.give_back(loan)
                loan.recall()


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The numbers of keys, responses, bytes, bytes of content under way, evictions and live bans.

    `lent` are bytes that are held for slow clients alone.
    """

    entries: int
    responses: int
    bytes: int
    reserved: int
    evictions: int
    bans: int
    lent: int


def _bound(name: str, value: object) -> int:
    """A bound of the store. Raises ConfigurationError if it is no positive integer."""
    if type(value) is not int or value < 1:
        raise ConfigurationError("MemoryStore", name, value, "an integer, more than 0")
    return value


class MemoryStore:
    """Stored responses by key: `max_bytes` in all, `max_object_bytes` and `max_variants` of each key at most.

    With `is_part`, a store behind it keeps the responses that are too large for this one. Raises
    ConfigurationError for invalid bounds.
    """

    def __init__(
        self,
        max_bytes: SupportsIndex = 256 << 20,
        max_object_bytes: SupportsIndex = 16 << 20,
        max_variants: SupportsIndex = MOST_VARIANTS,
        *,
        is_part: bool = False,
    ) -> None:
        # Were these of the type int, compiled code would raise a TypeError that names no setting.
        self.max_bytes = _bound("max_bytes", max_bytes)
        self._is_part = self._may_be_part = is_part
        self.max_object_bytes = self._most_of_one(
            self.max_bytes, _bound("max_object_bytes", max_object_bytes)
        )
        self.max_variants = _bound("max_variants", max_variants)
        # Content under way is not evicted, nor is that which slow clients are being sent: stored responses
        # give way to them, each within its share.
        share = max(self.max_bytes // 4, self.max_object_bytes)
        self._log = PurgeLog()
        self._bans = Journal(lists_all=True)  # purges that some entry has not been tested against yet
        self._meant: dict[int, int] = {}  # how many responses each purge has meant that is being carried out
        self.leases, self.loans = Leases(share, self._log), Loans(share)
        self._entries: dict[bytes, Entry] = {}
        self._sieve, self._ghosts = Sieve(), Ghosts()
        self._index = Index()
        self._round = 0  # the number of the ban up to which the sweep under way tests
        self._bytes = self._responses = self._evictions = 0
        self.version = 0  # it changes with whatever a lookup may find
        self.shortages = 0  # how many times memory has run out
        self._small = self._most_small = 0  # bytes in small objects: now, and at most so far
        self._uncollapsed: OrderedDict[int, float] = OrderedDict()  # until when, in seconds since the epoch

    @property
    def stats(self) -> MemoryStats:
        """The current numbers."""
        return MemoryStats(
            len(self._entries),
            self._responses,
            self._bytes,
            self.leases.reserved,
            self._evictions,
            len(self._bans.listed),
            self.loans.outside,
        )

    def lookup(self, key: bytes) -> Sequence[Stored]:
        """The stored responses of a key, newest first."""
        entry = self._entries.get(key)
        held = () if entry is None else self.revisit(entry)
        return self._lookup_alike(key) if not held and self._index.paths else held

    def entry(self, key: bytes) -> Entry:
        """The entry of a key, for `revisit`; `NO_ENTRY` if it has none."""
        return self._entries.get(key, NO_ENTRY)

    def may_hold(self, key: bytes) -> bool:
        """Tell whether a lookup of a key may find something."""
        return key in self._entries or (
            bool(self._index.paths) and next(self._index.alike(key), None) is not None
        )

    def revisit(self, entry: Entry) -> Sequence[Stored]:
        """The stored responses of an entry, newest first; none once it has left the store, for good."""
        if entry.variants and (entry.tested == self._bans.last or self._met(entry) is not None):
            entry.visited = True
        return entry.variants

    def _lookup_alike(self, key: bytes) -> Sequence[Stored]:
        """The stored responses of another key that No-Vary-Search makes the same."""
        for other, variance in list(self._index.alike(key)):
            entry = self._entries.get(other)
            if entry is not None and (entry := self._met(entry)) is not None:
                entry.visited = True
                return tuple(stored for stored in entry.variants if stored.search == variance)
        return ()

    def _most_of_one(self, max_bytes: int, max_object_bytes: int) -> int:
        return max_object_bytes if self._is_part else min(max_object_bytes, max_bytes)

    def fits(self, stored: Stored) -> bool:
        """Tell whether a response is small enough to be kept here."""
        return stored.cost <= min(self.max_object_bytes, self.max_bytes)

    def is_worth_keeping(self, variants: Sequence[Stored]) -> bool:
        """Tell whether the variants of a key that another store has are better kept here, too.

        Those that are read once displace none that is hit. The key is noted: a read soon after keeps them.
        """
        costs = [one.cost for one in variants if self.fits(one)]
        if not costs:
            return False  # nor is it a ghost: it would displace those of responses that fit
        largest, most = max(costs), self.max_bytes
        cost = min(sum(costs), max(most // 2, largest))  # see `_insert`
        return self._room(most) >= cost or self._ghosts.returns(variants[0].key, cost, most)

    async def resize(self, max_bytes: int, max_object_bytes: int) -> None:
        """Change the bounds; excess responses are evicted in slices, between which others are served."""
        self._is_part = self._may_be_part
        least = self._most_of_one(max_bytes, max_object_bytes)
        share = max(max_bytes // 4, least)
        self.leases.limit, self.loans.most, self.max_object_bytes = share, share, least
        self._most_small = self._small
        while (lacks := -self._room(max_bytes)) > 0 and self._evicted_to(self._bytes - lacks, _PURGED):
            # Else a commit evicts all of it at once, and small objects count by what they were at most.
            self._most_small = self._small
            self.max_bytes = max_bytes + max(0, -self._room(max_bytes))
            await asyncio.sleep(0)
        self.max_bytes, self._most_small, self._is_part = max_bytes, self._small, self._may_be_part

    def relieve(self) -> None:
        """Drop half of what is stored, and keep no more from now on: the system gives no more memory.

        Nor is anything kept of the content under way.
        """
        self.shortages += 1
        responses, most, half = self._responses, self.max_bytes, self._bytes // 2
        while self._evicted_to(half, _PURGED):
            pass
        self._most_small = self._small
        # Content under way counts, too, which a store behind this one takes otherwise.
        self._is_part = False
        self.max_bytes = min(max(half + self.leases.reserved // 2, _LEAST), most)
        if responses > self._responses or self.max_bytes < most:
            logger.warning(
                "memory has run out: %d stored responses are dropped. At most %d MiB are stored until "
                "`max_bytes` is applied again by a reload",
                responses - self._responses,
                self.max_bytes >> 20,
            )

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self, lease: Lease, nbytes: int, *, unread: bool = False) -> bool:
        """Set `nbytes` more aside for content under way; False if it is too large or there is no room now.

        Content that is `unread`, since it comes ahead of its readers, may have half of what all may.
        """
        leases = self.leases
        under_way = leases.reserved + self.loans.outside + nbytes
        if under_way > self.max_bytes and nbytes > 0 and not self._is_part:
            return False
        total, limit = lease.reserved + nbytes, leases.limit // 2 if unread else leases.limit
        if not lease.live or total > self.max_object_bytes or leases.reserved + nbytes > limit:
            return False
        lease.reserved = total
        leases.reserved += nbytes
        if nbytes > 0 and self._bytes + under_way > self.max_bytes:
            self._make_room(NO_ENTRY)
            if not self._is_part and leases.reserved + self.loans.outside > self.max_bytes:
                # Clients are still sent what was evicted. None is cut for what others may ask for.
                lease.reserved -= nbytes
                leases.reserved -= nbytes
                return False
            self._trim()
        return True

    def commit(self, lease: Lease, stored: Stored) -> bool:
        """Store a response; False if it was purged since the lease began, is too large or may not be kept."""
        if not self.leases.holds(lease, stored):
            return False
        if not stored.reusable or not self.fits(stored):
            return False
        if (stored.part is not None or stored.bodiless) and self._holds_better(stored):
            return False
        if stored.search is not None and not self._index.admits(stored):
            return False
        self.leases.reserved -= lease.reserved  # what was set aside for it counts as stored from now on
        lease.reserved = 0
        self._insert(stored)
        if self.loans.outside:
            self._trim()
        if self._bans.listed:
            self.sweep(_COMMITTED)
        if self._uncollapsed:
            self.collapse_again(stored.key)
        return True

    def _holds_better(self, stored: Stored) -> bool:
        """Tell whether this part, or answer to a HEAD, would displace a whole response that is fresh."""
        same = (old for old in self._variants(stored.key) if old.vary == stored.vary and old.whole)
        return any(old.fresh_until > stored.response_time for old in same)

    # ── forms ─────────────────────────────────────────────────────────────────────────────────────────────

    def keep_form(self, stored: Stored, coding: bytes, form: Stored | None) -> bool:
        """Keep a form of a stored response, or the news that there is none; False if there is no room."""
        entry, forms = self._entries.get(stored.key), stored.forms
        if forms is None or entry is None or not any(one is stored for one in entry.variants):
            return False
        if form is not None:
            held = stored.cost + sum(each.cost for each in forms.coded.values() if each is not None)
            too_large = held + form.cost > self.max_object_bytes
            if too_large or entry.cost + form.cost > self.max_bytes // 2:
                return False
            self._count(entry, form, 1)
        forms.coded[coding] = form
        self._make_room(entry)
        self._most_small = max(self._most_small, self._small)
        return True

    def _count(self, entry: Entry, form: Stored, times: int) -> None:
        entry.cost += times * form.cost
        self._bytes += times * form.cost
        self._small += times * form.small
        self.loans.keep(form.body, kept=times > 0)

    # ── loans ─────────────────────────────────────────────────────────────────────────────────────────────

    def lend(self, key: bytes, content: bytes, recall: Callable[[], None]) -> Loan:
        """Lend content of a response of this key to a client; `recall` tells the client that it gets no more.

        That is said when what is lent and no longer stored is too much, to who has stood longest.
        """
        kept = any(_holds(one, content) for one in self._variants(key))
        loan = self.loans.lend(content, recall, kept=kept)
        if not kept:
            self._make_room(NO_ENTRY)
            self._trim()
        return loan

    def _trim(self) -> None:
        """Recall what slow clients hold beyond their share."""
        self.loans.trim(None if self._is_part else self.max_bytes - self.leases.reserved)

    # ── purges ──────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, selector: LocalSelector, now: float, *, sparing: Lease | None = None) -> int:
        """Remove the selected responses, or mark them stale, and let none of those under way be stored.

        The number of stored responses that were meant; 0 for a pattern, which only becomes a ban. The lease
        `sparing` may still commit: what it fetches is newer than what the purge is about (a POST that
        invalidates its target and brings its new state).
        """
        return sum(self.purging(selector, now, sparing=sparing))

    def purging(self, selector: LocalSelector, now: float, *, sparing: Lease | None = None) -> Iterator[int]:
        """Purge in slices of a few milliseconds; the numbers of stored responses that each of them meant.

        From the first slice on nothing that is meant is served or comes to be stored; the others remove it.
        """
        self.version += 1
        purge = self._log.add(selector, now, self.leases.oldest())
        if sparing is not None:
            sparing.spared |= {purge.number}
        few = self._few(selector)
        if few is not None:
            yield sum([self._remove(entry, selector, now) for entry in few])
            return
        if selector.by_search:
            self.sweep()
            self._bans.add(purge)
            return
        self._bans.add(purge)
        counted, self._meant[purge.number] = 0, 0
        try:
            with self._sieve.through() as walk:
                while walk.at is not None:
                    for entry in _some(walk):
                        if entry.tested < purge.number:
                            self._met(entry)
                    meant = self._meant[purge.number]
                    yield meant - counted
                    counted = meant
            self._bans.trim(purge.number, 0)
            if (meant := self._meant[purge.number]) > counted:
                yield meant - counted  # met by lookups meanwhile
        finally:
            del self._meant[purge.number]

    def counting(self, selector: LocalSelector) -> Iterator[int]:
        """Count in slices what `purging` would mean, and remove nothing."""
        few = self._few(selector)
        if few is not None:
            yield sum(len(selector.meant(entry.key, entry.variants)) for entry in few)
            return
        with self._sieve.through() as walk:
            while walk.at is not None:
                yield sum(len(selector.meant(entry.key, entry.variants)) for entry in _some(walk))

    def least(self, selector: LocalSelector) -> int:
        """The responses that a purge means at least, those counted that a purge is just removing."""
        if selector.means_all:
            return self._responses
        return max((self._index.count((tag,)) for tag in selector.tags() or ()), default=0)

    def _remove(self, entry: Entry, selector: LocalSelector, now: float) -> int:
        """Remove or soften what a selector means of one entry; returns the number of those responses."""
        selected = selector.meant(entry.key, entry.variants)
        if selector.soft:
            self.version += 1
            entry.variants = tuple(_aged(one, now) if one in selected else one for one in entry.variants)
        else:
            self._drop(entry.key, selected)
        return len(selected)

    def _few(self, selector: LocalSelector) -> list[Entry] | None:
        """The entries that a selector may mean; None where that may be many, or can be any."""
        named = selector.keys()
        if named is not None:
            keys = set(named)
            if self._index.paths:
                keys.update([other for key in named for other, _ in self._index.alike(key)])
        elif (tags := selector.tags()) is not None and self._index.count(tags) <= _PURGED:
            keys = self._index.tagged(tags)
        else:
            return None
        return [entry for key in keys if (entry := self._entries.get(key)) is not None]

    # ── bans ──────────────────────────────────────────────────────────────────────────────────────────────

    def has_room(self, selector: LocalSelector) -> bool:
        """True if a ban needs no sweep before it and removes only the responses that it means."""
        return self._bans.admits(selector)

    def sweep(self, steps: int = _SLICE) -> None:
        """Test entries against the oldest bans for so many steps; forget the bans that all have met."""
        bans = self._bans
        while steps > 0 and bans.listed:
            entry = self._sieve.walked
            steps -= _VISIT
            if entry is None:
                bans.trim(self._round, 0)
                if bans.listed:
                    self._round = bans.listed[:_TOGETHER][-1].number
                    self._sieve.walk()
                continue
            steps = self._test(entry, self._round, steps)
            if entry is self._sieve.walked and entry.tested >= self._round:
                self._sieve.walked = entry.newer

    def _met(self, entry: Entry) -> Entry | None:
        """The entry, without the responses that a ban new to it means; None if nothing is left."""
        self._test(entry, self._bans.last, _LOOKED_UP)
        if entry.tested != self._bans.last:
            self._drop(entry.key, entry.variants)  # to fetch it again is less work
        return entry if entry.variants else None

    def _test(self, entry: Entry, last: int, steps: int) -> int:
        """Test an entry against the bans up to a number that are new to it; returns the steps left."""
        if entry.tested < self._bans.horizon:
            self._drop(entry.key, entry.variants)
            return steps
        if entry.tested >= last:
            return steps
        for ban in self._bans.between(entry.tested, last):
            entry.tested = ban.number
            steps -= ban.selector.effort(entry.key, len(entry.variants))
            meant = self._remove(entry, ban.selector, ban.time)
            if ban.number in self._meant:
                self._meant[ban.number] += meant
            if not entry.variants:
                break
            if steps <= 0:
                return steps
        entry.tested = last
        return steps

    # ── collapsing ──────────────────────────────────────────────────────────────────────────────────────────

    def stop_collapsing(self, key: bytes, until: float, odd: frozenset[bytes] = _NOTHING) -> None:
        """Have requests with this key and these oddities wait for no other: one's answer served no other."""
        # The hash alone is kept: a collision only makes two keys' requests not wait.
        marked = hash((key, odd))
        self._uncollapsed[marked] = until
        self._uncollapsed.move_to_end(marked)
        while len(self._uncollapsed) > _MOST_UNCOLLAPSED:
            self._uncollapsed.popitem(last=False)

    def collapse_again(self, key: bytes, odd: frozenset[bytes] = _NOTHING) -> None:
        """Record that a response to such a request could be stored."""
        self._uncollapsed.pop(hash((key, odd)), None)

    def collapse_all(self) -> None:
        """Have requests with the same key wait for one another, whatever was answered before."""
        self._uncollapsed.clear()

    def is_uncollapsed(self, key: bytes, now: float, odd: frozenset[bytes] = _NOTHING) -> bool:
        """Tell whether such a request waits for no other: where ordinary ones do not, nor do odd ones."""
        if not self._uncollapsed:
            return False
        if odd and self._uncollapsed.get(hash((key, odd)), 0.0) > now:
            return True
        return self._uncollapsed.get(hash((key, _NOTHING)), 0.0) > now

    # ── entries ─────────────────────────────────────────────────────────────────────────────────────────────

    def _variants(self, key: bytes) -> tuple[Stored, ...]:
        entry = self._entries.get(key)
        return entry.variants if entry is not None else ()

    def _insert(self, stored: Stored) -> None:
        self.version += 1
        entry = self._entries.get(stored.key)
        if entry is not None:
            entry = self._met(entry)  # what is new has nothing to do with the bans that others have not met
        for old in entry.variants if entry is not None else ():
            if entry is not None and old.vary == stored.vary:
                stored.used = max(stored.used, old.used)
                self._forget(entry, old)
        if entry is None:
            entry = self._entries[stored.key] = Entry(stored.key, self._bans.last)
            self._sieve.add(entry)
        # One key never takes more than half of the store.
        while entry.variants and (
            len(entry.variants) >= self.max_variants or entry.cost + stored.cost > self.max_bytes // 2
        ):
            self._forget(entry, least_used(entry.variants))
        entry.variants = (stored, *entry.variants)
        entry.cost += stored.cost
        self._bytes += stored.cost
        if not stored.small:  # it was read from another store
            _, stored.small = cost_of(stored)
        self._small += stored.small
        self._responses += 1
        if self.loans.lent:
            self.loans.keep(stored.body, kept=True)
        stored.key = entry.key  # equal bytes are kept once
        if stored.tags or stored.search is not None:
            other = self._index.add(entry, stored)
            if other is not None:
                self._drop(other, [old for old in self._variants(other) if old.search == stored.search])
        if self._room(self.max_bytes) < 0:
            self._make_room(entry)
        self._most_small = max(self._most_small, self._small)

    def _make_room(self, spared: Entry) -> None:
        """Evict until all fits, or nothing else is left."""
        while self._room(self.max_bytes) < 0:
            victim = self._sieve.victim()
            if victim is None or (victim is spared and victim.newer is victim.older is None):
                return  # what is lacking is not in what is stored
            if victim is spared:
                victim.visited = True
                continue
            self._evictions += len(victim.variants)
            self._drop(victim.key, victim.variants)

    def _room(self, max_bytes: int) -> int:
        """The bytes for which there is room within so many; less than 0: those that are too many.

        Beside what is stored count what is being recorded and what is held for slow clients alone, each up to
        its share: a reload may leave more of it. Small objects count as at their most.
        """
        beside = 0
        if not self._is_part:
            beside = min(self.leases.reserved, self.leases.limit) + min(self.loans.outside, self.loans.most)
        held = self._bytes + max(0, self._most_small - self._small)
        return min(max_bytes - self._bytes - beside, int(_HELD * max_bytes) - held)

    def _evicted_to(self, octets: int, most: int) -> bool:
        """Drop so many entries at most, until these bytes or fewer are left; False once they are."""
        for _ in range(most):
            victim = self._sieve.victim() if self._bytes > octets else None
            if victim is None:
                return False
            self._evictions += len(victim.variants)
            self._drop(victim.key, victim.variants)
        return True

    def _drop(self, key: bytes, dropped: Sequence[Stored]) -> None:
        """Remove stored responses of one key, and the entry with the last of them."""
        entry = self._entries.get(key)
        if entry is None:
            return
        for stored in dropped:
            self._forget(entry, stored)
        if not entry.variants:
            del self._entries[key]
            self._sieve.remove(entry)

    def _forget(self, entry: Entry, stored: Stored) -> None:
        """Take one stored response out of its entry and out of every index."""
        self.version += 1
        entry.variants = tuple([one for one in entry.variants if one is not stored])
        entry.cost -= stored.cost
        self._bytes -= stored.cost
        self._small -= stored.small
        self._responses -= 1
        if self.loans.lent:
            self.loans.keep(stored.body, kept=False)
        if stored.forms is not None and stored.forms.coded:
            for form in stored.forms.coded.values():
                if form is not None:
                    self._count(entry, form, -1)
            stored.forms = None
        if stored.tags or stored.search is not None:
            self._index.remove(entry, stored)


async def in_slices(slices: Iterable[int]) -> int:
    """Go through all slices of a purge or a count; the event loop goes on meanwhile. Returns their sum."""
    count = 0
    for selected in slices:
        count += selected
        await asyncio.sleep(0)
    return count


def _holds(stored: Stored, content: bytes) -> bool:
    """Tell whether this is the content of a stored response, or of a form of it."""
    if stored.body is content or stored.forms is None:
        return stored.body is content
    return any(form is not None and form.body is content for form in stored.forms.coded.values())


def _aged(stored: Stored, now: float) -> Stored:
    """The same response, stale from now on, with the forms and the small objects that are counted for it."""
    stale = softened(stored, now)
    stale.forms, stale.small = stored.forms, stored.small
    return stale


def _some(walk: Walk) -> Iterator[Entry]:
    """The next entries of a walk, as many as one slice looks at."""
    steps = _PURGED
    while steps > 0 and (entry := walk.at) is not None:
        walk.at = entry.older
        steps -= 1 + sum(len(one.tags) for one in entry.variants)
        yield entry


# How many variances one path may have: each costs every lookup on that path a look.
MOST_VARIANCES: Final = 16


class Index:
    """The keys of stored responses by their tags, and those that stand for others by No-Vary-Search.

    The `paths` have keys by path, variance, and a digest of the query that the variance leaves.
    """

    __slots__ = ("_tagged", "paths")

    def __init__(self) -> None:
        self._tagged: dict[bytes, set[bytes]] = {}
        self.paths: Final[dict[bytes, dict[NoVarySearch, dict[bytes, bytes]]]] = {}

    def admits(self, stored: Stored) -> bool:
        """Tell whether there is room for a response of this variance."""
        variances = self.paths.get(split_key(stored.key)[0], {})
        return stored.search is None or stored.search in variances or len(variances) < MOST_VARIANCES

    def alike(self, key: bytes) -> Iterator[tuple[bytes, NoVarySearch]]:
        """The keys that stand for this one, each with the variance by which it does."""
        path, query = split_key(key)
        for variance, keys in self.paths.get(path, {}).items():
            other = keys.get(_digest(variance, query))
            if other is not None:
                yield other, variance

    def tagged(self, tags: Iterable[bytes]) -> set[bytes]:
        """The keys of responses with one of these tags."""
        return {key for tag in tags for key in self._tagged.get(tag, ())}

    def count(self, tags: Iterable[bytes]) -> int:
        """The number of keys that `tagged` looks at."""
        return sum(len(self._tagged.get(tag, ())) for tag in tags)

    def add(self, entry: Entry, stored: Stored) -> bytes | None:
        """Take in a response that its entry has; returns the key that stood for the same keys until now."""
        # Equal bytes are kept once: the indexes have the key of the entry, and one of equal variances.
        key = entry.key
        for tag in stored.tags:
            self._tagged.setdefault(tag, set()).add(key)
        if stored.search is None:
            return None
        path, query = split_key(key)
        variances = self.paths.setdefault(path, {})
        variance = stored.search = next((each for each in variances if each == stored.search), stored.search)
        keys, digest = variances.setdefault(variance, {}), _digest(variance, query)
        other, keys[digest] = keys.get(digest), key
        return other if other != key else None

    def remove(self, entry: Entry, stored: Stored) -> None:
        """Take out a response that its entry has no longer."""
        for tag in stored.tags:
            if not any(tag in one.tags for one in entry.variants):
                keys = self._tagged[tag]
                keys.discard(entry.key)
                if not keys:
                    del self._tagged[tag]
        if stored.search is not None and not any(one.search == stored.search for one in entry.variants):
            self._remove_variance(entry.key, stored.search)

    def _remove_variance(self, key: bytes, variance: NoVarySearch) -> None:
        """Remove a key whose responses have this variance no longer."""
        path, query = split_key(key)
        digest = _digest(variance, query)
        variances = self.paths[path]
        keys = variances[variance]
        if keys[digest] == key:
            del keys[digest]
        if not keys:
            del variances[variance]
        if not variances:
            del self.paths[path]


def _digest(variance: NoVarySearch, query: bytes) -> bytes:
    # Clients choose the query, and its canonical form may be longer; two of one digest cannot be found.
    return blake2b(variance.canonical(query), digest_size=32).digest()
