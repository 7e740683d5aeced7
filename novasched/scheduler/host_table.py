# SPDX-License-Identifier: Apache-2.0
"""The table that keeps the answers of filters and weighers about hosts.

The table has a row for each host, and a column for each filter or weigher. A host is
the same object as long as nothing about the host changes. An answer is valid until the
host of its row becomes another object, so that a later request asks filters and
weighers about the changed hosts only.
"""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.model.changes import ChangeLog
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.host_list import NO_HOST_LIST, HostList, HostRows, Rows
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers import Weigher

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.utils')

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


@final
class HostTable:
    """Hosts in rows, and answers about the hosts in columns. Not thread-safe.

    :ivar hosts: an array of objects: the host in each row, as in the last list.
    :ivar request: identifies the current request.
    """

    def __init__(self) -> None:
        self.request: object = None
        self._clear()

    def _clear(self) -> None:
        self.hosts = np.empty(0, object)
        # id() of each host. The table keeps the hosts alive, so that no other object
        # has the same number.
        self._ids = np.empty(0, np.intp)
        self._row_of: dict[str, int] = {}
        # The last hosts, and the row in the table for each row of these hosts.
        self._base = NO_HOST_LIST.base
        self._rows: Rows = np.empty(0, np.intp)
        self._columns: dict[Hashable, Column] = {}
        # Sets of aggregates with their number, a host of each set, and the factors of
        # weighers for each set.
        self._sets: dict[tuple[Aggregate, ...], int] = {}
        self._one_of_each: list[Host] = []
        self._scales: dict[type, Numbers] = {}

    def rows(self, hosts: HostList) -> Rows:
        """The rows of hosts. Answers about changed hosts are no longer valid."""
        base = hosts.base
        if base.row_of is not self._base.row_of:
            self._add_rows(base.row_of)
        if base is not self._base:
            self._replace_hosts(base)
        return self._rows[hosts.order]

    def _add_rows(self, uuids: Mapping[str, int]) -> None:
        """Look up the rows of compute nodes. A new compute node gets a row."""
        new = [uuid for uuid in uuids if uuid not in self._row_of]
        if new and len(self.hosts) + len(new) > 2 * len(uuids) + SPARE_ROWS:
            # No request asks for most of the hosts any more.
            self._clear()
            new = [*uuids]

        for row, uuid in enumerate(new, len(self.hosts)):
            self._row_of[uuid] = row
        self.hosts = np.append(self.hosts, np.empty(len(new), object))
        self._ids = np.append(self._ids, np.full(len(new), id(None)))
        for column in self._columns.values():
            column.extend(len(new))
        self._rows = np.array([*map(self._row_of.__getitem__, uuids)], np.intp)

    def _replace_hosts(self, base: HostRows) -> None:
        """Replace the hosts that are other objects than before."""
        is_changed = base.ids != self._ids[self._rows]
        changed = self._rows[is_changed]
        if len(changed):
            self.hosts[changed] = base.hosts[is_changed]
            self._ids[changed] = base.ids[is_changed]
            for column in self._columns.values():
                column.fresh[changed] = False
        self._base = base

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
            keys = read_keys(self.hosts[compared].tolist())
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

    def sets_of_aggregates(self, rows: Rows) -> Rows:
        """The number of the set of aggregates of each host."""
        column, stale = self.column('aggregates', rows, np.intp, lasting=True)
        if len(stale):
            if len(self._sets) > len(self.hosts) + SPARE_ROWS:
                # Most of the sets are of earlier aggregates.
                self._sets.clear()
                self._one_of_each.clear()
                self._scales.clear()
                stale = np.arange(len(self.hosts))
            column.values[stale] = self._numbers_of_sets(stale.tolist())
            column.fresh[stale] = True
        return column.values[rows]

    def scales(self, weigher: Enabled[Weigher], sets: Rows) -> Numbers:
        """The factor of a weigher for each host.

        Hosts in the same aggregates have the same factor. If the metadata of aggregates
        is no number, the factor is the value of the option.

        :param sets: the number of the set of aggregates of each host.
        """
        plugin = weigher.plugin
        scales = self._scales.get(type(plugin), np.empty(0))
        new = self._one_of_each[len(scales) :]
        if new:
            scales = np.append(scales, [_scale(plugin, host) for host in new])
            self._scales[type(plugin)] = scales
        return scales[sets]

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
