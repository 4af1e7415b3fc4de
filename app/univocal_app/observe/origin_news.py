"""The log's lines about origin servers: each new state is told once for all processes of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from univocal.origin.balance import MemberState
from univocal.origin.upkeep import StateChange, log_change
from univocal_app.observe.origin_states import STATES

MOST: Final = 10_000  # places of which a change is kept


class OriginNews:
    """Hears what each process finds, and tells when the worst of that is another state than before."""

    def __init__(self, tell: Callable[[StateChange], None] = log_change) -> None:
        self._tell = tell
        self._changes: dict[str, dict[str, StateChange]] = {}  # those that are not up, by place and process
        self._told: dict[str, MemberState] = {}

    def hear(self, process: str, change: StateChange) -> None:
        """Take note of a new state, as one process finds it."""
        place = change.place
        changes = self._changes.setdefault(place, {})
        if change.state is MemberState.UP:
            changes.pop(process, None)
        else:
            changes[process] = change
        self._settle(place, change)

    def forget(self, process: str) -> None:
        """Take note that a process has ended: what it found is no longer so."""
        for place, changes in tuple(self._changes.items()):
            if changes.pop(process, None) is not None:
                self._settle(place, None)

    def _settle(self, place: str, last: StateChange | None) -> None:
        changes = self._changes[place]
        worst = max(changes.values(), key=lambda each: STATES.index(each.state), default=None)
        state = MemberState.UP if worst is None else worst.state
        state_before = self._told.get(place, MemberState.UP)
        if worst is None:
            del self._changes[place]
            self._told.pop(place, None)
        else:
            self._told[place] = state
            while len(self._changes) > MOST:
                oldest = next(iter(self._changes))
                del self._changes[oldest], self._told[oldest]
        change = worst or last
        if state is not state_before and change is not None:
            self._tell(change)
