"""Samples become figures: medians with their spread, ratios of what was measured in the same round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.measuring import Results, Sample
from benchmarks.plan import Comparison

Rounds = Mapping[int, Sample]
Part = Callable[[Sample], float]


@dataclass(frozen=True)
class Figure:
    """The median of several rounds, the least and the greatest."""

    median: float
    least: float
    most: float


def by_clock(sample: Sample) -> float:
    """The count or the time of a sample."""
    return sample.value


def by_cpu(sample: Sample) -> float:
    """Requests per second of the server's CPU time; 0 for what is no rate."""
    return sample.per_cpu_second


def figure(numbers: Iterable[float]) -> Figure | None:
    """The figure of some numbers; None if there are none."""
    found = sorted(numbers)
    return Figure(statistics.median(found), found[0], found[-1]) if found else None


def ratio(results: Results, comparison: Comparison, part: Part) -> Figure | None:
    """The ratio of two measurements; rounds are compared in pairs, since the machine changes between them."""
    own = results.samples.get((comparison.measurement, comparison.server), {})
    other = results.samples.get(
        (comparison.against_measurement or comparison.measurement, comparison.against), {}
    )
    return figure(part(own[turn]) / part(other[turn]) for turn in own if turn in other and part(other[turn]))


def number(value: float) -> str:
    """Three significant digits, thousands separated: 0.164, 1.29, 12.9, 129, 12,900."""
    value = float(f"{value:.3g}")
    before = len(str(int(abs(value)))) if abs(value) >= 1 else 1 + math.floor(math.log10(abs(value) or 1))
    return f"{value:,.{max(0, 3 - before)}f}"
