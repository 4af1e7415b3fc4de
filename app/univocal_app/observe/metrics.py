"""All figures for Prometheus, as text, and for whoever else reads metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

from univocal_app.observe.counts import Name
from univocal_app.observe.families import FAMILIES
from univocal_app.observe.figures import Figures


class Metrics:
    """All that `/metrics` tells, of all processes, those that have ended included."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All of it, and its media type: Prometheus's text format, or OpenMetrics if Accept names that."""
        from univocal_app.observe.exposition import exposition  # noqa: PLC0415  start without prometheus_client

        self.figures.look()
        return exposition(partial(_of, self._gathered()), accept)

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


_Each: TypeAlias = tuple[Name, list[Sequence[float]]]
"""The values of the labels, and the numbers of each process."""


def _of(gathered: dict[Name, list[Sequence[float]]], family: str) -> Iterator[_Each]:
    for (name, *labels), each in gathered.items():
        if name == family:
            yield tuple(labels), each
