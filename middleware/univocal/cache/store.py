"""The memory store: synchronous, bounded by what responses really cost, O(1) per hit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from univocal.cache.leases import Lease, Leases
from univocal.cache.search import NoVarySearch, split_key
from univocal.cache.selectors import Everything, Keys, Prefix, Selector, Tags, located, matches
from univocal.cache.sieve import Entry, Sieve
from univocal.cache.stored import Stored, softened

__all__ = ["Everything", "Keys", "Lease", "MemoryStore", "Prefix", "Selector", "Stats", "Tags"]

# How many keys are remembered as uncacheable at most.
_MARKER_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Stats:
    """What the store holds: keys, responses, octets, octets reserved for content under way; evictions."""

    entries: int
    responses: int
    bytes: int
    reserved: int
    evictions: int


class MemoryStore:
    """Stored responses by key, never of more than `max_bytes`, each of `max_object_bytes` at most."""

    def __init__(
        self, max_bytes: int = 256 << 20, max_object_bytes: int = 16 << 20, max_variants: int = 64
    ) -> None:
        self.max_bytes = max_bytes
        self.max_object_bytes = min(max_object_bytes, max_bytes)
        self.max_variants = max_variants
        # Content under way is not evicted, so it has a share of its own: memory stays below 5/4 of max_bytes.
        self._leases = Leases(max(max_bytes // 4, self.max_object_bytes))
        self._entries: dict[bytes, Entry] = {}
        self._sieve = Sieve()
        self._tagged: dict[bytes, set[bytes]] = {}
        self._variances: dict[bytes, dict[NoVarySearch, int]] = {}
        self._alike: dict[tuple[NoVarySearch, bytes, bytes], bytes] = {}
        self._bytes = self._responses = self._evictions = 0
        self._uncacheable: OrderedDict[int, float] = OrderedDict()

    @property
    def stats(self) -> Stats:
        """What is held now."""
        return Stats(len(self._entries), self._responses, self._bytes, self._leases.reserved, self._evictions)

    def lookup(self, key: bytes) -> Sequence[Stored]:
        """The stored responses of a key, newest first."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.visited = True
            return entry.variants
        return self._lookup_alike(key) if self._variances else ()

    def _lookup_alike(self, key: bytes) -> Sequence[Stored]:
        """The stored responses of another key that No-Vary-Search makes the same."""
        path, query = split_key(key)
        for variance in self._variances.get(path, ()):
            other = self._alike.get((variance, path, variance.canonical(query)))
            entry = self._entries.get(other) if other is not None else None
            if entry is not None:
                entry.visited = True
                return tuple(stored for stored in entry.variants if stored.search == variance)
        return ()

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, key: bytes, now: float) -> Lease:
        """A lease for what is about to be fetched; whoever takes it releases it."""
        return self._leases.begin(key, now)

    def reserve(self, lease: Lease, nbytes: int) -> bool:
        """Set `nbytes` more aside for content under way; False if it is too large or there is no room now."""
        return self._leases.reserve(lease, nbytes, self.max_object_bytes)

    def release(self, lease: Lease) -> None:
        """End a lease and give back what it reserved; a second time does nothing."""
        self._leases.release(lease)

    def holds(self, lease: Lease, stored: Stored | None = None) -> bool:
        """Whether no purge since the lease began concerns its key, or the response that came."""
        return self._leases.holds(lease, stored)

    def commit(self, lease: Lease, stored: Stored) -> bool:
        """Store a response; False if it was purged since the lease began, is too large or not to be kept."""
        if not self._leases.holds(lease, stored):
            return False
        if not stored.reusable:
            self._drop(stored.key, self._variants(stored.key))
            return False
        if stored.cost > self.max_object_bytes or self._holds_better(stored):
            return False
        self._insert(stored)
        self._uncacheable.pop(hash(stored.key), None)
        return True

    def _holds_better(self, stored: Stored) -> bool:
        """Whether a part, or the answer to a HEAD, would displace a whole response that is fresh."""
        same = (old for old in self._variants(stored.key) if old.vary == stored.vary and old.whole)
        return not stored.whole and any(old.fresh_until > stored.response_time for old in same)

    # ── purges ──────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, selector: Selector, now: float, *, sparing: Lease | None = None) -> int:
        """Remove what is selected, or mark it stale, and keep what is being fetched from being stored.

        The number of stored responses that were meant. The lease `sparing` may still commit: what it fetches
        is newer than what the purge is about (a POST that invalidates its target and brings its new state).
        """
        self._leases.purged(selector, sparing)
        found = 0
        for entry in self._candidates(selector):
            meant = [one for one in entry.variants if matches(selector, entry.key, one.tags, one.search)]
            found += len(meant)
            if selector.soft:
                entry.variants = tuple(softened(one, now) if one in meant else one for one in entry.variants)
            else:
                self._drop(entry.key, meant)
        return found

    def _candidates(self, selector: Selector) -> list[Entry]:
        keys: Iterable[bytes]
        match selector:
            case Keys(wanted):
                keys = {each for key in wanted for each in (key, *self._alike_keys(key))}
            case Tags(wanted):
                keys = {key for tag in wanted for key in self._tagged.get(tag, ())}
            case Prefix(names):
                begins = tuple(names)
                keys = [key for key in self._entries if located(key).startswith(begins)]
            case _:
                return list(self._entries.values())
        return [entry for key in keys if (entry := self._entries.get(key)) is not None]

    def _alike_keys(self, key: bytes) -> Iterator[bytes]:
        path, query = split_key(key)
        for variance in self._variances.get(path, ()):
            other = self._alike.get((variance, path, variance.canonical(query)))
            if other is not None:
                yield other

    # ── the uncacheable ─────────────────────────────────────────────────────────────────────────────────────

    def mark_uncacheable(self, key: bytes, until: float) -> None:
        """Remember for a while that requests for a key need not wait for one another."""
        # The hash alone is kept: a collision only makes two keys' requests not wait.
        self._uncacheable[hash(key)] = until
        self._uncacheable.move_to_end(hash(key))
        while len(self._uncacheable) > _MARKER_LIMIT:
            self._uncacheable.popitem(last=False)

    def is_uncacheable(self, key: bytes, now: float) -> bool:
        """Whether the last response of this key could not be stored, not long ago."""
        return self._uncacheable.get(hash(key), 0.0) > now

    # ── entries ─────────────────────────────────────────────────────────────────────────────────────────────

    def _variants(self, key: bytes) -> tuple[Stored, ...]:
        entry = self._entries.get(key)
        return entry.variants if entry is not None else ()

    def _insert(self, stored: Stored) -> None:
        entry = self._entries.get(stored.key)
        for old in self._variants(stored.key):
            if entry is not None and old.vary == stored.vary:
                self._forget(entry, old)
        if entry is None:
            entry = self._entries[stored.key] = Entry(stored.key)
            self._sieve.add(entry)
        # One key never takes more than half of the store: its oldest variants go.
        while entry.variants and (
            len(entry.variants) >= self.max_variants or entry.cost + stored.cost > self.max_bytes // 2
        ):
            self._forget(entry, entry.variants[-1])
        entry.variants = (stored, *entry.variants)
        entry.cost += stored.cost
        self._bytes += stored.cost
        self._responses += 1
        for tag in stored.tags:
            self._tagged.setdefault(tag, set()).add(stored.key)
        if stored.search is not None:
            self._replace_alike(stored, stored.search)
        self._make_room(entry)

    def _make_room(self, spared: Entry) -> None:
        while self._bytes > self.max_bytes:
            victim = self._sieve.victim()
            if victim is None:
                return
            if victim is spared:
                victim.visited = True
                continue
            self._evictions += len(victim.variants)
            self._drop(victim.key, victim.variants)

    def _replace_alike(self, stored: Stored, variance: NoVarySearch) -> None:
        """Let a response stand for all keys its variance makes the same; an older one under another goes."""
        path, query = split_key(stored.key)
        alias = (variance, path, variance.canonical(query))
        other = self._alike.get(alias)
        if other is not None and other != stored.key:
            self._drop(other, [old for old in self._variants(other) if old.search == variance])
        self._alike[alias] = stored.key
        counts = self._variances.setdefault(path, {})
        counts[variance] = counts.get(variance, 0) + 1

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
        entry.variants = tuple(one for one in entry.variants if one is not stored)
        entry.cost -= stored.cost
        self._bytes -= stored.cost
        self._responses -= 1
        for tag in stored.tags:
            if not any(tag in one.tags for one in entry.variants):
                keys = self._tagged[tag]
                keys.discard(entry.key)
                if not keys:
                    del self._tagged[tag]
        if stored.search is not None:
            self._forget_alike(entry, stored.search)

    def _forget_alike(self, entry: Entry, variance: NoVarySearch) -> None:
        path, query = split_key(entry.key)
        alias = (variance, path, variance.canonical(query))
        if self._alike.get(alias) == entry.key and not any(one.search == variance for one in entry.variants):
            del self._alike[alias]
        counts = self._variances[path]
        counts[variance] -= 1
        if not counts[variance]:
            del counts[variance]
        if not counts:
            del self._variances[path]
