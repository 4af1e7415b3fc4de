"""The workers of one program over a Redis: the number of the last purge that one of them published, mapped.

A worker reads it at each lookup, without a lock. Workers lock it to raise it, so that no smaller number
replaces a greater one. The system takes the lock from a process that is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from univocal.store.file.own_files import Cells
from univocal.store.roles import Siblings, StoreUnavailableError

# How often a worker tries while another holds the lock, and the seconds between two attempts.
_ATTEMPTS: Final = 500
_PAUSE: Final = 0.001


class MappedSiblings(Siblings):
    """The processes that map the file at `path`, which is made if it is not there. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._cells: Final = Cells(path, 1)
        self.cell: Sequence[int] = self._cells.integers

    async def raise_to(self, number: int) -> None:
        for _ in range(_ATTEMPTS):
            if self.cell[0] >= number or self._raise(number):
                return
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailableError("another worker stands still while it publishes a purge")

    def _raise(self, number: int) -> bool:
        """Write the number unless there is a greater one; False while another process does so."""
        if not self._cells.locks.take(0):
            return False
        self._cells.integers[0] = max(self._cells.integers[0], number)
        self._cells.locks.give(0)
        return True

    def close(self) -> None:
        """Map it no longer; the cell keeps its last number."""
        self.cell = (self.cell[0],)
        self._cells.close()
