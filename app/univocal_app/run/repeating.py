"""A call that is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from univocal.http.roles import CallLater, Due


def _call_later(seconds: float, call: Callable[[], None]) -> Due:
    return asyncio.get_running_loop().call_later(seconds, call)


class Repeating:
    """Calls `action` every `seconds`, for the first time so long after `begin`, until `end`.

    `call_later` calls after so many seconds; without it the running event loop does.
    """

    def __init__(
        self, seconds: float, action: Callable[[], object], call_later: CallLater = _call_later
    ) -> None:
        self._seconds, self._action, self._call_later = seconds, action, call_later
        self._next: Due | None = None

    def begin(self) -> None:
        """Call from now on."""
        self.end()
        self._next = self._call_later(self._seconds, self._call)

    def end(self) -> None:
        """Call no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _call(self) -> None:
        self.begin()  # first, so that an action that fails is not the last
        self._action()
