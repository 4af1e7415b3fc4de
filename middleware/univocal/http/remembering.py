"""Tables of conclusions that are drawn again and again from the same few bytes."""

from __future__ import annotations

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
