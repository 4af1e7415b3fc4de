"""Counters for Prometheus: a listener that counts Outcomes, and gauges read from the store when asked."""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from univocal.cache.shared import SharedStore
from univocal.cache.store import MemoryStore
from univocal.outcome import Outcome

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

# They would be a second series for each counter, which tells when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """What `/metrics` tells. No label takes its value from a client: sites, fixed reasons, status classes."""

    def __init__(self, store: MemoryStore, shared: SharedStore | None = None) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "univocal_requests",
            "Requests by site, by hit or the reason why they were forwarded, and by status class",
            ["site", "cache", "status"],
            registry=self._registry,
        )
        self._refused = Counter(
            "univocal_refused",
            "Requests that were refused, or would have been (mode observe), by reason",
            ["site", "reason"],
            registry=self._registry,
        )
        self._bytes = Counter(
            "univocal_sent_bytes", "Octets of content sent to clients", ["site"], registry=self._registry
        )
        self._seconds = Histogram(
            "univocal_request_seconds",
            "Seconds from a request's head to its response's last octet",
            ["cache"],
            buckets=SECONDS,
            registry=self._registry,
        )
        entries = Gauge("univocal_stored_responses", "Stored responses in memory", registry=self._registry)
        entries.set_function(lambda: store.stats.entries)
        octets = Gauge(
            "univocal_stored_bytes", "What the stored responses cost in memory", registry=self._registry
        )
        octets.set_function(lambda: store.stats.bytes)
        if shared is not None:
            connected = Gauge(
                "univocal_shared_store_connected",
                "Whether the shared store tells this node what is purged",
                registry=self._registry,
            )
            connected.set_function(lambda: shared.connected)

    def __call__(self, outcome: Outcome) -> None:
        handled = "hit" if outcome.handling.hit else outcome.handling.fwd or "none"
        status = f"{outcome.status // 100}xx" if outcome.status else "none"
        self._requests.labels(outcome.site, handled, status).inc()
        self._bytes.labels(outcome.site).inc(outcome.bytes)
        self._seconds.labels(handled).observe(outcome.times.total)
        for reason in outcome.reasons:
            self._refused.labels(outcome.site, reason).inc()

    def exposition(self) -> bytes:
        """All of it in Prometheus's text format, `CONTENT_TYPE_LATEST`."""
        return generate_latest(self._registry)
