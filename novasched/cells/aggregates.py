# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, from the API database."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from novasched.cells.mirror import Mirror, Row
from novasched.cells.schema import Database
from novasched.errors import DatabaseUnavailable
from novasched.model.host import Aggregate
from novasched.turns import NOW, Turns

LOG = logging.getLogger('nova.scheduler.filters.utils')
NUMBERS: Mapping[str, type[int] | type[float]] = {
    'cpu_allocation_ratio': float,
    'disk_allocation_ratio': float,
    'max_instances_per_host': int,
    'max_io_ops_per_host': int,
    'ram_allocation_ratio': float,
}
"""Metadata keys by which filters let an aggregate override an option. Those of weighers
are warned about where they are used, as in nova."""


@dataclass(frozen=True, slots=True)
class State:
    """The aggregates at one moment. ``by_host`` has those of each host name in the order in
    which they were made; hosts with the same ones share the tuple."""

    aggregates: Sequence[Aggregate] = ()
    by_host: Mapping[str, tuple[Aggregate, ...]] = field(default_factory=dict)


class AggregateReader:
    """Reads aggregates as they are; changes need no cast to be seen.

    ``since`` is a moment (monotonic seconds) that what is told must not be older than.
    """

    def __init__(self, api: Database) -> None:
        self.api = api
        self._records = Mirror(api, 'aggregates', ('uuid', 'name'), _plain)
        self._metadata = Mirror(api, 'aggregate_metadata', ('aggregate_id', 'key', 'value'), _plain)
        self._members = Mirror(api, 'aggregate_hosts', ('aggregate_id', 'host'), _plain)
        self._warned: set[tuple[int, str, str]] = set()
        self._state = State()
        self._stale = self._failing = self._known = False
        self._turns = Turns(self._refresh)

    def having(self, key: str, value: str, since: float = NOW) -> Sequence[Aggregate]:
        """See :class:`novasched.prefilters.Aggregates`."""
        return [each for each in self.all(since) if each.metadata.get(key) == value]

    def all(self, since: float = NOW) -> Sequence[Aggregate]:
        """See :class:`novasched.prefilters.Aggregates`."""
        return self.state(since).aggregates

    def state(self, since: float = NOW) -> State:
        """The aggregates; the same object while nothing about them changes.

        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._turns.since(since)

    @property
    def failing(self) -> bool:
        """Whether the API database did not answer the last time."""
        return self._failing

    def _refresh(self) -> State:
        """What the API database says. While it says nothing, what it has said last: that
        changes rarely, and servers can go where they went before."""
        failure = None
        try:
            self.api.read(self._read)
        except DatabaseUnavailable as error:
            if not self._known:
                raise
            failure = error
        if failure and not self._failing:
            LOG.warning('Aggregates cannot be read, and stay as they were: %s', failure)
        if self._failing and not failure:
            LOG.info('Aggregates can be read again.')
        self._failing = failure is not None
        if self._stale and not failure:
            self._state = self._built()
            self._stale = False
        self._known = True
        return self._state

    def _read(self, connection: sa.Connection) -> None:
        for mirror in (self._records, self._metadata, self._members):
            if mirror.refresh(connection):
                self._stale = True

    def _built(self) -> State:
        metadata: dict[int, dict[str, str]] = defaultdict(dict)
        for row in _by_id(self._metadata):
            metadata[row.aggregate_id][row.key] = row.value
            if row.key in NUMBERS:
                self._check(row.aggregate_id, row.key, row.value)
        aggregates = {
            row.id: Aggregate(row.id, row.uuid, row.name, metadata[row.id])
            for row in _by_id(self._records)
        }
        members: dict[str, list[int]] = defaultdict(list)
        for row in _by_id(self._members):
            if row.aggregate_id in aggregates:
                members[row.host].append(row.aggregate_id)
        shared: dict[tuple[int, ...], tuple[Aggregate, ...]] = {}
        by_host = {}
        for host, found in members.items():
            ids = tuple(sorted(found))
            if ids not in shared:
                shared[ids] = tuple(aggregates[each] for each in ids)
            by_host[host] = shared[ids]
        return State(tuple(aggregates.values()), by_host)

    def _check(self, aggregate: int, key: str, value: str) -> None:
        """Warn, once, of a value that is no number and so leaves the option in force."""
        try:
            NUMBERS[key](value)
        except ValueError:
            if (aggregate, key, value) not in self._warned:
                self._warned.add((aggregate, key, value))
                LOG.warning("Could not decode %s: '%s' of aggregate %d", key, value, aggregate)


def _plain(row: Row) -> Row:
    return row


def _by_id(mirror: Mirror[Row]) -> list[Row]:
    return [mirror.made[key] for key in sorted(mirror.made)]
