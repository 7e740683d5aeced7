# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, from the API database."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

from novasched.cells.schema import Database
from novasched.model.host import Aggregate

LOG = logging.getLogger('nova.scheduler.filters.utils')
NUMBERS = (
    'cpu_allocation_ratio',
    'disk_allocation_ratio',
    'max_instances_per_host',
    'max_io_ops_per_host',
    'ram_allocation_ratio',
)
"""Metadata keys by which filters let an aggregate override an option. Those of weighers
are warned about where they are used, as in nova."""


class AggregateReader:
    """Reads aggregates as they are now; changes need no cast to be seen."""

    def __init__(self, api: Database) -> None:
        self.api = api
        self._warned: set[tuple[int, str, str]] = set()

    def having(self, key: str, value: str) -> Sequence[Aggregate]:
        """See :class:`novasched.prefilters.Aggregates`."""
        return [a for a in self.all() if a.metadata.get(key) == value]

    def all(self) -> Sequence[Aggregate]:
        """See :class:`novasched.prefilters.Aggregates`."""
        return list(self._all().values())

    def by_host(self) -> Mapping[str, tuple[Aggregate, ...]]:
        """Host name to its aggregates, in the order in which they were made."""
        aggregates = self._all()
        members: dict[str, list[Aggregate]] = defaultdict(list)
        statement = self.api.select('aggregate_hosts', ('aggregate_id', 'host'))
        for row in self.api.rows(statement):
            if row.aggregate_id in aggregates:
                members[row.host].append(aggregates[row.aggregate_id])
        return {
            host: tuple(sorted(found, key=lambda aggregate: aggregate.id))
            for host, found in members.items()
        }

    def _all(self) -> dict[int, Aggregate]:
        metadata: dict[int, dict[str, str]] = defaultdict(dict)
        for row in self.api.rows(
            self.api.select('aggregate_metadata', ('aggregate_id', 'key', 'value'))
        ):
            metadata[row.aggregate_id][row.key] = row.value
            if row.key in NUMBERS:
                self._check(row.aggregate_id, row.key, row.value)
        return {
            row.id: Aggregate(row.id, row.uuid, row.name, metadata[row.id])
            for row in self.api.rows(self.api.select('aggregates', ('id', 'uuid', 'name')))
        }

    def _check(self, aggregate: int, key: str, value: str) -> None:
        """Warn, once, of a value that is no number and so leaves the option in force."""
        try:
            float(value)
        except ValueError:
            if (aggregate, key, value) not in self._warned:
                self._warned.add((aggregate, key, value))
                LOG.warning("Could not decode %s: '%s' of aggregate %d", key, value, aggregate)
