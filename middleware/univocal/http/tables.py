"""Tables: of conclusions that are drawn again and again from the same few bytes, and of states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

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


def moves(following: Mapping[State, Collection[State]]) -> dict[tuple[State, State], State]:
    """The moves of a table, by both ends: one that is not there is a KeyError, and none costs a call."""
    return {(state, after): after for state, others in following.items() for after in others}
