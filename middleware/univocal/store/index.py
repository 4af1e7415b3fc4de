"""The store's ways to an entry besides its key: its tags, and the keys that No-Vary-Search makes the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from univocal.cache.no_vary_search import NoVarySearch, split_key
from univocal.cache.stored import Stored
from univocal.store.eviction import Entry


class Index:
    """The keys of stored responses by their tags and variances."""

    __slots__ = ("_alike", "_tagged", "paths")

    def __init__(self) -> None:
        self._tagged: dict[bytes, set[bytes]] = {}
        self._alike = Alike()
        self.paths = self._alike.paths  # empty: no key stands for others

    def admits(self, stored: Stored) -> bool:
        """Tell whether there is room for a response of this variance."""
        return stored.search is None or self._alike.admits(stored.key, stored.search)

    def alike(self, key: bytes) -> Iterator[tuple[bytes, NoVarySearch]]:
        """The keys that stand for this one, each with the variance by which it does."""
        return self._alike.keys(key)

    def tagged(self, tags: Iterable[bytes]) -> set[bytes]:
        """The keys of responses with one of these tags."""
        return {key for tag in tags for key in self._tagged.get(tag, ())}

    def count(self, tags: Iterable[bytes]) -> int:
        """The number of keys that `tagged` looks at."""
        return sum(len(self._tagged.get(tag, ())) for tag in tags)

    def add(self, entry: Entry, stored: Stored) -> bytes | None:
        """Take in a response that its entry has; returns the key that stood for the same keys until now."""
        # Equal bytes are kept once: the indexes have those of the entry.
        stored.key = entry.key
        for tag in stored.tags:
            self._tagged.setdefault(tag, set()).add(entry.key)
        if stored.search is None:
            return None
        stored.search = self._alike.known(entry.key, stored.search)
        return self._alike.add(entry.key, stored.search)

    def remove(self, entry: Entry, stored: Stored) -> None:
        """Take out a response that its entry has no longer."""
        for tag in stored.tags:
            if not any(tag in one.tags for one in entry.variants):
                keys = self._tagged[tag]
                keys.discard(entry.key)
                if not keys:
                    del self._tagged[tag]
        if stored.search is not None and not any(one.search == stored.search for one in entry.variants):
            self._alike.remove(entry.key, stored.search)


# How many variances one path may have: each costs every lookup on that path a look.
MOST_VARIANCES: Final = 16


class Alike:
    """The keys of stored responses by path, variance, and a digest of the query that the variance leaves."""

    __slots__ = ("paths",)

    def __init__(self) -> None:
        self.paths: Final[dict[bytes, dict[NoVarySearch, dict[bytes, bytes]]]] = {}

    def keys(self, key: bytes) -> Iterator[tuple[bytes, NoVarySearch]]:
        """The keys under which a response for `key` may be stored, each with the variance by which it may."""
        path, query = split_key(key)
        for variance, keys in self.paths.get(path, {}).items():
            other = keys.get(_digest(variance, query))
            if other is not None:
                yield other, variance

    def admits(self, key: bytes, variance: NoVarySearch) -> bool:
        """Tell whether there is room for a response of this variance."""
        variances = self.paths.get(split_key(key)[0], {})
        return variance in variances or len(variances) < MOST_VARIANCES

    def known(self, key: bytes, variance: NoVarySearch) -> NoVarySearch:
        """The variance itself, or the equal one that other responses of this path have: kept once."""
        return next((each for each in self.paths.get(split_key(key)[0], ()) if each == variance), variance)

    def add(self, key: bytes, variance: NoVarySearch) -> bytes | None:
        """Let a response stand for all keys its variance makes the same; returns the key that did before."""
        path, query = split_key(key)
        keys = self.paths.setdefault(path, {}).setdefault(variance, {})
        digest = _digest(variance, query)
        other = keys.get(digest)
        keys[digest] = key
        return other if other != key else None

    def remove(self, key: bytes, variance: NoVarySearch) -> None:
        """Let a key, of whose responses none has this variance any longer, stand for no others."""
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
    # Clients choose the query, and its canonical form may be longer; nobody finds two of one digest.
    return blake2b(variance.canonical(query), digest_size=32).digest()
