"""New connections that wait for their first answer: which does the origin server not serve yet? Pure.

Some origin servers have few workers (Apache's prefork, a thread for each connection). Further connections
wait in the system's queue until a worker is free. An idle connection holds a worker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

# Bounds of the seconds after which a new connection counts as held up.
SHORTEST: Final = 0.01
LONGEST: Final = 1.0

_TIMES: Final = 2  # the usual time of a first answer, so often, is too long
_WEIGHT: Final = 1 / 8  # of one answer in the usual time
_DOUBTFUL: Final = 1 / 64  # of one that may have been held up, or just slow
_MOST: Final = 1000  # connections closed that are remembered

Link = TypeVar("Link", bound=Hashable)


class FirstAnswers(Generic[Link]):
    """The new connections that may be in the origin server's queue, oldest first, and since when.

    The queue is served in order: an answer on a newer connection shows that none of the older ones is in it,
    however long their answers take. An interim response is no answer: a server in front of the workers may
    send it. Times are seconds of any one clock.
    """

    __slots__ = ("_closed", "_usual", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Link, float] = {}
        self._usual = math.inf  # seconds to a first answer that is not held up
        # The times at which connections were closed for those held up: each is served from then on.
        self._closed: deque[float] = deque(maxlen=_MOST)

    @property
    def patience(self) -> float:
        """The seconds that a first answer may take, infinite while none has ever come."""
        seconds = _TIMES * self._usual
        return seconds if seconds == math.inf else min(max(seconds, SHORTEST), LONGEST)

    @property
    def due(self) -> float:
        """The time from which on the oldest is held up."""
        for since in self.waiting.values():
            return since + self.patience
        return math.inf

    def sent(self, link: Link, now: float) -> None:
        """Record the first request over a new connection."""
        if not self.waiting:
            self._closed.clear()
        self.waiting[link] = now

    def answered(self, link: Link, now: float) -> None:
        """Handle the first answer on a connection."""
        since = self.waiting.get(link)
        if since is None:
            return
        self._learn(since, now)
        for older in tuple(self.waiting):
            del self.waiting[older]
            if older == link:
                return

    def _learn(self, since: float, now: float) -> None:
        seconds, weight = now - since, _WEIGHT
        if self._usual == math.inf:
            self._usual = seconds
            return
        if seconds > self.patience and self._closed:
            # Closings free workers in the order of the queue. It was served since the one that was its turn,
            # unless it was answered too soon after that: then it was served before, as far as can be known.
            served = now - max(since, self._closed[0])
            if served * _TIMES >= self._usual:
                self._closed.popleft()
                seconds = served
            else:
                weight = _DOUBTFUL
        self._usual += (seconds - self._usual) * weight

    def held_up(self, now: float) -> int:
        """The number of connections that have waited too long."""
        patience, count = self.patience, 0
        for since in self.waiting.values():
            if since + patience > now:
                break
            count += 1
        return count

    def relieved(self, now: float) -> None:
        """Count a connection that was closed for the sake of those held up."""
        self._closed.append(now)
