"""Where the store finds entries other than by key: by tag, and by what No-Vary-Search makes the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from univocal.cache.alike import Alike
from univocal.cache.search import NoVarySearch
from univocal.cache.sieve import Entry
from univocal.cache.stored import Stored

__all__ = ["Index"]


class Index:
    """The keys of stored responses by their tags and variances."""

    __slots__ = ("_alike", "_tagged")

    def __init__(self) -> None:
        self._tagged: dict[bytes, set[bytes]] = {}
        self._alike = Alike()

    @property
    def has_alike(self) -> bool:
        """Whether any key may stand for others."""
        return bool(self._alike)

    def admits(self, stored: Stored) -> bool:
        """Whether there is room for a response of this variance."""
        return stored.search is None or self._alike.admits(stored.key, stored.search)

    def alike(self, key: bytes) -> Iterator[tuple[bytes, NoVarySearch]]:
        """The keys that stand for this one, and by which variance."""
        return self._alike.keys(key)

    def tagged(self, tags: Iterable[bytes]) -> set[bytes]:
        """The keys of responses with one of these tags."""
        return {key for tag in tags for key in self._tagged.get(tag, ())}

    def add(self, entry: Entry, stored: Stored) -> bytes | None:
        """Take in a response that its entry has; the key that stood for what this one stands for now."""
        # Equal octets are kept once: the indexes have those of the entry.
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
