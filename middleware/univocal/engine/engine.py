"""The engine: all that exchanges share, whichever door they come through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from univocal.engine.audience import Audience, OutcomeListener
from univocal.engine.coding import CodedStreams
from univocal.engine.flight import Flights
from univocal.http.client_counts import ClientCounts
from univocal.http.roles import CallLater, Due
from univocal.judge.admission import Gate
from univocal.judge.hits import Hits


def _call_later(seconds: float, call: Callable[[], None]) -> Due:
    return asyncio.get_running_loop().call_later(seconds, call)


class Engine:
    """The gate, the flights, the audience and the clock (seconds since the epoch) of all exchanges.

    `call_later` calls after so many seconds; without it the running event loop does.
    """

    def __init__(
        self,
        gate: Gate,
        listeners: Sequence[OutcomeListener] = (),
        clock: Callable[[], float] = time.time,
        call_later: CallLater = _call_later,
        counters: Sequence[OutcomeListener] = (),
    ) -> None:
        self.gate = gate
        self.audience = Audience(listeners, counters, call_later)
        self.clock = clock
        self.call_later = call_later
        self.flights = Flights(gate, clock, call_later)
        self.hits = Hits(gate)
        self.under_way = ClientCounts()
        self.streams = CodedStreams()
        self.tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
