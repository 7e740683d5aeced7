# SPDX-License-Identifier: Apache-2.0
"""Hosts in rows, and in columns what filters and weighers have answered about them; and
the weights of hosts: a column of numbers for each weigher, normalised, scaled and added
up.

A host is the same object as long as nothing about it changes. So an answer stands until
another object comes for its host, and a later request asks about the hosts that have
changed, no others.

The sums are nova's: the same operations on the same numbers in the same order, so that
hosts which weigh alike there weigh alike here.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.decision import Contribution, HostWeight
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled, Scope
from novasched.scheduler.weighers import BatchWeigher, CandidatesWeigher, Weigher

LOG = logging.getLogger('nova.scheduler.utils')

Rows: TypeAlias = NDArray[np.intp]
"""Numbers of rows: one for each host of a list, in its order."""

Numbers: TypeAlias = NDArray[np.float64]
"""One for each host, in their order."""


MAX_COLUMNS = 128
"""Columns that are kept: those that were asked for last."""

MAX_REASONS = 100_000
"""Maximum number of reasons against hosts in all columns together, some 15 MiB of text.
A single column may have more."""

SPARE_ROWS = 1000
"""Rows of hosts that are not asked for any more, beside as many as there are hosts."""


@dataclass(eq=False, slots=True)
class Column:
    """Answers, one in each row.

    :ivar fresh: True where the answer is about the host as it is.
    :ivar reasons: the texts that belong to answers, by row; none for hosts that pass.
    :ivar request: the one that they are for; None where they stand for later ones, too.
    """

    values: NDArray[Any]
    fresh: NDArray[np.bool_]
    reasons: dict[int, str] = field(default_factory=dict)
    request: object = None


@final
class HostTable:
    """Rows of hosts, each kept for as long as its host is asked for. Not thread-safe.

    :ivar hosts: the host in each row, as it was seen last.
    :ivar request: stands for the request in hand.
    """

    def __init__(self) -> None:
        self.hosts: list[Host] = []
        self.request: object = None
        # Lists of hosts with their rows, in which the hosts are as they were seen last.
        nothing: tuple[Sequence[Host], Rows] = (), np.empty(0, np.intp)
        self._all = nothing
        self._expected = nothing
        self._row_of: dict[str, int] = {}
        self._columns: dict[Hashable, Column] = {}
        # Aggregates that hosts are in together, a host in each, and the factors of
        # weighers there.
        self._sets: dict[tuple[Aggregate, ...], int] = {}
        self._one_of_each: list[Host] = []
        self._scales: dict[type, list[float]] = {}

    def rows(self, hosts: Sequence[Host]) -> Rows:
        """The rows of hosts, which are new, or have changed, if they are other objects
        than those that were there."""
        listed, rows = self._expected
        if hosts is listed:
            return rows
        for listed, its_rows in (self._expected, self._all):
            if len(hosts) == len(listed):
                others = np.flatnonzero(
                    np.fromiter(map(is_not, hosts, listed), bool, len(hosts))
                )
                alike = [hosts[i].uuid == listed[i].uuid for i in others.tolist()]
                if all(alike):
                    rows = its_rows
                    break
        else:
            new = [host for host in hosts if host.uuid not in self._row_of]
            if new and len(self.hosts) + len(new) > 2 * len(hosts) + SPARE_ROWS:
                self.__init__()  # most of the hosts are not asked for any more
                new = [*hosts]
            if new:
                first = len(self.hosts)
                self._row_of |= {host.uuid: first + i for i, host in enumerate(new)}
                self.hosts += new
                for each in self._columns.values():
                    each.values = np.append(
                        each.values, np.zeros(len(new), each.values.dtype)
                    )
                    each.fresh = np.append(each.fresh, np.zeros(len(new), bool))
            rows = np.array([self._row_of[host.uuid] for host in hosts], np.intp)
            known = map(self.hosts.__getitem__, rows.tolist())
            others = np.flatnonzero(
                np.fromiter(map(is_not, hosts, known), bool, len(hosts))
            )
            self._all = hosts, rows
        if len(others):
            for each in self._columns.values():
                each.fresh[rows[others]] = False
            for i in others.tolist():
                self.hosts[rows[i]] = hosts[i]
            self._all = hosts, rows
        self._expected = hosts, rows
        return rows

    def expect(self, hosts: Sequence[Host], rows: Rows) -> None:
        """Expect these hosts next, of those whose rows were asked for last."""
        self._expected = hosts, rows

    def column(
        self, key: Hashable, rows: Rows, kind: type, lasting: bool
    ) -> tuple[Column, Rows]:
        """The column of that key, and those of the rows whose answers are stale or not
        there: they are to be put in, and marked as fresh.

        :param kind: of its values.
        :param lasting: its answers stand for later requests, too.
        """
        column = self._columns.pop(key, None)
        if column is None:
            column = Column(
                np.zeros(len(self.hosts), kind), np.zeros(len(self.hosts), bool)
            )
            if len(self._columns) >= MAX_COLUMNS:
                del self._columns[next(iter(self._columns))]
        if not lasting and column.request is not self.request:
            column.request = self.request
            column.fresh[:] = False
            column.reasons.clear()
        self._columns[key] = column
        return column, rows[:0] if column.fresh.all() else rows[~column.fresh[rows]]

    def keep_reasons(
        self, column: Column, rows: Sequence[int], reasons: Sequence[str | None]
    ) -> None:
        """Keep the reasons of a filter in the column that was used last.

        Above :data:`MAX_REASONS` the columns that were not used for longest are
        deleted, and their filters are asked again.

        :param reasons: one for each row; None for a host that passes.
        """
        texts: dict[str, str] = {}  # a filter makes equal texts anew for each host
        for row, reason in zip(rows, reasons, strict=True):
            if reason is None:
                column.reasons.pop(row, None)
            else:
                column.reasons[row] = texts.setdefault(reason, reason)

        number = sum(len(other.reasons) for other in self._columns.values())
        for key, other in list(self._columns.items()):
            if number <= MAX_REASONS:
                break
            if other.reasons and other is not column:
                number -= len(other.reasons)
                del self._columns[key]

    def scales(self, weigher: Enabled[Weigher], rows: Rows) -> Numbers:
        """The factor of a weigher on each host. Hosts in the same aggregates have the
        same: the option's where the aggregates give a text that is no number."""
        column, stale = self.column('aggregates', rows, int, lasting=True)
        if len(stale):
            sets = self._sets
            one_of_each = self._one_of_each
            if (
                len(sets) > len(self.hosts) + SPARE_ROWS
            ):  # most are of aggregates as they were
                for each in (sets, one_of_each, self._scales):
                    each.clear()
                stale = np.arange(len(self.hosts))
            changed = [self.hosts[row] for row in stale.tolist()]
            numbers = {}  # most hosts share a tuple with others
            for identity, host in {
                id(each.aggregates): each for each in changed
            }.items():
                numbers[identity] = number = sets.setdefault(host.aggregates, len(sets))
                if number == len(one_of_each):
                    one_of_each.append(host)
            column.values[stale] = [numbers[id(each.aggregates)] for each in changed]
            column.fresh[stale] = True
        plugin = weigher.plugin
        scales = self._scales.setdefault(type(plugin), [])
        for host in self._one_of_each[len(scales) :]:
            try:
                scales.append(plugin.scale(host))
            except ValueError as error:  # metadata that is no number
                LOG.warning(
                    "Could not decode '%s' weight multiplier: %s",
                    plugin.multiplier,
                    error,
                )
                scales.append(float(plugin.default_scale))
        return np.array(scales, np.float64).take(column.values[rows])


def no_clock() -> float:
    """Stand still, where nobody asks for times."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the weights of hosts that comes from one weigher."""

    name: str
    raw: Numbers
    normalised: Numbers
    scales: Numbers
    added: Numbers


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of hosts in their order, and the shares that they are the sums of.

    :ivar seconds: the names of weighers, with the seconds that each took.
    """

    sums: Numbers
    shares: Sequence[Share] = ()
    seconds: Sequence[tuple[str, float]] = ()

    def explain(self, index: int, host: Host) -> HostWeight:
        """One host with the parts of its weight."""
        parts = []
        for each in self.shares:
            columns = each.raw, each.normalised, each.scales, each.added
            parts.append(
                Contribution(each.name, *[float(column[index]) for column in columns])
            )
        return HostWeight(
            host.host, host.nodename, float(self.sums[index]), tuple(parts)
        )


def weigh(
    weighers: Sequence[Enabled[Weigher]],
    hosts: Sequence[Host],
    request: Request,
    clock: Callable[[], float] = no_clock,
    table: HostTable | None = None,
    candidates: Candidates | None = None,
) -> Weights:
    """The weight of each host, in their order. A host alone is not weighed.

    :param table: keeps the answers for later requests, and for other instances of this
        one.
    :param candidates: Placement's offer; None where it was not asked.
    """
    sums = np.zeros(len(hosts))
    if len(hosts) < 2:
        return Weights(sums)
    table = table or HostTable()
    rows = table.rows(hosts)
    shares: list[Share] = []
    seconds: list[tuple[str, float]] = []
    for weigher in weighers:
        began = clock()
        plugin = weigher.plugin
        if not weigher.applies(request):
            continue
        with weigher, np.errstate(all='ignore'):
            if isinstance(plugin, BatchWeigher):
                scales = np.array([plugin.scale(host) for host in hosts])
            else:
                scales = table.scales(weigher, rows)
            if scales.any():
                if isinstance(plugin, BatchWeigher) or plugin.scope is Scope.INSTANCE:
                    raw = np.array(plugin.weigh_all(hosts, request), np.float64)
                else:
                    key = plugin.request_key(request)
                    column, stale = table.column(
                        (type(plugin), key), rows, float, key is not None
                    )
                    if len(stale):
                        changed = [table.hosts[row] for row in stale.tolist()]
                        if isinstance(plugin, CandidatesWeigher):
                            column.values[stale] = plugin.weigh_offered(
                                changed, request, candidates
                            )
                        else:
                            column.values[stale] = plugin.weigh_all(changed, request)
                        column.fresh[stale] = True
                    raw = column.values[rows]
                share = normalised(raw, plugin.minval, plugin.maxval)
                added = share * scales
                sums += added
                shares.append(Share(weigher.name, raw, share, scales, added))
        seconds.append((weigher.name, clock() - began))
    return Weights(sums, shares, seconds)


def normalised(
    raw: Numbers, minval: float | None = None, maxval: float | None = None
) -> Numbers:
    """Each value's place between the least and the greatest, 0 to 1; all 0 if equal."""
    # The functions, since mypy does not accept raw.min() with the types of NumPy 2.5.
    low = np.min(raw) if minval is None else minval
    high = np.max(raw) if maxval is None else maxval
    if low == high:
        return np.zeros(len(raw))
    return (raw - low) / (high - low)
