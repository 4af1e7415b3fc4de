"""Turns to fetch a key: locks on bytes of an empty file, which the system frees with their process."""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from os import getpid
from pathlib import Path
from typing import Final

from univocal.store.file.byte_locks import ByteLocks

# Bytes for each key: the length of a lock says which turn it is.
_ROOM: Final = 20


class Turns:
    """Locks by key: two keys of one digest wait for one another, which costs time alone."""

    def __init__(self, path: Path, directory: int | None = None) -> None:
        self._locks: Final = ByteLocks(path, directory)
        self._mine: dict[int, int] = {}  # the length of each lock
        self._turns: Final = count(getpid() * 7919)

    def take(self, key: bytes) -> bool:
        """Take the turn; False if it is another's."""
        place = _place(key)
        length = 1 + next(self._turns) % ((1 << _ROOM) - 2)
        if place in self._mine or not self._locks.take(place, length):
            return False
        self._mine[place] = length
        return True

    def holder(self, key: bytes) -> bytes:
        """A name of the turn that another has now, b"" if none has."""
        place = _place(key)
        length = self._mine.get(place) or self._locks.length(place)
        return b"%d" % length if length else b""

    def give(self, key: bytes) -> None:
        """Give the turn back."""
        place = _place(key)
        length = self._mine.pop(place, 0)
        if length:
            self._locks.give(place, length)

    def lead(self) -> bool:
        """Take the one turn to look after the store, for as long as this process lives."""
        if 0 not in self._mine and self._locks.take(0):
            self._mine[0] = 1
        return 0 in self._mine

    def close(self) -> None:
        """Give all turns back."""
        self._locks.close()


def _place(key: bytes) -> int:
    return (1 + int.from_bytes(blake2b(key, digest_size=5).digest(), "big")) << _ROOM
