"""Metrics for Prometheus: a listener that counts Outcomes, and gauges that are read from the store.

Each of several processes of one program counts in a file of a directory, which any of them reads and sums.
"""

from __future__ import annotations

import math
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from univocal.engine.outcome import Outcome
from univocal.forward.roles import OriginRequest
from univocal.http.errors import Failure
from univocal.http.messages import Fields
from univocal.store.memory import MemoryStore
from univocal.store.redis.tier import SharedStore
from univocal_app.observe.counts import Counts, Name, numbers_of
from univocal_app.processes.commons import Commons

__all__ = ["FAMILIES", "Family", "Metrics", "written"]

REQUESTS: Final = "univocal_requests"
REFUSED: Final = "univocal_refused"
BYTES: Final = "univocal_sent_bytes"
COLLAPSED: Final = "univocal_collapsed"
PURGES: Final = "univocal_purges"
EVICTIONS: Final = "univocal_evictions"
ORIGIN_REQUESTS: Final = "univocal_origin_requests"
ORIGIN_ERRORS: Final = "univocal_origin_errors"
ORIGIN_SECONDS: Final = "univocal_origin_seconds"
ORIGIN_UP: Final = "univocal_origin_up"
CPU: Final = "process_cpu_seconds"
SECONDS: Final = "univocal_request_seconds"
ENTRIES: Final = "univocal_stored_responses"
OCTETS: Final = "univocal_stored_bytes"
CONNECTED: Final = "univocal_shared_store_connected"
CONNECTIONS: Final = "univocal_connections"
STARTED: Final = "process_start_time_seconds"
BUILD: Final = "univocal_build"


class Family(NamedTuple):
    """One name of a metric; a counter's has "_total" at its end when it is told."""

    kind: Literal["counter", "histogram", "gauge", "info"]
    documentation: str
    labels: tuple[str, ...] = ()
    of_several: Callable[[Iterable[float]], float] = sum  # the number of several processes


FAMILIES: Final = {
    REQUESTS: Family(
        "counter",
        "Requests (without PURGE, BAN) by site, by hit or why they were forwarded, and by status class",
        ("site", "cache", "status"),
    ),
    REFUSED: Family(
        "counter",
        "Requests that were refused, or would have been (mode observe), by reason",
        ("site", "reason"),
    ),
    BYTES: Family("counter", "Octets of content sent to clients", ("site",)),
    COLLAPSED: Family("counter", "Requests that were answered by what another one brought", ("site",)),
    PURGES: Family("counter", "Purges that were carried out, by what they named", ("by",)),
    EVICTIONS: Family("counter", "Stored responses that gave way to others in memory"),
    ORIGIN_REQUESTS: Family(
        "counter",
        "Requests to origin servers, by the class of the status; none: no response came",
        ("site", "origin", "status"),
    ),
    ORIGIN_ERRORS: Family(
        "counter",
        "Requests that an origin server did not answer, or not to the end, by reason",
        ("site", "origin", "reason"),
    ),
    CPU: Family("counter", "Seconds of processor time, of all processes"),
    SECONDS: Family(
        "histogram",
        "Seconds from a request's head (not of PURGE, BAN) to its response's last octet",
        ("cache",),
    ),
    ORIGIN_SECONDS: Family(
        "histogram", "Seconds from a request to an origin server to the head of its response", ("site",)
    ),
    ENTRIES: Family("gauge", "Stored responses in memory"),
    OCTETS: Family("gauge", "What the stored responses cost in memory"),
    CONNECTED: Family("gauge", "Whether the shared store tells this node what is purged", of_several=min),
    CONNECTIONS: Family("gauge", "Open connections, by side: of clients, to origin servers", ("side",)),
    ORIGIN_UP: Family(
        "gauge",
        "1 for an origin server that is up, 0 for one that is ejected or down",
        ("site", "origin"),
        min,
    ),
    STARTED: Family("gauge", "Seconds since the epoch when the first process began", of_several=min),
    "process_resident_memory_bytes": Family("gauge", "Octets of memory that are in use, of all processes"),
    "process_virtual_memory_bytes": Family("gauge", "Octets of virtual memory, of all processes"),
    "process_open_fds": Family("gauge", "Open descriptors, of all processes"),
    "process_max_fds": Family("gauge", "Descriptors that there may be, of all processes"),
    BUILD: Family("info", "The version of univocal and of Python", ("version", "python")),
}

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds
BUCKETS: Final = [floatToGoString(bound) for bound in (*BOUNDS, math.inf)]  # type: ignore[no-untyped-call]


def written(name: str) -> str:
    """The name of a family as it is told, with its labels: as the reference has it."""
    family = FAMILIES[name]
    told = name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
    return f"{told}{{{','.join(family.labels)}}}" if family.labels else told


class Metrics(Collector):
    """All that `/metrics` tells.

    No label takes its value from a client: sites, origin servers, fixed words, status classes.

    With `commons` it tells what all processes there have counted, those that have ended included.
    """

    def __init__(
        self,
        store: MemoryStore,
        shared: SharedStore | None = None,
        commons: Commons | None = None,
        connections: Callable[[], Mapping[str, int]] = dict,
        origins: Callable[[], Mapping[tuple[str, str], bool]] = dict,
    ) -> None:
        """Count for a process; `origins` tells which are up, by site and the origin server's URL."""
        self._store, self._shared = store, shared
        self._connections, self._origins = connections, origins
        self._directory = None if commons is None else commons.directory
        self._counts = Counts(None if commons is None else _file(commons.directory, commons.process))
        # What others that had this process's name have counted before.
        self._evicted, self._cpu = (
            self._counts.cells[self._counts.place((name,))] for name in (EVICTIONS, CPU)
        )
        self._process = ProcessCollector(registry=None)
        # By site, handling and class of status: the places of the requests, the octets and the seconds.
        self._places: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        # Likewise by site, origin server and class of status, of requests to it; the seconds by site.
        self._origin_places: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def __call__(self, outcome: Outcome) -> None:
        if outcome.decision is not None:
            self._requested(outcome)
        elif outcome.bytes:  # the answer to a purge, which asks for no resource
            self._add(BYTES, outcome.site, by=outcome.bytes)
        if outcome.reasons:
            for reason in outcome.reasons:
                self._add(REFUSED, outcome.site, reason)
        if outcome.purged is not None and outcome.purged.count is not None:
            self._add(PURGES, outcome.purged.order.by)

    def _requested(self, outcome: Outcome) -> None:
        handling, times = outcome.handling, outcome.times
        seconds = times.total if outcome.status != 101 else times.first  # a tunnel lasts as long as it likes
        handled = "hit" if handling.hit else handling.fwd or "none"
        key = outcome.site, handled, outcome.status // 100
        requests, sent, buckets = self._places.get(key) or self._place(*key)
        cells = self._counts.cells
        count = outcome.alike
        cells[requests] += count
        cells[sent] += outcome.bytes * count
        cells[buckets] += seconds * count
        cells[buckets + 1 + bisect_left(BOUNDS, seconds)] += count
        if handling.collapsed:
            self._add(COLLAPSED, outcome.site)

    def watch(self, request: OriginRequest) -> OriginWatch:
        """Count what becomes of a request to origin servers, also if no client waits for it."""
        return OriginWatch(self, request.canonical.site.name)

    def answered(self, site: str, origin: str, status: int, seconds: float) -> None:
        """Count a response's head, which took so many seconds; with status 0, that none came."""
        key = site, origin, status // 100
        requests, buckets = self._origin_places.get(key) or self._origin_place(*key)
        cells = self._counts.cells
        cells[requests] += 1
        if status:
            cells[buckets] += seconds
            cells[buckets + 1 + bisect_left(BOUNDS, seconds)] += 1

    def _origin_place(self, site: str, origin: str, hundreds: int) -> tuple[int, int]:
        place = self._counts.place
        found = self._origin_places[site, origin, hundreds] = (
            place((ORIGIN_REQUESTS, site, origin, f"{hundreds}xx" if hundreds else "none")),
            place((ORIGIN_SECONDS, site), 1 + len(BUCKETS)),
        )
        return found

    def failed(self, site: str, failure: Failure) -> None:
        """Count a request that an origin server did not answer, or not to the end."""
        self._add(ORIGIN_ERRORS, site, failure.origin, failure.reason)

    def _add(self, *name: str, by: int = 1) -> None:
        place = self._counts.place(name)
        self._counts.cells[place] += by

    def _place(self, site: str, handled: str, hundreds: int) -> tuple[int, int, int]:
        place = self._counts.place
        found = self._places[site, handled, hundreds] = (
            place((REQUESTS, site, handled, f"{hundreds}xx" if hundreds else "none")),
            place((BYTES, site)),
            place((SECONDS, handled), 1 + len(BUCKETS)),  # the sum of all before the numbers of each
        )
        return found

    def look(self) -> None:
        """Read what is not counted here; `exposition` does it for its own process alone."""
        stats = self._store.stats
        self._set(ENTRIES, stats.entries)
        self._set(OCTETS, stats.bytes)
        self._set(EVICTIONS, self._evicted + stats.evictions)
        if self._shared is not None:
            self._set(CONNECTED, self._shared.connected)
        for side, number in self._connections().items():
            self._set(CONNECTIONS, number, side)
        up = self._origins()
        for name, *labels in [name for name, _ in self._counts if name[0] == ORIGIN_UP]:
            if tuple(labels) not in up:  # any more
                self._set(name, math.nan, *labels)
        for (site, origin), is_up in up.items():
            self._set(ORIGIN_UP, is_up, site, origin)
        for family in self._process.collect():
            (sample,) = family.samples
            self._set(family.name, sample.value + (self._cpu if family.name == CPU else 0))

    def _set(self, name: str, value: float, *labels: str) -> None:
        place = self._counts.place((name, *labels))
        self._counts.cells[place] = value

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All of it, and its media type: Prometheus's text format, or OpenMetrics if Accept names that."""
        self.look()
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, as prometheus_client writes them."""
        told = self._told()
        for name, family in FAMILIES.items():
            each = list(_of(told, name))
            match family.kind:
                case "counter":
                    yield _counter(name, family, each)
                case "histogram":
                    yield _histogram(name, family, each)
                case "gauge":
                    gauge = _gauge(name, family, each)
                    if gauge.samples:
                        yield gauge
                case "info":
                    yield InfoMetricFamily(name, family.documentation, _build())

    def numbers(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The numbers of a counter or a gauge, each with its labels, of all processes, as `look` left them.

        A thread of its own may ask, as it changes nothing.
        """
        family = FAMILIES[name]
        for values, each in _of(self._told(), name):
            if living := [value for (value,) in each if not math.isnan(value)]:
                yield dict(zip(family.labels, values, strict=True)), family.of_several(living)

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
                if name[0] in FAMILIES and FAMILIES[name[0]].kind == "gauge":
                    ended.cells[ended.place(name)] = math.nan


class OriginWatch:
    """One request on its way to origin servers (a `Watch`): the seconds that each of them takes."""

    __slots__ = ("_begun", "_metrics", "_site")

    def __init__(self, metrics: Metrics, site: str) -> None:
        self._metrics, self._site, self._begun = metrics, site, 0.0

    def sending(self, _: str, fields: Fields) -> Fields:
        """Begin to count."""
        self._begun = time.perf_counter()
        return fields

    def answered(self, origin: str, status: int) -> None:
        """Count the head of a response, or that there is none."""
        self._metrics.answered(self._site, origin, status, time.perf_counter() - self._begun)

    def failed(self, failure: Failure) -> None:
        """Count a failure."""
        self._metrics.failed(self._site, failure)


@cache
def _build() -> dict[str, str]:
    return {"version": version("univocal"), "python": platform.python_version()}


_Each: TypeAlias = tuple[Name, list[Sequence[float]]]
"""The values of the labels, and the numbers of each process."""


def _of(told: dict[Name, list[Sequence[float]]], family: str) -> Iterator[_Each]:
    for (name, *labels), each in told.items():
        if name == family:
            yield tuple(labels), each


def _counter(name: str, family: Family, told: Iterable[_Each]) -> Metric:
    counter = CounterMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in told:
        counter.add_metric(values, family.of_several(value for (value,) in each))
    return counter


def _histogram(name: str, family: Family, told: Iterable[_Each]) -> Metric:
    histogram = HistogramMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in told:
        total, *numbers = map(sum, zip(*each, strict=True))
        histogram.add_metric(values, list(zip(BUCKETS, accumulate(numbers), strict=True)), total)
    return histogram


def _gauge(name: str, family: Family, told: Iterable[_Each]) -> Metric:
    gauge = GaugeMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in told:
        if living := [value for (value,) in each if not math.isnan(value)]:
            gauge.add_metric(values, family.of_several(living))
    return gauge


def _file(directory: Path, process: str) -> Path:
    return directory / f"{process}.counts"
