"""Questions that every process of a program answers: the rows that each has counted by now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

Row: TypeAlias = tuple[bytes | int, ...]
"""The form of what processes count, as they give it to one another: bytes travel as Latin-1."""

Counted: TypeAlias = Callable[[], Iterable[Row]]


class Survey:
    """The questions of a process by what they are about.

    `others` gives the rows of the program's other processes that answer in time, where there are any.
    """

    def __init__(self) -> None:
        self.others: Callable[[str], Awaitable[list[Row]]] | None = None
        self._counted: dict[str, Counted] = {}
        self._asking: dict[str, asyncio.Future[list[Row]]] = {}

    def add(self, about: str, counted: Counted) -> None:
        """Answer with what `counted` gives."""
        self._counted[about] = counted

    def own(self, about: str) -> list[Row]:
        """The rows of this process; none about what it does not know."""
        return list(self._counted.get(about, tuple)())

    async def rows(self, about: str) -> list[Row]:
        """The rows of all processes; callers that ask while the others answer get the same rows."""
        if self.others is None:
            return self.own(about)
        asking = self._asking.get(about)
        if asking is None or asking.done():
            asking = self._asking[about] = asyncio.ensure_future(self.others(about))
        theirs = await asyncio.shield(asking)
        return [*self.own(about), *theirs]


def summed(rows: Iterable[Row]) -> Counter[tuple[bytes, ...]]:
    """The numbers at the end of the rows, added up for the bytes that stand before them."""
    sums = Counter[tuple[bytes, ...]]()
    for *counted, number in rows:
        sums[tuple(each for each in counted if isinstance(each, bytes))] += int(number)
    return sums
