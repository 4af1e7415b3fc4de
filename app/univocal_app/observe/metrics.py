"""Metrics for Prometheus: a listener that counts Outcomes, and gauges that are read from the store.

Each of several processes of one program counts in a file of a directory, which any of them reads and sums.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from univocal.engine.outcome import Outcome
from univocal.http.errors import Failure
from univocal.store.memory import MemoryStore
from univocal.store.redis.tier import SharedStore
from univocal_app.observe.counts import Counts, Name, numbers_of
from univocal_app.run.processes import Commons

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

REQUESTS: Final = "univocal_requests"
REFUSED: Final = "univocal_refused"
BYTES: Final = "univocal_sent_bytes"
ORIGIN_ERRORS: Final = "univocal_origin_errors"
SECONDS: Final = "univocal_request_seconds"
ENTRIES: Final = "univocal_stored_responses"
OCTETS: Final = "univocal_stored_bytes"
CONNECTED: Final = "univocal_shared_store_connected"
CONNECTIONS: Final = "univocal_connections"

COUNTERS: Final = {
    REQUESTS: (
        "Requests by site, by hit or the reason why they were forwarded, and by status class",
        ("site", "cache", "status"),
    ),
    REFUSED: (
        "Requests that were refused, or would have been (mode observe), by reason",
        ("site", "reason"),
    ),
    BYTES: ("Octets of content sent to clients", ("site",)),
    ORIGIN_ERRORS: (
        "Requests that an origin server did not answer, or not to the end, by reason",
        ("site", "origin", "reason"),
    ),
}
GAUGES: Final = {
    ENTRIES: "Stored responses in memory",
    OCTETS: "What the stored responses cost in memory",
    CONNECTED: "Whether the shared store tells this node what is purged",
    CONNECTIONS: "Open connections, by side: of clients, to origin servers",
}
LABELS: Final = {CONNECTIONS: ("side",)}  # of gauges that have any

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds
BUCKETS: Final = [floatToGoString(bound) for bound in (*BOUNDS, math.inf)]  # type: ignore[no-untyped-call]


class Metrics(Collector):
    """All that `/metrics` tells.

    No label takes its value from a client: sites, fixed reasons, status classes.

    With `commons` it tells what all processes there have counted, those that have ended included.
    """

    def __init__(
        self,
        store: MemoryStore,
        shared: SharedStore | None = None,
        commons: Commons | None = None,
        connections: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._store, self._shared = store, shared
        self._connections = connections
        self._directory = None if commons is None else commons.directory
        self._counts = Counts(None if commons is None else _file(commons.directory, commons.process))
        # By site, handling and class of status: the places of the requests, the octets and the seconds.
        self._places: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def __call__(self, outcome: Outcome) -> None:
        handling, times = outcome.handling, outcome.times
        seconds = times.total if outcome.status != 101 else times.first  # a tunnel lasts as long as it likes
        handled = "hit" if handling.hit else handling.fwd or "none"
        key = outcome.site, handled, outcome.status // 100
        requests, sent, buckets = self._places.get(key) or self._place(*key)
        cells = self._counts.cells
        cells[requests] += 1
        cells[sent] += outcome.bytes
        cells[buckets] += seconds
        cells[buckets + 1 + bisect_left(BOUNDS, seconds)] += 1
        for reason in outcome.reasons:
            place = self._counts.place((REFUSED, outcome.site, reason))
            self._counts.cells[place] += 1

    def failed(self, site: str, failure: Failure) -> None:
        """Count a request that an origin server did not answer, those that no client waits for included."""
        place = self._counts.place((ORIGIN_ERRORS, site, failure.origin, failure.reason))
        self._counts.cells[place] += 1

    def _place(self, site: str, handled: str, hundreds: int) -> tuple[int, int, int]:
        place = self._counts.place
        found = self._places[site, handled, hundreds] = (
            place((REQUESTS, site, handled, f"{hundreds}xx" if hundreds else "none")),
            place((BYTES, site)),
            place((SECONDS, handled), 1 + len(BUCKETS)),  # the sum of all before the numbers of each
        )
        return found

    def look(self) -> None:
        """Read the gauges; `exposition` does it for its own process alone."""
        self._set(ENTRIES, self._store.stats.entries)
        self._set(OCTETS, self._store.stats.bytes)
        if self._shared is not None:
            self._set(CONNECTED, self._shared.connected)
        for side, number in self._connections().items():
            self._set(CONNECTIONS, number, side)

    def _set(self, gauge: str, value: float, *labels: str) -> None:
        place = self._counts.place((gauge, *labels))
        self._counts.cells[place] = value

    def exposition(self) -> bytes:
        """All of it in Prometheus's text format, `CONTENT_TYPE_LATEST`."""
        self.look()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, as prometheus_client writes them."""
        told = self._told()
        for family, (documentation, labels) in COUNTERS.items():
            counter = CounterMetricFamily(family, documentation, labels=labels)
            for values, each in _of(told, family):
                counter.add_metric(values, sum(value for (value,) in each))
            yield counter
        documentation = "Seconds from a request's head to its response's last octet"
        histogram = HistogramMetricFamily(SECONDS, documentation, labels=("cache",))
        for values, each in _of(told, SECONDS):
            total, *numbers = map(sum, zip(*each, strict=True))
            histogram.add_metric(values, list(zip(BUCKETS, accumulate(numbers), strict=True)), total)
        yield histogram
        for family, documentation in GAUGES.items():
            gauge = GaugeMetricFamily(family, documentation, labels=LABELS.get(family, ()))
            for values, each in _of(told, family):
                living = [value for (value,) in each if not math.isnan(value)]
                if living:
                    gauge.add_metric(values, min(living) if family == CONNECTED else sum(living))
            if gauge.samples:
                yield gauge

    def _told(self) -> dict[Name, list[Sequence[float]]]:
        """The numbers under each name, of each process that has some."""
        if self._directory is None:
            return {name: [values] for name, values in self._counts}
        found: dict[Name, list[Sequence[float]]] = {}
        for file in sorted(self._directory.glob("*.counts")):
            for name, values in numbers_of(file):
                found.setdefault(name, []).append(values)
        return found

    def forget(self, process: str) -> None:
        """Take note that a process of the commons has ended: its counts stay, what it stored is gone."""
        assert self._directory is not None
        file = _file(self._directory, process)
        if file.exists():
            ended = Counts(file)
            for name, _ in ended:
                if name[0] in GAUGES:
                    ended.cells[ended.place(name)] = math.nan


def _of(told: dict[Name, list[Sequence[float]]], family: str) -> Iterator[tuple[Name, list[Sequence[float]]]]:
    for (name, *labels), each in told.items():
        if name == family:
            yield tuple(labels), each


def _file(directory: Path, process: str) -> Path:
    return directory / f"{process}.counts"
