# SPDX-License-Identifier: Apache-2.0
"""The metrics of one worker, in files that all workers' readers see."""

from __future__ import annotations

from typing import Any, Protocol

import prometheus_client
from prometheus_client import values

from novasched.metrics.catalogue import COUNTER, HISTOGRAM, METRICS, SECONDS, Metric


class Instruments:
    """What is counted here goes on from what the worker of the same number had counted that
    ran before.

    :param number: tells workers apart that run at the same time.
    """

    def __init__(self, number: int) -> None:
        values.ValueClass = values.MultiProcessValue(lambda: number)
        self._made = {metric.name: _made(metric) for metric in METRICS}

    def touch(self, metric: Metric, *labels: str) -> None:
        """Have it shown as 0 before anything happens."""
        self._of(metric, labels)

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Count something."""
        self._of(metric, labels).inc(amount)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Put a value into its bucket."""
        self._of(metric, labels).observe(value)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Say how something stands."""
        self._of(metric, labels).set(value)

    def _of(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        made = self._made[metric.name]
        return made.labels(*labels) if labels else made


class _Maker(Protocol):
    def __call__(self, *args: Any, **how: Any) -> Any: ...


def _made(metric: Metric) -> Any:
    makers: dict[str, tuple[_Maker, dict[str, Any]]] = {
        COUNTER: (prometheus_client.Counter, {}),
        HISTOGRAM: (prometheus_client.Histogram, {'buckets': SECONDS}),
    }
    gauge = (prometheus_client.Gauge, {'multiprocess_mode': metric.mode})
    make, how = makers.get(metric.kind, gauge)
    # They are read from the files alone.
    return make(metric.name, metric.help, metric.labels, registry=None, **how)
