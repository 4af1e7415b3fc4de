"""The rates of clients in a mapped file: one limit for all processes of a program.

The file has the seed of this start, and then sets of slots. The seeded digest of a rate's name and a client
chooses a set, and marks one slot there. Each set has a lock, which a process holds while it counts a
request. The system takes the lock from a killed process; its last request may be forgotten.

A set has three numbers of 8 bytes for each slot, all of one kind together: the mark, the time at which the
client's next request is due, and the number of its last use. No number is ever
half written.
"""

from __future__ import annotations

import os
import struct
from errno import ETIMEDOUT
from hashlib import blake2b
from pathlib import Path
from typing import Final

from univocal.judge.access import MOST_CLIENTS, Rate, paced
from univocal.store.file.own_files import Cells

_SLOTS: Final = 16  # of a set
_NUMBERS: Final = 3 * _SLOTS
_HEAD: Final = 512  # numbers before the first set
_SEED: Final = 2  # of these
_DIGEST: Final = struct.Struct("QQ")
# Seconds for which another process may hold a set, between two attempts, and until the client may come again.
_PATIENCE: Final = 0.01
_SEEDING: Final = 10.0  # seconds in which another process chooses the seed
_PAUSE: Final = 0.00001
_BUSY: Final = 1.0


class SharedRates:
    """The rates of some `most` clients in the file at `path`, which the first process makes.

    In a full set the client whose request was counted the longest ago makes room. If another process stands
    still while it counts, a client of the same set has to wait. Raises OSError.
    """

    __slots__ = ("_dues", "_locks", "_numbers", "_seed", "_sets")

    def __init__(self, path: Path, most: int = MOST_CLIENTS) -> None:
        self._sets = -(-most // _SLOTS)
        cells = Cells(path, _HEAD + self._sets * _NUMBERS)
        self._locks = cells.locks
        making = self._sets  # a lock beyond those of the sets
        if not self._locks.take_soon(making, _SEEDING, _PATIENCE):
            raise OSError(ETIMEDOUT, "another process stands still while it begins to count", str(path))
        if not any(cells.integers[:_SEED]):
            cells.integers[:_SEED] = memoryview(os.urandom(8 * _SEED)).cast("Q")
        self._locks.give(making)
        self._seed = bytes(cells.integers[:_SEED])
        self._numbers, self._dues = cells.integers[_HEAD:], cells.reals[_HEAD:]

    def wait(self, name: str, client: str, rate: Rate, now: float) -> float:
        """Count a request of a client, see `univocal.judge.access.Rates`."""
        octets = f"{name}\0{client}".encode()
        mark, chosen = _DIGEST.unpack(blake2b(octets, key=self._seed, digest_size=_DIGEST.size).digest())
        chosen %= self._sets
        if not self._locks.take_soon(chosen, _PATIENCE, _PAUSE):
            return _BUSY
        try:
            return self._count(chosen * _NUMBERS, mark or 1, rate, now)
        finally:
            self._locks.give(chosen)

    def _count(self, first: int, mark: int, rate: Rate, now: float) -> float:
        """Count a request in the set that begins with the number `first`, under its lock."""
        numbers, dues, uses = self._numbers, first + _SLOTS, first + 2 * _SLOTS
        marks = numbers[first:dues].tolist()
        slot = marks.index(mark) if mark in marks else -1
        wait, due = paced(self._dues[dues + slot] if slot >= 0 else now, rate, now)
        if wait:
            self._dues[dues + slot] = due
            return wait
        counted = numbers[uses : uses + _SLOTS].tolist()
        is_new = slot < 0
        if is_new:
            slot = counted.index(min(counted))
            numbers[first + slot] = 0  # or a process that is killed now would leave one client another's time
        self._dues[dues + slot] = due
        numbers[uses + slot] = max(counted) + 1
        if is_new:
            numbers[first + slot] = mark
        return 0.0
