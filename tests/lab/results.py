# SPDX-License-Identifier: Apache-2.0
"""What was measured of both schedulers, and what had to come out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tests.lab.tables import Sheet, verdict


@dataclass(frozen=True)
class Bound:
    """A figure, and the least or the most that it may be."""

    figure: float
    sign: str
    limit: float
    what: str = ''

    @property
    def met(self) -> bool:
        return self.figure <= self.limit if self.sign == '≤' else self.figure >= self.limit

    def __str__(self) -> str:
        figure = f'{self.figure:.3g} {self.what}'.strip()
        return f'{figure} ({self.sign} {self.limit:g}): {verdict(self.met)}'


@dataclass(frozen=True)
class Row:
    """A line of the table: medians, and for times what 95 of 100 do not exceed. Placement's
    figure is for the same queries made bare."""

    hosts: int
    what: str
    unit: str
    ours: float | None = None
    nova: float | None = None
    placement: float | None = None
    bounds: tuple[Bound, ...] = ()
    ours_p95: float | None = None
    nova_p95: float | None = None

    @classmethod
    def of_times(cls, hosts: int, what: str, ours: Sequence[float], nova: Sequence[float]) -> Row:
        """A line for times in seconds; nova may not have been asked."""
        every = [(share, times) for share in (50, 95) for times in (ours, nova)]
        figures = [at(times, share) * 1e3 if times else None for share, times in every]
        fast, slow, fast_p95, slow_p95 = figures
        return cls(hosts, what, 'ms', fast, slow, ours_p95=fast_p95, nova_p95=slow_p95)

    def bounded(self, *bounds: Bound) -> Row:
        """The line with what has to come out."""
        return replace(self, bounds=bounds)

    def report(self) -> dict[str, Any]:
        bounds = [{**asdict(bound), 'met': bound.met} for bound in self.bounds]
        return {**asdict(self), 'bounds': bounds}

    def texts(self) -> list[str]:
        every = (self.ours, self.ours_p95, self.nova, self.nova_p95, self.placement)
        figures = map(_figure, every)
        bounds = '\n'.join(map(str, self.bounds))
        return [f'{self.hosts:,}', self.what, self.unit, *figures, bounds]


def missed(rows: Sequence[Row]) -> int:
    return sum(not bound.met for row in rows for bound in row.bounds)


def sheet(rows: Sequence[Row], hosts: str = 'hosts') -> Sheet:
    columns = (
        *(hosts, 'what', 'unit', 'novasched', 'p95', 'nova-scheduler', 'p95', 'Placement'),
        'bound',
    )
    texts = [row.texts() for row in rows]
    return Sheet('novasched and nova-scheduler', columns, texts, words=3)


def at(times: Sequence[float], share: float) -> float:
    """What that share (percent) of the times does not exceed: the median for 50."""
    if share == 50:
        return median(times)
    return sorted(times)[math.ceil(len(times) * share / 100) - 1]


def _figure(value: float | None) -> str:
    if value is None:
        return ''
    return f'{value:,.0f}' if value == int(value) or value >= 100 else f'{value:,.3g}'
