"""Questions that every process of a program answers: the rows that each has counted by now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""The form of what processes count, as they give it to one another: numbers and bytes."""

# Tell whether a part of a row is any bytes, a key, text or a number; its letter stands in the row's shape.
_PARTS: Final[dict[str, Callable[[Any], bool]]] = {
    "b": lambda part: isinstance(part, bytes),
    "k": lambda part: isinstance(part, bytes) and part.count(b" ") > 2,  # see `url_of` of a store
    "t": lambda part: isinstance(part, bytes) and part.decode("utf-8", "ignore").encode() == part,
    "n": lambda part: type(part) is int and 0 <= part < 1 << 64,
}

Counted: TypeAlias = Callable[[], Iterable[Row]]


class Survey:
    """The questions of a process by what they are about.

    `others` gives the rows of the program's other processes that answer in time, where there are any.
    """

    def __init__(self) -> None:
        self.others: Callable[[str, str], Awaitable[list[Row]]] | None = None
        self._counted: dict[str, Counted] = {}
        self._shapes: dict[str, str] = {}
        self._asking: dict[str, asyncio.Future[list[Row]]] = {}

    def add(self, about: str, shape: str, counted: Counted) -> None:
        """Answer with what `counted` gives: rows of this shape."""
        self._counted[about], self._shapes[about] = counted, shape

    def own(self, about: str) -> list[Row]:
        """The rows of this process; none about what it does not know."""
        return list(self._counted.get(about, tuple)())

    async def rows(self, about: str) -> list[Row]:
        """The rows of all processes; callers that ask while the others answer get the same rows."""
        if self.others is None:
            return self.own(about)
        asking = self._asking.get(about)
        if asking is None or asking.done():
            asking = self._asking[about] = asyncio.ensure_future(self.others(about, self._shapes[about]))
        theirs = await asyncio.shield(asking)
        return [*self.own(about), *theirs]


def has_shape(row: Row, shape: str) -> bool:
    """Tell whether a row has the parts of a shape: a letter for each, see `_PARTS`."""
    return len(row) == len(shape) and all(_PARTS[kind](part) for kind, part in zip(shape, row, strict=True))


def summed(rows: Iterable[Row]) -> Counter[tuple[bytes, ...]]:
    """The numbers at the end of the rows, added up for the bytes that stand before them."""
    sums = Counter[tuple[bytes, ...]]()
    for *counted, number in rows:
        sums[tuple(counted)] += number
    return sums
