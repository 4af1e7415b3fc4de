"""Counters for Prometheus: a listener that counts Outcomes, and gauges that are read from the store.

Several processes of one program count in files of a directory (prometheus_client's multiprocess mode), which
any of them reads and merges.
"""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
    values,
)

from univocal.engine.outcome import Outcome
from univocal.store.memory import MemoryStore
from univocal.store.redis.tier import SharedStore
from univocal_app.run.processes import Commons

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

# They would be a second series for each counter, which tells when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """What `/metrics` tells. No label takes its value from a client: sites, fixed reasons, status classes.

    With `commons` it tells what all processes there have counted, those that have ended included.
    """

    def __init__(
        self, store: MemoryStore, shared: SharedStore | None = None, commons: Commons | None = None
    ) -> None:
        self._store, self._shared, self._commons = store, shared, commons
        if commons is not None:
            # Every metric of this process that is made from now on; its name instead of the number that the
            # system gives it: so a process that is replaced leaves no file behind.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(commons.directory)
            values.ValueClass = values.MultiProcessValue(lambda: commons.process)  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        # Of each site, handling and class of status, found once: there are as many as the labels allow.
        self._counters: dict[tuple[str, str, str], tuple[Counter, Counter, Histogram]] = {}
        self._make_counters(self._registry)
        self._make_gauges(self._registry)

    def _make_counters(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "univocal_requests",
            "Requests by site, by hit or the reason why they were forwarded, and by status class",
            ["site", "cache", "status"],
            registry=registry,
        )
        self._refused = Counter(
            "univocal_refused",
            "Requests that were refused, or would have been (mode observe), by reason",
            ["site", "reason"],
            registry=registry,
        )
        self._bytes = Counter(
            "univocal_sent_bytes", "Octets of content sent to clients", ["site"], registry=registry
        )
        self._seconds = Histogram(
            "univocal_request_seconds",
            "Seconds from a request's head to its response's last octet",
            ["cache"],
            buckets=SECONDS,
            registry=registry,
        )

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        self._entries = Gauge(
            "univocal_stored_responses",
            "Stored responses in memory",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._octets = Gauge(
            "univocal_stored_bytes",
            "What the stored responses cost in memory",
            registry=registry,
            multiprocess_mode="livesum",
        )
        if self._shared is not None:
            self._connected = Gauge(
                "univocal_shared_store_connected",
                "Whether the shared store tells this node what is purged",
                registry=registry,
                multiprocess_mode="livemin",
            )

    def __call__(self, outcome: Outcome) -> None:
        handled = "hit" if outcome.handling.hit else outcome.handling.fwd or "none"
        status = f"{outcome.status // 100}xx" if outcome.status else "none"
        counters = self._counters.get((outcome.site, handled, status))
        if counters is None:
            counters = self._counters[outcome.site, handled, status] = (
                self._requests.labels(outcome.site, handled, status),
                self._bytes.labels(outcome.site),
                self._seconds.labels(handled),
            )
        requests, sent, seconds = counters
        requests.inc()
        sent.inc(outcome.bytes)
        seconds.observe(outcome.times.total)
        for reason in outcome.reasons:
            self._refused.labels(outcome.site, reason).inc()

    def look(self) -> None:
        """Read the gauges; `exposition` does it for its own process alone."""
        self._entries.set(self._store.stats.entries)
        self._octets.set(self._store.stats.bytes)
        if self._shared is not None:
            self._connected.set(self._shared.connected)

    def exposition(self) -> bytes:
        """All of it in Prometheus's text format, `CONTENT_TYPE_LATEST`."""
        self.look()
        if self._commons is None:
            return generate_latest(self._registry)
        merged = CollectorRegistry()
        multiprocess.MultiProcessCollector(merged, str(self._commons.directory))  # type: ignore[no-untyped-call]
        return generate_latest(merged)

    def forget(self, process: str) -> None:
        """A process of the commons has ended: what it counted stays, what it stored is gone."""
        assert self._commons is not None
        multiprocess.mark_process_dead(process, str(self._commons.directory))  # type: ignore[no-untyped-call]
