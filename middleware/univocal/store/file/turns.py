"""Turns to fetch a key: locks on single bytes of an empty file, which the system frees with their process."""

from __future__ import annotations

import fcntl
import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final

__all__ = ["Turns"]

# Linux has locks of an open file, which are no other's of this process; elsewhere they are the process's.
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_LOCK: Final = struct.Struct("hhqqi4x")


class Turns:
    """Locks by key: two keys of one digest wait for one another, which costs time alone."""

    def __init__(self, path: Path) -> None:
        self._file: Final = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mine: set[int] = set()

    def take(self, key: bytes) -> bool:
        """Take the turn; False if it is another's."""
        place = _place(key)
        if place in self._mine or not self._set(fcntl.F_WRLCK, place):
            return False
        self._mine.add(place)
        return True

    def give(self, key: bytes) -> None:
        """Give the turn back."""
        place = _place(key)
        if place in self._mine:
            self._mine.discard(place)
            self._set(fcntl.F_UNLCK, place)

    def lead(self) -> bool:
        """Take the one turn to look after the store, for as long as this process lives."""
        if 0 not in self._mine and self._set(fcntl.F_WRLCK, 0):
            self._mine.add(0)
        return 0 in self._mine

    def _set(self, kind: int, place: int) -> bool:
        try:
            fcntl.fcntl(self._file, _SET, _LOCK.pack(kind, os.SEEK_SET, place, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Give all turns back."""
        os.close(self._file)


def _place(key: bytes) -> int:
    return 1 + (int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 2)
