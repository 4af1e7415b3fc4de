"""Locks on single bytes of a file, which the system frees with their process."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

from univocal.store.file.own_files import open_file

# Linux has locks of an open file, which are no other's of this process; elsewhere they are the process's.
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
_LOCK: Final = struct.Struct("hhqqi4x")


class ByteLocks:
    """The locks on the bytes of the file at `path`; the bytes need not exist. Raises OSError.

    With an open `directory` the file is the one of that name there.
    """

    def __init__(self, path: Path, directory: int | None = None, flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self.file: Final = open_file(path, directory, flags)

    def take(self, place: int, length: int = 1) -> bool:
        """Take the lock on so many bytes; False if another holds or shares one of them."""
        return self._set(fcntl.F_WRLCK, place, length)

    def take_soon(self, place: int, patience: float, pause: float) -> bool:
        """Take the lock on a byte that others hold for a moment; False if it is not free in these seconds."""
        until = time.monotonic() + patience
        while not self.take(place):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
        return True

    def length(self, place: int) -> int:
        """The length of another's lock on a byte, 0 if it is free."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        kind, _, _, length, _ = _LOCK.unpack(fcntl.fcntl(self.file, _GET, asked))
        return 0 if kind == fcntl.F_UNLCK else int(length)

    def share(self, place: int) -> bool:
        """Share the lock on a byte, also in place of the whole of it; False if another holds it."""
        return self._set(fcntl.F_RDLCK, place)

    def give(self, place: int, length: int = 1) -> None:
        """Give the lock on so many bytes back."""
        self._set(fcntl.F_UNLCK, place, length)

    def _set(self, kind: int, place: int, length: int = 1) -> bool:
        try:
            fcntl.fcntl(self.file, _SET, _LOCK.pack(kind, os.SEEK_SET, place, length, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Give all locks back."""
        os.close(self.file)
