"""Turns to fetch a key: locks on single bytes of an empty file, which the system frees with their process."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from univocal.store.file.byte_locks import ByteLocks

__all__ = ["Turns"]


class Turns:
    """Locks by key: two keys of one digest wait for one another, which costs time alone."""

    def __init__(self, path: Path, directory: int | None = None) -> None:
        self._locks: Final = ByteLocks(path, directory)
        self._mine: set[int] = set()

    def take(self, key: bytes) -> bool:
        """Take the turn; False if it is another's."""
        place = _place(key)
        if place in self._mine or not self._locks.take(place):
            return False
        self._mine.add(place)
        return True

    def give(self, key: bytes) -> None:
        """Give the turn back."""
        place = _place(key)
        if place in self._mine:
            self._mine.discard(place)
            self._locks.give(place)

    def lead(self) -> bool:
        """Take the one turn to look after the store, for as long as this process lives."""
        if 0 not in self._mine and self._locks.take(0):
            self._mine.add(0)
        return 0 in self._mine

    def close(self) -> None:
        """Give all turns back."""
        self._locks.close()


def _place(key: bytes) -> int:
    return 1 + (int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 2)
