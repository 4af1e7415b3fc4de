"""Locks on single bytes of a file, which the system frees with their process."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from univocal.store.file.own_files import open_file

__all__ = ["ByteLocks"]

# Linux has locks of an open file, which are no other's of this process; elsewhere they are the process's.
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_LOCK: Final = struct.Struct("hhqqi4x")


class ByteLocks:
    """The locks on the bytes of the file at `path`; the bytes need not exist. Raises OSError.

    With an open `directory` the file is the one of that name there.
    """

    def __init__(self, path: Path, directory: int | None = None, flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self.file: Final = open_file(path, directory, flags)

    def take(self, place: int) -> bool:
        """Take the lock on a byte; False if another holds or shares it."""
        return self._set(fcntl.F_WRLCK, place)

    def share(self, place: int) -> bool:
        """Share the lock on a byte, also in place of the whole of it; False if another holds it."""
        return self._set(fcntl.F_RDLCK, place)

    def give(self, place: int) -> None:
        """Give the lock on a byte back."""
        self._set(fcntl.F_UNLCK, place)

    def _set(self, kind: int, place: int) -> bool:
        try:
            fcntl.fcntl(self.file, _SET, _LOCK.pack(kind, os.SEEK_SET, place, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Give all locks back."""
        os.close(self.file)
