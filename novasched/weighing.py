# SPDX-License-Identifier: Apache-2.0
"""What hosts weigh: a column of numbers for each weigher, normalised, scaled and added up.

The sums are nova's: the same operations on the same numbers in the same order, so that
hosts which weigh alike there weigh alike here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import add, mul

from novasched.errors import blaming
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.records.looks import UNSEEN, Unseen
from novasched.records.record import Share
from novasched.weighers import Weigher

LOG = logging.getLogger('nova.scheduler.utils')
FEW = 8
"""Where more than one host in so many has changed or gone, all are weighed anew."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of hosts, the columns that they are the sums of, and the row of each host
    in these; without, they are in the same order."""

    sums: Sequence[float]
    columns: Sequence[Column] = ()
    rows: Sequence[int] | None = None

    def shares(self, place: int) -> list[Share]:
        """What each weigher adds to the weight of one host."""
        row = place if self.rows is None else self.rows[place]
        return [column.share(row) for column in self.columns]


class Weighing:
    """Weighs hosts. If it ``remembers``, what it did for one server of a request is brought
    up to date for the next: but for a few hosts that have changed or gone, the raw weights
    stay, and as long as the least and the greatest do, so do the normalised ones."""

    def __init__(self, weighers: Sequence[Weigher], remembers: bool = False) -> None:
        self.weighers = weighers
        self.remembers = remembers and all(each.once_per_host for each in weighers)
        # By row: a host keeps its row, whatever its place in the order.
        self._hosts: list[Host] = []
        self._rows: dict[str, int] = {}
        self._columns: list[Column] = []

    def weights(self, hosts: Sequence[Host], request: Request) -> Sequence[float]:
        """The weight of each host, in their order. A host alone is not weighed."""
        return self.weigh(hosts, request).sums

    def weigh(self, hosts: Sequence[Host], request: Request, look: Unseen = UNSEEN) -> Weights:
        """The same, with what it is made of, which is there until the next hosts are weighed.

        :param look: hears of each weigher.
        """
        if len(hosts) < 2:
            return Weights([0.0] * len(hosts))
        if not self.remembers or request.count < 2:
            columns = _columns(self.weighers, hosts, request, look)
            return Weights(_sums(columns, len(hosts)), columns)
        rows = [self._rows.get(host.uuid, -1) for host in hosts]
        if -1 in rows or not self._follow(hosts, rows, request, look):
            self._hosts = list(hosts)
            self._rows = {host.uuid: row for row, host in enumerate(hosts)}
            self._columns = _columns(self.weighers, hosts, request, look)
            rows = list(self._rows.values())
        sums = _sums(self._columns, len(self._hosts))
        return Weights([sums[row] for row in rows], self._columns, rows)

    def _follow(
        self, hosts: Sequence[Host], rows: Sequence[int], request: Request, look: Unseen
    ) -> bool:
        """Bring the columns up to date; False where that is no less work than new ones."""
        was = self._hosts
        changed = {row: host for row, host in zip(rows, hosts, strict=True) if host is not was[row]}
        if FEW * (len(changed) + len(was) - len(hosts)) > len(was):
            return False
        if any(host.aggregates is not was[row].aggregates for row, host in changed.items()):
            return False
        gone = set(self._rows.values()).difference(rows) if len(rows) < len(self._rows) else ()
        for row in gone:
            del self._rows[was[row].uuid]
        for row, host in changed.items():
            was[row] = host
        for column in self._columns:
            with blaming(column.weigher.name):
                column.follow(changed, gone, rows, request)
            look.weighed(column.weigher.name)
        return True


class Column:
    """What one weigher adds to the weights of hosts, row by row."""

    def __init__(
        self, weigher: Weigher, hosts: Sequence[Host], scales: Sequence[float], request: Request
    ) -> None:
        self.weigher = weigher
        self.scales = scales
        self.raw = list(weigher.weigh_all(hosts, request))
        self._normalise(self._bounds(self.raw))

    def follow(
        self,
        changed: Mapping[int, Host],
        gone: Collection[int],
        left: Sequence[int],
        request: Request,
    ) -> None:
        """Weigh the changed hosts anew, and the others where the bounds move by that.

        :param gone: the rows of hosts that are not there any more.
        :param left: those of all that are.
        """
        before = [self.raw[row] for row in (*changed, *gone)]
        for row, host in changed.items():
            (self.raw[row],) = self.weigher.weigh_all([host], request)
        after = [self.raw[row] for row in changed]
        low, high = bounds = self.bounds
        if not all(low < value < high for value in (*before, *after)):
            bounds = self._bounds([self.raw[row] for row in left])
        if bounds != self.bounds:
            self._normalise(bounds)
        else:
            for row in changed:
                (share,) = normalised([self.raw[row]], low, high)
                self.added[row] = share * self.scales[row]

    def share(self, row: int) -> Share:
        """What it adds to the weight of one host."""
        raw = self.raw[row]
        (place,) = normalised([raw], *self.bounds)
        return Share(self.weigher.name, raw, place, self.scales[row], self.added[row])

    def _bounds(self, raw: Sequence[float]) -> tuple[float, float]:
        low, high = self.weigher.minval, self.weigher.maxval
        return min(raw) if low is None else low, max(raw) if high is None else high

    def _normalise(self, bounds: tuple[float, float]) -> None:
        self.bounds = bounds
        self.added = list(map(mul, normalised(self.raw, *bounds), self.scales))


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


def _columns(
    weighers: Sequence[Weigher], hosts: Sequence[Host], request: Request, look: Unseen
) -> list[Column]:
    """The columns of the weighers that apply and whose scale is not 0 on every host."""
    aggregates = [id(host.aggregates) for host in hosts]
    one_of_each = dict(zip(aggregates, hosts, strict=True))
    columns = []
    for weigher in weighers:
        with blaming(weigher.name):
            if not weigher.applies(request):
                continue
            if weigher.scale_by_host:
                scales = [_scale(weigher, host) for host in hosts]
            else:
                known = {each: _scale(weigher, host) for each, host in one_of_each.items()}
                scales = [known[each] for each in aggregates]
            if any(scales):
                columns.append(Column(weigher, hosts, scales, request))
        look.weighed(weigher.name)
    return columns


def _scale(weigher: Weigher, host: Host) -> float:
    """The weigher's scale on a host; metadata that is no number leaves the option in force."""
    try:
        return weigher.scale(host)
    except ValueError as error:
        LOG.warning("Could not decode '%s' weight multiplier: %s", weigher.multiplier, error)
        return weigher.default_scale


def _sums(columns: Sequence[Column], size: int) -> list[float]:
    """The columns added up, in their order."""
    sums = [0.0] * size
    for column in columns:
        sums = list(map(add, sums, column.added))
    return sums
