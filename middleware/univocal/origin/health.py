"""Active health: checks of one path say that an origin server is up, or down.

An origin server starts up. `falls` failed checks in a row take it down, `rises` passed ones bring it back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_STATUSES: Final = re.compile(r"[1-5][0-9][0-9](?:-[1-5][0-9][0-9])?")
_ALLOWED: Final = 'status codes and ranges of them, from 100 to 599, such as "200-399" or "200, 204, 301-308"'


def statuses(text: str) -> frozenset[int]:
    """The status codes that `text` lists. Raises ValueError, which says what is allowed."""
    listed = set[int]()
    for part in text.split(","):
        if _STATUSES.fullmatch(part.strip()) is None:
            raise ValueError(_ALLOWED)
        first, _, last = part.strip().partition("-")
        codes = range(int(first), int(last or first) + 1)
        if not codes:
            raise ValueError(_ALLOWED)
        listed.update(codes)
    return frozenset(listed)


@dataclass(frozen=True, slots=True)
class HealthRule:
    """The settings of checks: a GET of `path` every `interval` seconds.

    It passes if the head of a response with one of the statuses comes within `timeout` seconds.
    """

    path: bytes
    interval: float = 5.0
    timeout: float = 2.0
    statuses: frozenset[int] = frozenset(range(200, 400))
    rises: int = 2
    falls: int = 3


class HealthJudge:
    """Judges one origin server, which is `up`, or not, until checks say otherwise."""

    __slots__ = ("_row", "_rule", "up")

    def __init__(self, rule: HealthRule, *, up: bool = True) -> None:
        self._rule = rule
        self._row = 0  # checks that contradict the state, one after the other
        self.up = up

    def adopt(self, *, up: bool) -> None:
        """Have the state that another process has found."""
        if up is not self.up:
            self.up, self._row = up, 0

    def hear(self, *, passed: bool) -> bool:
        """Record a check; True if it changes the state."""
        if passed is self.up:
            self._row = 0
            return False
        self._row += 1
        if self._row < (self._rule.falls if self.up else self._rule.rises):
            return False
        self.up, self._row = passed, 0
        return True
