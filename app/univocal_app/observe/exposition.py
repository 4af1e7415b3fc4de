"""The answer to a request for `/metrics`, as prometheus_client writes it; imported for the first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from univocal_app.observe import families, series

# The values of the labels, and the numbers of each process.
_Each: TypeAlias = tuple[Sequence[str], list[Sequence[float]]]
_Single: TypeAlias = CounterMetricFamily | GaugeMetricFamily
_SINGLE: Final[dict[str, type[_Single]]] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

_WRITTEN: Final[dict[float, str]] = {
    bound: floatToGoString(bound)  # type: ignore[no-untyped-call]
    for bound in (*families.ORIGIN_BOUNDS, math.inf)
}
# Of the sums up to each fine bound, those that are exposed.
_EXPOSED: Final = [series.FINE_BOUNDS.index(bound) for bound in families.BOUNDS] + [len(series.FINE_BOUNDS)]


def exposition(each: Callable[[str], Sequence[_Each]], accept: str) -> tuple[bytes, str]:
    """The text of all families and its media type: Prometheus's format, or OpenMetrics if Accept names that.

    `each` gives the numbers of a family by its name.
    """
    registry = CollectorRegistry()
    registry.register(_Families(each))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Families(Collector):
    def __init__(self, each: Callable[[str], Sequence[_Each]]) -> None:
        self._each = each

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, as prometheus_client writes them."""
        for name, family in families.FAMILIES.items():
            each = self._each(name)
            match family.kind:
                case "histogram":
                    yield _histogram(name, family, each)
                case "info":
                    yield InfoMetricFamily(name, family.documentation, families.build())
                case kind:
                    single = _single(_SINGLE[kind], name, family, each)
                    if kind == "counter" or single.samples:
                        yield single


def _single(kind: type[_Single], name: str, family: families.Family, samples: Iterable[_Each]) -> Metric:
    metric = kind(name, family.documentation, labels=family.labels)
    for values, each in samples:
        if (number := family.number(each)) is not None:
            metric.add_metric(values, number)
    return metric


def _histogram(name: str, family: families.Family, samples: Iterable[_Each]) -> Metric:
    histogram = HistogramMetricFamily(name, family.documentation, labels=family.labels)
    for values, each in samples:
        total, *numbers = map(sum, zip(*each, strict=True))
        sums = list(accumulate(numbers))
        if name == families.SECONDS:
            sums = [sums[place] for place in _EXPOSED]
        bounds = families.ORIGIN_BOUNDS if name == families.ORIGIN_SECONDS else families.BOUNDS
        written = [_WRITTEN[bound] for bound in (*bounds, math.inf)]
        histogram.add_metric(values, list(zip(written, sums, strict=True)), total)
    return histogram
