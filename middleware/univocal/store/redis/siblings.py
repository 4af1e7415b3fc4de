"""The workers of one program over a Redis: the number of the last purge that one of them published, mapped.

A worker reads it at each lookup, without a lock: it is one aligned word. Workers lock the file to raise it,
so that no smaller number replaces a greater one. The system takes the lock from a process that is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from univocal.store.roles import Siblings, StoreUnavailableError

_SIZE: Final = 8
# How often a worker tries while another holds the lock, and the seconds between two attempts.
_ATTEMPTS: Final = 500
_PAUSE: Final = 0.001


class MappedSiblings(Siblings):
    """The processes that map the file at `path`, which is made if it is not there. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file: Final = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._file).st_size < _SIZE:
                os.write(self._file, bytes(_SIZE))  # a second process that does so appends what is never read
            self._map: Final = mmap.mmap(self._file, _SIZE)
        except BaseException:
            os.close(self._file)
            raise
        self._number: Final = memoryview(self._map).cast("Q")
        self.cell: Sequence[int] = self._number

    async def raise_to(self, number: int) -> None:
        for _ in range(_ATTEMPTS):
            if self._number[0] >= number or self._raise(number):
                return
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailableError("another worker stands still while it publishes a purge")

    def _raise(self, number: int) -> bool:
        """Write the number unless there is a greater one; False while another process does so."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            self._number[0] = max(self._number[0], number)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def close(self) -> None:
        """Map it no longer; the cell keeps its last number."""
        self.cell = (self._number[0],)
        self._number.release()
        self._map.close()
        os.close(self._file)
