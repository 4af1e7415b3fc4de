"""Which stored responses answer queries other than their own: the second lookup of No-Vary-Search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from univocal.cache.search import NoVarySearch, split_key

__all__ = ["Alike"]

# How many variances one path may have: each costs every lookup on that path a look.
MOST_VARIANCES: Final = 16


class Alike:
    """The keys of stored responses by path, variance and what that leaves of the query."""

    __slots__ = ("_counts", "_keys")

    def __init__(self) -> None:
        self._counts: dict[bytes, dict[NoVarySearch, int]] = {}
        self._keys: dict[tuple[NoVarySearch, bytes, bytes], bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def keys(self, key: bytes) -> Iterator[tuple[bytes, NoVarySearch]]:
        """The keys under which a response for `key` may be stored, and by which variance."""
        path, query = split_key(key)
        for variance in self._counts.get(path, ()):
            other = self._keys.get((variance, path, variance.canonical(query)))
            if other is not None:
                yield other, variance

    def admits(self, key: bytes, variance: NoVarySearch) -> bool:
        """Whether there is room for a response of this variance."""
        counts = self._counts.get(split_key(key)[0], {})
        return variance in counts or len(counts) < MOST_VARIANCES

    def add(self, key: bytes, variance: NoVarySearch) -> bytes | None:
        """Let a response stand for all keys its variance makes the same; the key that did so before."""
        path, query = split_key(key)
        alias = (variance, path, variance.canonical(query))
        other = self._keys.get(alias)
        self._keys[alias] = key
        counts = self._counts.setdefault(path, {})
        counts[variance] = counts.get(variance, 0) + 1
        return other if other != key else None

    def remove(self, key: bytes, variance: NoVarySearch, *, last: bool) -> None:
        """Take a response out; with the `last` of this key and variance, the key stands for no others."""
        path, query = split_key(key)
        alias = (variance, path, variance.canonical(query))
        if last and self._keys.get(alias) == key:
            del self._keys[alias]
        counts = self._counts[path]
        counts[variance] -= 1
        if not counts[variance]:
            del counts[variance]
        if not counts:
            del self._counts[path]
