# SPDX-License-Identifier: Apache-2.0
"""Weights of hosts: a column of numbers for each weigher, normalised, scaled and added up.

The sums are nova's: the same operations on the same numbers in the same order, so that
hosts which weigh alike there weigh alike here. For a further instance of a request the columns of
the one before are followed: but for a few hosts that have changed or gone the raw weights stay,
and as long as the least and the greatest do, so do the normalised ones.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add, attrgetter, mul

from novasched.scheduler.decision import Contribution, HostWeight
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled, Scope, equivalence_classes
from novasched.scheduler.weighers import BatchWeigher, Weigher

LOG = logging.getLogger('nova.scheduler.utils')


def no_clock() -> float:
    """Stand still, where nobody asks for times."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """The part of the weights of hosts that comes from one weigher, row by row."""

    weigher: Enabled[Weigher]
    raw: Sequence[float]
    scales: Sequence[float]
    bounds: tuple[float, float]
    added: Sequence[float]

    @classmethod
    def of(
        cls,
        weigher: Enabled[Weigher],
        raw: Sequence[float],
        scales: Sequence[float],
        bounds: tuple[float, float],
    ) -> 'Column':
        """Normalise raw weights between the bounds, and scale them."""
        added = list(map(mul, normalised(raw, *bounds), scales))
        return cls(weigher, raw, scales, bounds, added)

    def follow(
        self,
        changed: Mapping[int, Host],
        gone: Collection[int],
        rows: Sequence[int],
        request: Request,
    ) -> 'Column':
        """The column with the changed hosts weighed anew, and the others where the bounds move.

        :param gone: the rows of hosts that are not there any more.
        :param rows: those of all that are.
        """
        raw = list(self.raw)
        for row, host in changed.items():
            (raw[row],) = self.weigher.plugin.weigh_all([host], request)
        touched = [self.raw[row] for row in (*changed, *gone)] + [raw[row] for row in changed]
        low, high = bounds = self.bounds
        if not all(low < value < high for value in touched):
            bounds = _bounds(self.weigher.plugin, [raw[row] for row in rows])
        if bounds != self.bounds:
            return Column.of(self.weigher, raw, self.scales, bounds)
        added = list(self.added)
        for row in changed:
            (share,) = normalised([raw[row]], low, high)
            added[row] = share * self.scales[row]
        return replace(self, raw=raw, added=added)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of hosts in their order, and the columns that they are the sums of.

    :ivar rows: the row of each host in the columns.
    :ivar row_of: the same by the host's UUID, where a further instance may follow.
    :ivar seconds: the names of weighers, with the seconds that each took.
    """

    sums: Sequence[float]
    columns: Sequence[Column] = ()
    rows: Sequence[int] = ()
    row_of: Mapping[str, int] = field(default_factory=dict)
    seconds: Sequence[tuple[str, float]] = ()

    def explain(self, index: int, host: Host) -> HostWeight:
        """One host with the parts of its weight."""
        parts = []
        for column in self.columns:
            row = self.rows[index]
            raw, scale, added = column.raw[row], column.scales[row], column.added[row]
            (share,) = normalised([raw], *column.bounds)
            parts.append(Contribution(column.weigher.name, raw, share, scale, added))
        return HostWeight(host.host, host.nodename, self.sums[index], tuple(parts))


def weigh(
    weighers: Sequence[Enabled[Weigher]],
    hosts: Sequence[Host],
    request: Request,
    clock: Callable[[], float] = no_clock,
    before: Weights | None = None,
    changed: Collection[str] = (),
) -> Weights:
    """The weight of each host, in their order. A host alone is not weighed.

    :param before: the weights of these hosts, and perhaps of others, for the instance before.
    :param changed: the UUIDs of hosts that have changed since.
    """
    if len(hosts) < 2:
        return Weights([0.0] * len(hosts))
    seconds: list[tuple[str, float]] = []
    if before is not None and before.row_of:
        row_of = before.row_of
        rows: Sequence[int] = [row_of[host.uuid] for host in hosts]
        gone: Collection[int] = ()
        if len(rows) < len(row_of):
            gone = set(row_of.values()).difference(rows)
            row_of = {host.uuid: row for host, row in zip(hosts, rows, strict=True)}
        anew = {row_of[host.uuid]: host for host in hosts if host.uuid in changed}
        columns = []
        for column in before.columns:
            began = clock()
            with column.weigher:
                columns.append(column.follow(anew, gone, rows, request))
            seconds.append((column.weigher.name, clock() - began))
    else:
        rows, row_of = range(len(hosts)), {}
        columns = _new_columns(weighers, hosts, request, clock, seconds)
        if request.count > 1 and all(x.plugin.scope is not Scope.INSTANCE for x in weighers):
            row_of = {host.uuid: row for row, host in enumerate(hosts)}
    sums = [0.0] * len(columns[0].raw if columns else hosts)
    for column in columns:
        sums = list(map(add, sums, column.added))
    if row_of and columns:
        sums = [sums[row] for row in rows]
    return Weights(sums, columns, rows, row_of, seconds)


def _new_columns(
    weighers: Sequence[Enabled[Weigher]],
    hosts: Sequence[Host],
    request: Request,
    clock: Callable[[], float],
    seconds: list[tuple[str, float]],
) -> list[Column]:
    """The columns of the weighers that apply and whose scale is not 0 on every host."""
    aggregates = equivalence_classes([list(map(attrgetter('aggregates'), hosts))])
    columns = []
    for weigher in weighers:
        began, plugin = clock(), weigher.plugin
        if not weigher.applies(request):
            continue
        with weigher:
            # Hosts in the same aggregates have the same scale, but for a plugin's own rule.
            keys = range(len(hosts)) if isinstance(plugin, BatchWeigher) else aggregates
            by_key = {}
            for key, host in dict(zip(keys, hosts, strict=True)).items():
                try:
                    by_key[key] = plugin.scale(host)
                except ValueError as error:  # metadata that is no number
                    LOG.warning(
                        "Could not decode '%s' weight multiplier: %s", plugin.multiplier, error
                    )
                    by_key[key] = float(plugin.default_scale)
            scales = list(map(by_key.__getitem__, keys))
            if any(scales):
                raw = plugin.weigh_all(hosts, request)
                columns.append(Column.of(weigher, raw, scales, _bounds(plugin, raw)))
        seconds.append((weigher.name, clock() - began))
    return columns


def _bounds(weigher: Weigher, raw: Sequence[float]) -> tuple[float, float]:
    low, high = weigher.minval, weigher.maxval
    return min(raw) if low is None else low, max(raw) if high is None else high


def normalised(
    raw: Sequence[float], minval: float | None = None, maxval: float | None = None
) -> list[float]:
    """Each value's place between the least and the greatest, 0 to 1; all 0 if equal."""
    low = min(raw) if minval is None else minval
    high = max(raw) if maxval is None else maxval
    if low == high:
        return [0.0] * len(raw)
    width = high - low
    return [(value - low) / width for value in raw]
