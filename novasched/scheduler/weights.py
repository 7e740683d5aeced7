# SPDX-License-Identifier: Apache-2.0
"""The weights of hosts, and the table that keeps the answers of filters and weighers.

The table has a row for each host, and a column for each filter or weigher. A host is
the same object as long as nothing about the host changes. An answer is valid until the
host of its row becomes another object, so that a later request asks filters and
weighers about the changed hosts only.

A weigher gives a raw number for each host. The numbers are normalised, multiplied and
added. The operations on the numbers, and their order, are nova's, so that hosts of
equal weight in nova have equal weights here.

The weight of a host is always a finite number. Where nova's arithmetic gives NaN, which
has no place in an order, :func:`_without_nan` has the rules.
"""

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_not
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.decision import Contribution, HostWeight
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.changes import ChangeLog
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled, Scope
from novasched.scheduler.weighers import BatchWeigher, CandidatesWeigher, Weigher

LOG = logging.getLogger('nova.scheduler.utils')

Rows: TypeAlias = NDArray[np.intp]
"""The row of each host of a list, in the order of the list."""

Numbers: TypeAlias = NDArray[np.float64]
"""A number for each host of a list, in the order of the list."""


MAX_COLUMNS = 128
"""Maximum number of columns. The columns that were not used for longest are deleted."""

MAX_REASONS = 100_000
"""Maximum number of reasons against hosts in all columns together, some 15 MiB of text.
A single column may have more."""

SPARE_ROWS = 1000
"""Rows of hosts that no request asks for any more, in addition to as many rows as there
are hosts."""


@dataclass(eq=False, slots=True)
class Column:
    """The answers of a filter or a weigher, one in each row.

    :ivar fresh: True in the rows whose answer is valid.
    :ivar reasons: the reason of a filter against a host, by row.
    :ivar request: the request for which the answers are valid; None if the answers are
        valid for later requests, too.
    :ivar offer_version: the version of Placement's offer for which the answers are
        valid; 0 for an offer without a version.
    :ivar offer_keys: the parts of the offer that an answer depends on, by row.
    """

    values: NDArray[Any]
    fresh: NDArray[np.bool_]
    reasons: dict[int, str] = field(default_factory=dict)
    request: object = None
    offer_version: int = 0
    offer_keys: dict[int, Hashable] = field(default_factory=dict)

    def extend(self, number: int) -> None:
        """Append rows without an answer."""
        self.values = np.append(self.values, np.zeros(number, self.values.dtype))
        self.fresh = np.append(self.fresh, np.zeros(number, bool))


@dataclass(frozen=True, slots=True)
class _HostList:
    """A list of hosts and their rows."""

    hosts: Sequence[Host] = ()
    rows: Rows = field(default_factory=lambda: np.empty(0, np.intp))


def _changed(hosts: Sequence[Host], before: Iterable[Host]) -> list[int]:
    """The positions of the hosts that are other objects than before."""
    is_changed = np.fromiter(map(is_not, hosts, before), bool, len(hosts))
    changed: list[int] = np.flatnonzero(is_changed).tolist()
    return changed


@final
class HostTable:
    """Hosts in rows, and answers about the hosts in columns. Not thread-safe.

    :ivar hosts: the host in each row, as in the last list.
    :ivar request: identifies the current request.
    """

    def __init__(self) -> None:
        self.request: object = None
        self._clear()

    def _clear(self) -> None:
        self.hosts: list[Host] = []
        # The last list of many hosts, and the list that is expected next.
        self._last = _HostList()
        self._expected = _HostList()
        self._row_of: dict[str, int] = {}
        self._columns: dict[Hashable, Column] = {}
        # Sets of aggregates with their number, a host of each set, and the factors of
        # weighers for each set.
        self._sets: dict[tuple[Aggregate, ...], int] = {}
        self._one_of_each: list[Host] = []
        self._scales: dict[type, list[float]] = {}

    def rows(self, hosts: Sequence[Host]) -> Rows:
        """The rows of hosts. Answers about changed hosts are no longer valid."""
        if hosts is self._expected.hosts:
            return self._expected.rows

        for listed in (self._expected, self._last):
            if len(hosts) != len(listed.hosts):
                continue
            changed = _changed(hosts, listed.hosts)
            if all(hosts[i].uuid == listed.hosts[i].uuid for i in changed):
                rows = listed.rows
                break
        else:
            self._add_rows(hosts)
            rows = np.array([self._row_of[host.uuid] for host in hosts], np.intp)
            changed = _changed(hosts, map(self.hosts.__getitem__, rows.tolist()))
            self._last = _HostList(hosts, rows)

        if changed:
            changed_rows = rows[changed]
            for column in self._columns.values():
                column.fresh[changed_rows] = False
            for position, row in zip(changed, changed_rows.tolist(), strict=True):
                self.hosts[row] = hosts[position]
            self._last = _HostList(hosts, rows)
        self._expected = _HostList(hosts, rows)
        return rows

    def _add_rows(self, hosts: Sequence[Host]) -> None:
        """Append a row for each new host."""
        new = [host for host in hosts if host.uuid not in self._row_of]
        if new and len(self.hosts) + len(new) > 2 * len(hosts) + SPARE_ROWS:
            # No request asks for most of the hosts any more.
            self._clear()
            new = [*hosts]
        if not new:
            return

        for row, host in enumerate(new, len(self.hosts)):
            self._row_of[host.uuid] = row
        self.hosts += new
        for column in self._columns.values():
            column.extend(len(new))

    def expect(self, hosts: Sequence[Host], rows: Rows) -> None:
        """Expect the next call of :meth:`rows` for a part of the last hosts."""
        self._expected = _HostList(hosts, rows)

    def column(
        self, key: Hashable, rows: Rows, kind: type, lasting: bool
    ) -> tuple[Column, Rows]:
        """The column of a key, and the rows without a valid answer. The caller writes
        the answers, and marks them as fresh.

        :param kind: the type of the values.
        :param lasting: the answers are valid for later requests, too.
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
        # The column that was used last is the last in the dict.
        self._columns[key] = column
        if column.fresh.all():
            return column, rows[:0]
        return column, rows[~column.fresh[rows]]

    def forget_changed(self, column: Column, rows: Rows, changes: ChangeLog) -> Rows:
        """The rows without a valid answer, once answers about hosts with changed
        candidates are no longer fresh.

        :param changes: the version of the candidates, and the hosts changed since
            earlier versions.
        """
        column.fresh[self._changed_rows(column, changes)] = False
        return rows[~column.fresh[rows]]

    def _changed_rows(self, column: Column, changes: ChangeLog) -> NDArray[np.bool_]:
        """By row, True if the offer about the host may have changed since the offer of
        a column; all rows if the changes are unknown."""
        is_changed = np.zeros(len(self.hosts), bool)
        changed = changes.since(column.offer_version)
        if changed is None:
            is_changed[:] = True
        else:
            for uuid in changed & self._row_of.keys():
                is_changed[self._row_of[uuid]] = True
        return is_changed

    def compare_offer(
        self,
        column: Column,
        rows: Rows,
        changes: ChangeLog,
        read_keys: Callable[[Sequence[Host]], Sequence[Hashable]],
    ) -> Rows:
        """The rows without a valid answer, once answers that another offer of Placement
        has made invalid are no longer fresh.

        :param changes: the version of the offer, and the hosts changed since earlier
            versions.
        :param read_keys: returns the parts of the offer that the answers about some
            hosts depend on.
        """
        may_differ = self._changed_rows(column, changes)
        column.offer_version = changes.version

        is_asked_for = np.zeros(len(self.hosts), bool)
        is_asked_for[rows] = True
        # This request does not compare the offer of the remaining hosts, and later
        # requests would not find the changes again.
        column.fresh[may_differ & ~is_asked_for] = False

        may_differ |= ~column.fresh
        compared = np.flatnonzero(may_differ & is_asked_for).tolist()
        if compared:
            keys = read_keys([self.hosts[row] for row in compared])
            for row, key in zip(compared, keys, strict=True):
                if row not in column.offer_keys or column.offer_keys[row] != key:
                    column.offer_keys[row] = key
                    column.fresh[row] = False
        return rows[~column.fresh[rows]]

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
        """The factor of a weigher for each host.

        Hosts in the same aggregates have the same factor. If the metadata of aggregates
        is no number, the factor is the value of the option.
        """
        column, stale = self.column('aggregates', rows, int, lasting=True)
        if len(stale):
            if len(self._sets) > len(self.hosts) + SPARE_ROWS:
                # Most of the sets are of earlier aggregates.
                self._sets.clear()
                self._one_of_each.clear()
                self._scales.clear()
                stale = np.arange(len(self.hosts))
            column.values[stale] = self._numbers_of_sets(stale.tolist())
            column.fresh[stale] = True

        plugin = weigher.plugin
        scales = self._scales.setdefault(type(plugin), [])
        for host in self._one_of_each[len(scales) :]:
            scales.append(_scale(plugin, host))
        return np.array(scales, np.float64).take(column.values[rows])

    def _numbers_of_sets(self, rows: Sequence[int]) -> list[int]:
        """The number of the set of aggregates of each row. A new set gets a number."""
        numbers = []
        # Hosts in the same aggregates share the tuple, whose hash is slow.
        number_by_id: dict[int, int] = {}
        for row in rows:
            host = self.hosts[row]
            identity = id(host.aggregates)
            if identity not in number_by_id:
                number = self._sets.setdefault(host.aggregates, len(self._sets))
                if number == len(self._one_of_each):
                    self._one_of_each.append(host)
                number_by_id[identity] = number
            numbers.append(number_by_id[identity])
        return numbers


def _scale(plugin: Weigher, host: Host) -> float:
    """The factor of a weigher for a host."""
    try:
        return plugin.scale(host)
    except ValueError as error:
        LOG.warning(
            "Could not decode '%s' weight multiplier: %s", plugin.multiplier, error
        )
        return float(plugin.default_scale)


def no_clock() -> float:
    """A clock that stands still, for callers that need no durations."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the weights of hosts that a weigher adds.

    :ivar bounds: ``minval`` and ``maxval`` of the weigher.
    :ivar raw: may be NaN and infinite. The other numbers of a share in :class:`Weights`
        are finite.
    """

    name: str
    bounds: tuple[float | None, float | None]
    raw: Numbers
    normalised: Numbers
    scales: Numbers
    added: Numbers


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of hosts, in the order of the hosts.

    :ivar sums: the sums of the shares; finite numbers.
    :ivar seconds: the name of each weigher, and the duration of its call.
    :ivar failing_weighers: the names of weighers with a raw weight of NaN or infinity.
    """

    sums: Numbers
    shares: Sequence[Share] = ()
    seconds: Sequence[tuple[str, float]] = ()
    failing_weighers: Sequence[str] = ()

    def explain(self, index: int, host: Host) -> HostWeight:
        """The weight of the host at an index, with the contribution of each weigher, in
        finite numbers."""
        contributions = []
        for share in self.shares:
            raw: float | None = float(share.raw[index])
            if not math.isfinite(share.raw[index]):
                raw = None
            contributions.append(
                Contribution(
                    share.name,
                    raw,
                    float(share.normalised[index]),
                    float(share.scales[index]),
                    float(share.added[index]),
                )
            )
        total = float(self.sums[index])
        return HostWeight(host.host, host.nodename, total, tuple(contributions))


def weigh(
    weighers: Sequence[Enabled[Weigher]],
    hosts: Sequence[Host],
    request: Request,
    clock: Callable[[], float] = no_clock,
    table: HostTable | None = None,
    candidates: Candidates | None = None,
) -> Weights:
    """The weights of hosts, in the order of the hosts. As in nova, a single host is not
    weighed.

    :param clock: a monotonic clock in seconds.
    :param table: keeps the answers for later requests and instances.
    :param candidates: Placement's offer; None if Placement was not asked.
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
        if not weigher.applies(request):
            continue

        plugin = weigher.plugin
        with weigher, np.errstate(all='ignore'):
            if isinstance(plugin, BatchWeigher):
                scales = np.array([plugin.scale(host) for host in hosts])
            else:
                scales = table.scales(weigher, rows)
            if scales.any():
                raw = _raw_weights(plugin, hosts, rows, request, table, candidates)
                share = normalised(raw, plugin.minval, plugin.maxval)
                added = share * scales
                sums += added
                bounds = (plugin.minval, plugin.maxval)
                shares.append(Share(weigher.name, bounds, raw, share, scales, added))
        seconds.append((weigher.name, clock() - began))

    # A sum of many numbers is NaN or infinite if a single number is.
    with np.errstate(all='ignore'):
        if not math.isfinite(np.sum(sums)):
            return _without_nan(len(hosts), shares, seconds)
    return Weights(sums, shares, seconds)


def _without_nan(
    number: int, shares: Sequence[Share], seconds: Sequence[tuple[str, float]]
) -> Weights:
    """The weights where a raw weight or a multiplier is NaN or infinite.

    Hosts whose weights nova can compare keep nova's order. Beside these hosts:

    * An infinite raw weight counts as the greatest or least finite raw weight.
    * A host without a raw weight (NaN) gets as little as the host that gets least, and
      does not change the weights of the other hosts.
    * An infinite multiplier of 0 adds 0, and infinities of both signs add up to 0.

    :param number: the number of hosts.
    """
    finite_shares = []
    failing_weighers = []
    sums = np.zeros(number)
    for share in shares:
        if not np.isfinite(share.raw).all():
            failing_weighers.append(share.name)
        positions = np.zeros(number)
        added = np.zeros(number)

        weighed = ~np.isnan(share.raw)
        if weighed.any():
            positions[weighed] = _positions(share.raw[weighed], *share.bounds)
            products = positions[weighed] * share.scales[weighed]
            products[np.isnan(products)] = 0.0
            added[share.scales != 0] = np.min(products)
            added[weighed] = products

        sums += added
        # The largest number stands for infinity, which no decision record can hold.
        finite_share = replace(
            share,
            normalised=positions,
            scales=np.nan_to_num(share.scales),
            added=np.nan_to_num(added),
        )
        finite_shares.append(finite_share)

    return Weights(np.nan_to_num(sums), finite_shares, seconds, failing_weighers)


def _positions(raw: Numbers, minval: float | None, maxval: float | None) -> Numbers:
    """The normalised raw weights. A position that infinities make NaN is the position
    among the finite raw weights."""
    positions = normalised(raw, minval, maxval)
    if not np.isnan(positions).any():
        return positions
    finite = raw[np.isfinite(raw)]
    if not len(finite):
        return np.where(raw == math.inf, 1.0, 0.0)

    # The difference of two quarters is never infinite.
    least = np.min(finite) / 4
    greatest = np.max(finite) / 4
    quarters = np.nan_to_num(raw / 4, posinf=greatest, neginf=least)
    low = None if minval is None else minval / 4
    high = None if maxval is None else maxval / 4
    return np.where(np.isnan(positions), normalised(quarters, low, high), positions)


def _raw_weights(
    plugin: Weigher,
    hosts: Sequence[Host],
    rows: Rows,
    request: Request,
    table: HostTable,
    candidates: Candidates | None,
) -> Numbers:
    """The answers of a weigher. A weigher whose scope is the request is asked about
    the hosts without a valid answer in the table."""
    if isinstance(plugin, BatchWeigher) or plugin.scope is Scope.INSTANCE:
        return np.array(plugin.weigh_all(hosts, request), np.float64)

    key = plugin.request_key(request)
    lasting = key is not None
    if isinstance(plugin, CandidatesWeigher):
        lasting = lasting and _compares_offers(plugin)
    column, stale = table.column((type(plugin), key), rows, float, lasting)
    if lasting and isinstance(plugin, CandidatesWeigher):
        stale = table.compare_offer(
            column,
            rows,
            plugin.offer_changes(request, candidates),
            lambda hosts: plugin.offer_keys(hosts, request, candidates),
        )

    if len(stale):
        changed = [table.hosts[row] for row in stale.tolist()]
        if isinstance(plugin, CandidatesWeigher):
            answers = plugin.weigh_offered(changed, request, candidates)
        else:
            answers = plugin.weigh_all(changed, request)
        column.values[stale] = answers
        column.fresh[stale] = True
    values: Numbers = column.values[rows]
    return values


def _compares_offers(plugin: CandidatesWeigher) -> bool:
    """True if a weigher tells the parts of an offer that weights depend on."""
    return type(plugin).offer_keys is not CandidatesWeigher.offer_keys


def normalised(
    raw: Numbers, minval: float | None = None, maxval: float | None = None
) -> Numbers:
    """The position of each value between the lowest and the highest value, from 0 to 1;
    0 for equal values."""
    # The functions, since mypy does not accept raw.min() with the types of NumPy 2.5.
    low = np.min(raw) if minval is None else minval
    high = np.max(raw) if maxval is None else maxval
    if low == high:
        return np.zeros(len(raw))
    return (raw - low) / (high - low)
