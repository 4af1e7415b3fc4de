"""Tables: of conclusions that are drawn again and again from the same few bytes, and of states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")


def remember(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Enter a value into a table of at most so many; a full one is emptied first.

    So no lookup moves entries, and clients that send ever new keys cost no more than a table.
    """
    if len(table) >= most:
        table.clear()
    table[key] = value


State = TypeVar("State")
After = TypeVar("After")


class Moves(Protocol):
    """The moves of a table of states, or of their classes, by both ends."""

    def __getitem__(self, ends: tuple[object, After], /) -> After:
        """The second of both, which is to follow the first. Raises KeyError if it may not."""
        ...


def moves(following: Mapping[State, Collection[State]]) -> Moves:
    """The moves of a table, which says what may follow each state: none costs a call.

    Reading a move checks it. A state that is an object is made by its own name behind the check:
    compiled code calls a class that it reads from a table like any function.
    """
    table = {(state, after): after for state, others in following.items() for after in others}
    return cast("Moves", table)
