"""Calls of an event loop: of a timer, set again and again, and those at the end of its iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from univocal.http.roles import Due

NEVER: Final = float("inf")


class Loop(Protocol):
    """An event loop, as far as timers and batches use it; `time` and `when` are its own seconds."""

    def time(self) -> float:
        """The time now."""
        ...

    def call_at(self, when: float, callback: Callable[[], Any], /) -> Due:
        """Call at a time."""
        ...

    def call_soon(self, callback: Callable[..., Any], /, *arguments: Any) -> object:
        """Call in the loop's next iteration."""
        ...

    def call_exception_handler(self, context: dict[str, Any], /) -> None:
        """Report the error of a call."""


class Timer:
    """Calls `action` once when the time set is over, unless it was set anew or cleared.

    Setting it to a later time or clearing it is an assignment: the call that is scheduled already looks again
    when it comes. So a busy connection schedules one now and then, not one per request.
    """

    def __init__(self, loop: Loop, action: Callable[[], object]) -> None:
        self._loop = loop
        self._action = action
        self.when = self._armed = NEVER  # by the loop's seconds
        self._due: Due | None = None

    def set(self, seconds: float | None) -> float:
        """Set the timeout to `seconds` from now; None: never. Returns the loop's time now."""
        now = self._loop.time()
        self.when = when = NEVER if seconds is None else now + seconds
        if when < self._armed:
            self._arm(when)
        return now

    def clear(self) -> None:
        """Remove the timeout."""
        self.when = NEVER

    def close(self) -> None:
        """Clear it for good, and leave nothing scheduled. It lets its owner go: no circle is left."""
        self.when = self._armed = NEVER
        self._action = _nothing
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _arm(self, when: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._armed = when
        self._due = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._due = None
        self._armed = NEVER
        if self.when == NEVER:
            return
        if self.when > self._loop.time():
            self._arm(self.when)
            return
        self.when = NEVER
        self._action()


def _nothing() -> None:
    """Stand in for the action of a timer that is closed."""


class Batch:
    """The writes that wait for the end of an iteration of their event loop.

    A write that wakes its reader on another core takes several times as long as others. Of writes that are
    made together, only the first one does so.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, loop: Loop, call: Callable[[], None]) -> None:
        """Call at the end of this iteration of `loop`, after the calls that were added before."""
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
