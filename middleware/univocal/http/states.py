"""Tables of states: the moves from each state to those that may follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

State = TypeVar("State")


def moves(following: Mapping[State, Collection[State]]) -> dict[tuple[State, State], State]:
    """The moves of a table, by both ends: one that is not there is a KeyError, and none costs a call."""
    return {(state, after): after for state, others in following.items() for after in others}
