"""All figures for Prometheus, as text, and for whoever else reads metrics."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from univocal_app.observe.counts import Name
from univocal_app.observe.families import BOUNDS, FAMILIES, SECONDS, Family
from univocal_app.observe.figures import Figures
from univocal_app.observe.series import FINE_BOUNDS

__all__ = ["Metrics"]

BUCKETS: Final = [floatToGoString(bound) for bound in (*BOUNDS, math.inf)]  # type: ignore[no-untyped-call]
# Of the sums up to each fine bound, those that are exposed.
_EXPOSED: Final = [FINE_BOUNDS.index(bound) for bound in BOUNDS] + [len(FINE_BOUNDS)]


class Metrics(Collector):
    """All that `/metrics` tells, of all processes, those that have ended included."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All of it, and its media type: Prometheus's text format, or OpenMetrics if Accept names that."""
        self.figures.look()
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, as prometheus_client writes them."""
        gathered = self._gathered()
        for name, family in FAMILIES.items():
            each = list(_of(gathered, name))
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
        for values, each in _of(self._gathered(), name):
            if living := [value for (value,) in each if not math.isnan(value)]:
                yield dict(zip(family.labels, values, strict=True)), family.of_several(living)

    def _gathered(self) -> dict[Name, list[Sequence[float]]]:
        """The numbers under each name, of each process that has some."""
        gathered: dict[Name, list[Sequence[float]]] = {}
        for numbers in self.figures.each():
            for name, values in numbers.items():
                gathered.setdefault(name, []).append(values)
        return gathered


@cache
def _build() -> dict[str, str]:
    return {"version": version("univocal"), "python": platform.python_version()}


_Each: TypeAlias = tuple[Name, list[Sequence[float]]]
"""The values of the labels, and the numbers of each process."""


def _of(gathered: dict[Name, list[Sequence[float]]], family: str) -> Iterator[_Each]:
    for (name, *labels), each in gathered.items():
        if name == family:
            yield tuple(labels), each


def _counter(name: str, family: Family, samples: Iterable[_Each]) -> Metric:
    counter = CounterMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in samples:
        counter.add_metric(values, family.of_several(value for (value,) in each))
    return counter


def _histogram(name: str, family: Family, samples: Iterable[_Each]) -> Metric:
    histogram = HistogramMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in samples:
        total, *numbers = map(sum, zip(*each, strict=True))
        sums = list(accumulate(numbers))
        if name == SECONDS:
            sums = [sums[place] for place in _EXPOSED]
        histogram.add_metric(values, list(zip(BUCKETS, sums, strict=True)), total)
    return histogram


def _gauge(name: str, family: Family, samples: Iterable[_Each]) -> Metric:
    gauge = GaugeMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in samples:
        if living := [value for (value,) in each if not math.isnan(value)]:
            gauge.add_metric(values, family.of_several(living))
    return gauge
