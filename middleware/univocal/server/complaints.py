"""Complaints about clients, who choose how often there is one: a few a minute are written to the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

MOST: Final = 10
"""The number of complaints that are written in `SPAN`."""

SPAN: Final = 60.0
"""Seconds."""


class Complaints:
    """Writes warnings of what clients do, `MOST` of them in `SPAN` seconds, and counts those beyond."""

    __slots__ = ("_clock", "_logger", "_since", "_unwritten", "_written")

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._since = float("-inf")
        self._written = self._unwritten = 0

    def note(self, complaint: str) -> None:
        """Write a complaint, or count it."""
        now = self._clock()
        if now - self._since >= SPAN:
            if self._unwritten:
                self._logger.warning("%d more like these were not written", self._unwritten)
            self._since, self._written, self._unwritten = now, 0, 0
        if self._written == MOST:
            self._unwritten += 1
            return
        self._written += 1
        last = f" (more within {SPAN:.0f} s are counted, not written)" if self._written == MOST else ""
        self._logger.warning("%s%s", complaint, last)


COMPLAINTS: Final = Complaints(logging.getLogger("uvicorn.error"))
"""The complaints about all clients of this process."""
