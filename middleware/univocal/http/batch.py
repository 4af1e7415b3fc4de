"""Calls of many connections that an event loop makes together, at the end of its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary


class Loop(Protocol):
    """An event loop, as far as a batch uses it."""

    def call_soon(self, callback: Callable[..., Any], /, *arguments: Any) -> object:
        """Call in the loop's next turn."""
        ...

    def call_exception_handler(self, context: dict[str, Any], /) -> None:
        """Report the error of a call."""


class Batch:
    """The writes that wait for the end of a turn of their event loop.

    A write that wakes its reader on another core takes several times as long as others. Of writes that are
    made together, only the first one does so.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, loop: Loop, call: Callable[[], None]) -> None:
        """Call at the end of this turn of `loop`, after the calls that were added before."""
        self._calls.append(call)
        if len(self._calls) == 1:
            loop.call_soon(self._run, loop)

    def _run(self, loop: Loop) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:
                loop.call_exception_handler({"message": "a write failed", "exception": error})


_BATCHES: Final[WeakKeyDictionary[Loop, Batch]] = WeakKeyDictionary()


def batch_of(loop: Loop) -> Batch:
    """The batch that all connections of an event loop share."""
    batch = _BATCHES.get(loop)
    if batch is None:
        batch = _BATCHES[loop] = Batch()
    return batch
