"""The account of one exchange, from which its Outcome is made."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from univocal.engine.outcome import Outcome, Times
from univocal.engine.purge import Purged
from univocal.engine.recording import Recording
from univocal.http.errors import Failure
from univocal.judge.admission import Admission
from univocal.judge.cache_status import Handling

_UNHANDLED: Final = Handling()


class Account:
    """The status, the content and the times of an answer, and the reasons for it.

    `begun` is in seconds since the epoch, `ticks` and `first` (0: there was no head) are readings of the
    performance counter.
    """

    __slots__ = (
        "begun",
        "client",
        "failure",
        "first",
        "handling",
        "octets",
        "purged",
        "reasons",
        "recording",
        "server",
        "status",
        "ticks",
    )

    def __init__(self, begun: tuple[float, float], reasons: tuple[str, ...]) -> None:
        self.begun, self.ticks = begun
        self.first = 0.0
        self.status = 0  # 0: no head was sent
        self.octets = 0  # of content
        self.handling = _UNHANDLED
        self.reasons = reasons
        self.failure: Failure | None = None  # of the origin server
        self.purged: Purged | None = None
        self.recording: Recording | None = None  # of the response that Cache-Status calls stored
        self.server = ""  # the URL of the origin server that answered
        self.client = ""  # the client's name, under which its requests under way are counted

    def outcome(self, admission: Admission) -> Outcome:
        """The exchange's end, as listeners hear of it."""
        now = time.perf_counter()
        handling = self.handling
        if self.recording is not None and not self.recording.stored:
            # The response was too large, it was cut, or a purge met it.
            handling = replace(handling, stored=False, unstorable=self.recording.unstorable)
        times = Times(self.begun, (self.first or now) - self.ticks, now - self.ticks)
        return Outcome.of(
            admission,
            handling,
            self.status,
            self.octets,
            times,
            self.reasons,
            self.failure,
            self.purged,
            self.server,
        )
