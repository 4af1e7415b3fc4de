"""The rows of a file store that were read lately: a hit needs its content besides, and no database."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeAlias

from univocal.cache.stored import Stored

# Seconds for which a row is known: then what other processes stored is looked at again.
_KNOWN: Final = 60.0
# Bytes that all of them may take, and those of one besides its content and its names.
_LIMIT: Final = 16 << 20
_COST: Final = 1_300

State: TypeAlias = tuple[int, int]
UNKNOWN: Final[State] = -1, -1


@dataclass(slots=True, eq=False)
class Described:
    """A row: the response without the content that stands at a place beside the database.

    `whole_at`: the state of that, see ring.py, in which it was found whole, good until `whole_until`, in
    seconds of a clock that only goes on. It was the same at `seen`.
    """

    id: int
    touched: int
    number: int
    stored: Stored
    seal: bytes
    length: int
    place: bytes
    whole_at: State = UNKNOWN
    whole_until: float = 0.0
    seen: State = UNKNOWN  # the last writing that had ended by then, and when the file had been changed


class Recent:
    """The rows of the keys that were read last, each for some seconds (by any clock that only goes on)."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit: Final = limit
        self._octets = 0
        self._known: Final[OrderedDict[bytes, tuple[float, int, list[Described]]]] = OrderedDict()

    def get(self, key: bytes, now: float) -> list[Described] | None:
        """The rows of a key, newest first; None if they are not known."""
        known = self._known.get(key)
        if known is None:
            return None
        if now - known[0] > _KNOWN:
            self.forget(key)
            return None
        return known[2]

    def put(self, key: bytes, rows: list[Described], now: float) -> None:
        """Know the rows of a key, which were read just now."""
        self.forget(key)
        cost = sum(_COST + len(key) + len(each.stored.head) + len(each.stored.body) for each in rows)
        self._known[key] = now, cost, rows
        self._octets += cost
        while self._octets > self._limit:
            self._octets -= self._known.popitem(last=False)[1][1]

    def forget(self, key: bytes) -> None:
        """Know a key no longer: its rows are being changed."""
        known = self._known.pop(key, None)
        if known is not None:
            self._octets -= known[1]

    def clear(self) -> None:
        """Know nothing."""
        self._known.clear()
        self._octets = 0
