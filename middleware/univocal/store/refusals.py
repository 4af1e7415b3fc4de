"""The log lines of a store that refuses responses, or writes too slowly for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

logger: Final = logging.getLogger("univocal")

# Seconds without a refusal after which a store takes responses again: one that is nearly full takes small
# ones between refusals.
STEADY: Final = 10.0
# Seconds between two lines of responses that came too fast.
EVERY: Final = 60.0


class Refusals:
    """Says once that a store refuses responses, with the reason, and once that it takes them again.

    `name` is the store's; `clock` gives seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name: Final = name
        self._clock: Final = clock
        self._since: float | None = None
        self._last = 0.0

    @property
    def lasts(self) -> bool:
        """True from the first refusal until the store takes responses again."""
        return self._since is not None

    def refused(self, reason: object) -> None:
        """Count a response that the store refused."""
        self._last = self._clock()
        if self._since is None:
            self._since = self._last
            logger.warning("%s cannot be written (%s): nothing more is stored there", self.name, reason)

    def stored(self) -> None:
        """Count a response that the store took."""
        if self._since is None or self._clock() - self._last < STEADY:
            return
        seconds, self._since = self._clock() - self._since, None
        logger.warning("%s can be written again, after %.1f seconds", self.name, seconds)


class Overflow:
    """Says that responses come faster than a store can write them, then every `EVERY` seconds how many came.

    `name` is the store's; `clock` gives seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name: Final = name
        self._clock: Final = clock
        self._count = 0
        self._since: float | None = None  # the last line; None when nothing has been lost since

    def dropped(self) -> None:
        """Count a response that is not written."""
        self._count += 1
        if self._since is None:
            self._since = self._clock()
            logger.warning(
                "%s: responses come faster than they can be written: some are not stored there", self.name
            )
        self.tell()

    def tell(self) -> None:
        """Say how many there were since the last line, if it is time for another."""
        if self._since is None or self._clock() - self._since < EVERY:
            return
        if not self._count:
            self._since = None
            return
        now = self._clock()
        logger.warning(
            "%s: in %.0f seconds %d responses came too fast to be written: they are not stored there",
            self.name,
            now - self._since,
            self._count,
        )
        self._count, self._since = 0, now
