# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, from the API database."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from novasched.cells import collations
from novasched.cells.change_tracking import (
    LARGE_BUCKET,
    ChangeTrackedTable,
    Columns,
    Row,
    no_columns,
    plain_row,
)
from novasched.cells.database import Database
from novasched.concurrency.single_flight import FROM_NOW, SingleFlight
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.collation import Collation
from novasched.scheduler.model.host import Aggregate

LOG = logging.getLogger('nova.scheduler.filters.utils')
NUMERIC_KEYS: Mapping[str, type[int] | type[float]] = {
    'cpu_allocation_ratio': float,
    'disk_allocation_ratio': float,
    'max_instances_per_host': int,
    'max_io_ops_per_host': int,
    'ram_allocation_ratio': float,
}
"""Metadata keys that override options of filters, with the type of their values. Keys
that override options of weighers are left out: as in nova, each weigher warns of its
own."""

AggregatesByHost = Mapping[str, tuple[Aggregate, ...]]


@dataclass(frozen=True, slots=True)
class AggregateState:
    """All aggregates at a moment.

    :ivar by_host: the aggregates by host name, oldest first. Hosts with equal
        aggregates share a tuple.
    :ivar changes: the log of host names with changed aggregates. Every state has a new
        version.
    """

    aggregates: AggregateList
    by_host: AggregatesByHost
    changes: ChangeLog


def _weights_and_collations(table: sa.Table) -> Columns:
    """The weights of the texts in ``aggregate_metadata``, and the names of the
    collations, so that another collation changes the digest of each row."""
    key = table.c.key
    value = table.c.value
    return [
        collations.weights(key).label('key_weights'),
        collations.weights(value).label('value_weights'),
        sa.func.collation(key).label('key_collation'),
        sa.func.collation(value).label('value_collation'),
    ]


class MetadataCollations:
    """The collations of metadata keys and metadata values in the API database. For one
    thread at a time.

    :ivar columns: makes the columns with which rows must be read.
    """

    def __init__(self, api: Database) -> None:
        self._api = api
        self._learned: Mapping[str, collations.TextWeights] = {}
        self.columns = no_columns
        if collations.has_weights(api.engine.dialect):
            self.columns = _weights_and_collations

    def refresh(self, connection: sa.Connection, rows: Collection[Row]) -> None:
        """Learn the collations of the rows, unless they are known."""
        if self.columns is no_columns:
            return
        learned = {}
        for row in rows:
            for name in (row.key_collation, row.value_collation):
                if name in self._learned:
                    learned[name] = self._learned[name]
                elif name not in learned:
                    learned[name] = collations.learn(self._api, connection, name)
            # All rows of a table have the collations of its columns.
            break
        self._learned = learned

    def of(self, rows: Sequence[Row]) -> tuple[Collation, Collation]:
        """The collations of keys and of values.

        :param rows: all rows.
        """
        if not self._learned:
            collation = collations.without_weights(self._api.engine.dialect)
            return collation, collation

        keys = self._learned[rows[0].key_collation]
        values = self._learned[rows[0].value_collation]
        return (
            keys.collation({row.key: row.key_weights for row in rows}),
            values.collation({row.value: row.value_weights for row in rows}),
        )


class AggregateReader:
    """Reads aggregates from the API database for every request, so changes count
    without the cast ``update_aggregates``. Implements
    :class:`novasched.scheduler.prefilters.Aggregates`.

    :ivar failing: True if the API database did not answer the last reading.
    """

    def __init__(self, api: Database) -> None:
        self.api = api
        self._records = ChangeTrackedTable(
            api, 'aggregates', ('uuid', 'name'), plain_row, bucket_size=LARGE_BUCKET
        )
        self._collations = MetadataCollations(api)
        self._metadata = ChangeTrackedTable(
            api,
            'aggregate_metadata',
            ('aggregate_id', 'key', 'value'),
            plain_row,
            self._collations.columns,
            bucket_size=LARGE_BUCKET,
        )
        self._members = ChangeTrackedTable(
            api,
            'aggregate_hosts',
            ('aggregate_id', 'host'),
            plain_row,
            bucket_size=LARGE_BUCKET,
        )
        self._warned: set[tuple[int, str, str]] = set()
        self._state: AggregateState | None = None
        self._stale = False
        self._collations_stale = True
        self.failing = False
        self._flights = SingleFlight(self._refresh)

    def all(self, since: float = FROM_NOW) -> AggregateList:
        """See :meth:`state`."""
        return self.state(since).aggregates

    def state(self, since: float = FROM_NOW) -> AggregateState:
        """The aggregates as of a moment or later; the same object while no aggregate
        changes.

        :param since: monotonic seconds.
        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._flights.at_least(since)

    def _refresh(self) -> AggregateState:
        """Read the aggregates. Aggregates change rarely, so the last state serves while
        the database does not answer."""
        failure = None
        try:
            self.api.read(self._read)
            if self._state is None or self._stale:
                self._state = self._built()
                self._stale = False
        except DatabaseUnavailable as error:
            if self._state is None:
                raise
            failure = error

        if failure and not self.failing:
            LOG.warning('Aggregates cannot be read, and stay as they were: %s', failure)
        if self.failing and not failure:
            LOG.info('Aggregates can be read again.')
        self.failing = failure is not None
        return self._state

    def _read(self, connection: sa.Connection) -> None:
        for table in (self._records, self._metadata, self._members):
            if table.refresh(connection):
                # Kept on self: the transaction may fail after this table, and the
                # next one no longer sees its change.
                self._stale = True
                self._collations_stale = True
        if self._collations_stale:
            self._collations.refresh(connection, self._metadata.values.values())
            self._collations_stale = False

    def _built(self) -> AggregateState:
        metadata_rows = _by_id(self._metadata)
        metadata: dict[int, dict[str, str]] = defaultdict(dict)
        for row in metadata_rows:
            metadata[row.aggregate_id][row.key] = row.value
            if row.key in NUMERIC_KEYS:
                self._check_number(row.aggregate_id, row.key, row.value)

        aggregates = {}
        for row in _by_id(self._records):
            aggregates[row.id] = Aggregate(row.id, row.uuid, row.name, metadata[row.id])

        ids_by_host: dict[str, list[int]] = defaultdict(list)
        for row in _by_id(self._members):
            if row.aggregate_id in aggregates:
                ids_by_host[row.host].append(row.aggregate_id)

        by_host = {}
        tuples_by_ids: dict[tuple[int, ...], tuple[Aggregate, ...]] = {}
        for host, unsorted_ids in ids_by_host.items():
            ids = tuple(sorted(unsorted_ids))
            if ids not in tuples_by_ids:
                tuples_by_ids[ids] = tuple(aggregates[id] for id in ids)
            by_host[host] = tuples_by_ids[ids]
        keys, values = self._collations.of(metadata_rows)
        searched = AggregateList(aggregates.values(), keys, values)
        return AggregateState(searched, by_host, self._changes(by_host))

    def _changes(self, by_host: AggregatesByHost) -> ChangeLog:
        """The log of the next state."""
        if self._state is None:
            return UNVERSIONED.with_step(by_host)

        before = self._state.by_host
        changed_names = set()
        for name in before.keys() | by_host.keys():
            if before.get(name) != by_host.get(name):
                changed_names.add(name)
        return self._state.changes.with_step(changed_names)

    def _check_number(self, aggregate: int, key: str, value: str) -> None:
        """Warn once of an invalid number: filters use the option instead."""
        try:
            NUMERIC_KEYS[key](value)
        except ValueError:
            if (aggregate, key, value) not in self._warned:
                self._warned.add((aggregate, key, value))
                LOG.warning(
                    "Could not decode %s: '%s' of aggregate %d", key, value, aggregate
                )


def _by_id(table: ChangeTrackedTable[Row]) -> list[Row]:
    return [table.values[key] for key in sorted(table.values)]
