# SPDX-License-Identifier: Apache-2.0
"""How things stand, looked at every now and then by a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from novasched.metrics.catalogue import COUNTER, GAUGE, Metric
from novasched.metrics.instruments import Instruments

INTERVAL = 1.0  # seconds between two looks
ROOM = 10_000
"""So many values wait for the next look; older ones are forgotten."""

Found: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by their labels."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the value of a metric is read, or its values; a counter's never get less."""

    metric: Metric
    read: Callable[[], float | Found]


@dataclass(frozen=True, slots=True)
class Draining:
    """Values for a histogram, which whoever measures them leaves here."""

    metric: Metric
    values: deque[float]


class Sampler:
    """Takes over what has changed since its last look. One thread at a time looks."""

    def __init__(
        self,
        instruments: Instruments,
        readings: Sequence[Reading],
        drainings: Sequence[Draining] = (),
    ) -> None:
        self._instruments = instruments
        self._readings, self._drainings = readings, drainings
        self._before: dict[str, Found] = {}

    def __call__(self) -> None:
        """Look."""
        for reading in self._readings:
            value = reading.read()
            self._take(reading.metric, value if isinstance(value, Mapping) else {(): value})
        for draining in self._drainings:
            while draining.values:
                self._instruments.observe(draining.metric, draining.values.popleft())

    def _take(self, metric: Metric, found: Found) -> None:
        before = self._before.get(metric.name, {})
        self._before[metric.name] = found
        for labels, value in found.items():
            if metric.kind == COUNTER:
                self._instruments.add(metric, max(0, value - before.get(labels, 0)), *labels)
            else:
                self._instruments.set(metric, value, *labels)
        if metric.kind == GAUGE:
            for labels in before.keys() - found.keys():  # what is gone
                self._instruments.set(metric, 0, *labels)
