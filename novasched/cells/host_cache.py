# SPDX-License-Identifier: Apache-2.0
"""The hosts of one cell in memory."""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.aggregates import AggregatesByHost
from novasched.cells.change_tracking import ChangeTrackedTable, plain_row
from novasched.cells.mappings import Cell
from novasched.cells.servicegroup import COMPUTE, ServiceGroup
from novasched.conf.settings import Settings
from novasched.scheduler.model.host import Host, Service

LOG = logging.getLogger('nova.scheduler.host_manager')

NO_SERVICE = Service('')
"""The service of a host while its record is not known."""


class _Merged(NamedTuple):
    """The hosts of a cell with their aggregates, and what they were made of."""

    bare: Mapping[str, Host] = {}
    aggregates: AggregatesByHost = {}
    hosts: Mapping[str, Host] = {}


def is_freer(host: Host, before: Host | None) -> bool:
    """True if a host may take what it did not take before: it is new, has more left, or
    its service has changed."""
    return before is None or (
        host.service != before.service
        or host.free_ram_mb > before.free_ram_mb
        or host.free_disk_mb > before.free_disk_mb
        or host.vcpus_total - host.vcpus_used > before.vcpus_total - before.vcpus_used
        or host.num_instances < before.num_instances
    )


def lowest_version(records: Iterable[Any]) -> int:
    """The lowest version in rows of the services table, by nova's rule: services that
    are forced down do not count, nor do versions that are no number. 0 where there is
    none."""
    versions = [row.version for row in records if not row.forced_down]
    return min((each for each in versions if isinstance(each, int)), default=0)


class CellHostCache:
    """Keeps the hosts of a cell up to date. A host is the same object as long as
    nothing about it changes, and so is the mapping of all hosts.

    :ivar minimum_version: the lowest version of nova-compute, without those that are
        forced down; 0 where there is none.
    """

    def __init__(self, cell: Cell, settings: Settings, group: ServiceGroup) -> None:
        self.cell = cell
        self.settings = settings
        self.minimum_version = 0
        self._group = group
        self._base = cell.database
        self._nodes = ChangeTrackedTable(
            self._base, 'compute_nodes', rows.COMPUTE_NODE_COLUMNS, self._host
        )
        self._records = ChangeTrackedTable(
            self._base,
            'services',
            rows.SERVICE_COLUMNS,
            plain_row,
            lambda table: [group.late(table)],
            binary=COMPUTE,
        )
        self._down: frozenset[int] = frozenset()
        self._records_changed = False
        self._services: dict[str, Service] = {}
        # By compute node UUID, without aggregates; and with them, as merged of what.
        self._hosts: Mapping[str, Host] = {}
        self._merged = _Merged()
        self._uuids: dict[int, str] = {}
        self._refreshing = threading.Lock()
        self._changes = 0
        # Changes that are not in _hosts yet: nodes by id, services by host name.
        self._changed_nodes: set[int] = set()
        self._changed_services: set[str] = set()
        self._freed: set[str] = set()

    def refresh(
        self, now: datetime, pending: Collection[str] = ()
    ) -> tuple[Mapping[str, Any], int]:
        """Bring the hosts up to date: the rows of the instances with these UUIDs, also
        of those that are deleted, and the number of rows that were new, changed or
        gone.

        :raises DatabaseUnavailable: the cell does not answer.
        :raises TimeoutError: an earlier refresh still waits for it.
        """
        if not self._refreshing.acquire(blocking=False):
            raise TimeoutError(self.cell.uuid)
        try:
            # Before the nodes: an instance that is seen on its host is included in what
            # is read of that host afterwards.
            if pending:
                instances = self._read_instances(pending)
            else:
                instances = {}
            self._base.read(lambda connection: self._read(connection, now))
            self._rebuild()
            changes = self._changes
            self._changes = 0
            return instances, changes
        finally:
            self._refreshing.release()

    def hosts(self, aggregates: AggregatesByHost) -> Mapping[str, Host]:
        """The hosts of the last refresh with their aggregates, by compute node UUID,
        without instances."""
        last = self._merged
        if last.bare is self._hosts and last.aggregates is aggregates:
            return last.hosts
        hosts = {}
        for uuid, host in self._hosts.items():
            own = aggregates.get(host.host, ())
            before = last.hosts.get(uuid)
            if before and last.bare[uuid] is host and before.aggregates == own:
                hosts[uuid] = before
            else:
                hosts[uuid] = replace(host, aggregates=own) if own else host
        self._merged = _Merged(self._hosts, aggregates, hosts)
        return hosts

    def freed(self) -> Collection[str]:
        """The hosts of which :func:`is_freer` was true in the last refreshes, told
        once."""
        freed = self._freed
        self._freed = set()
        return freed

    def _read_instances(self, uuids: Collection[str]) -> dict[str, Any]:
        def read(connection: sa.Connection) -> dict[str, Any]:
            table = self._base.table('instances')
            columns = [table.c[name] for name in rows.PENDING_INSTANCE_COLUMNS]
            select = sa.select(*columns).where(table.c.uuid.in_(uuids))
            return {row.uuid: row for row in connection.execute(select)}

        return self._base.read(read)

    def _read(self, connection: sa.Connection, now: datetime) -> None:
        """Read all changes; can be repeated wherever it has failed."""
        if changed := self._records.refresh(connection, **self._group.moment(now)):
            self._records_changed = True
            self._changes += len(changed)
        records = self._records.values
        down = self._group.down(COMPUTE, records)
        if self._records_changed or down != self._down:
            self._update_services(records, down)
        changed = self._nodes.refresh(connection)
        self._changes += len(changed)
        self._changed_nodes.update(changed)

    def _update_services(
        self, records: Mapping[int, Any], down: frozenset[int]
    ) -> None:
        before = self._services
        self._down = down
        self._records_changed = False
        self.minimum_version = lowest_version(records.values())
        self._services = {
            row.host: rows.service(row, up=row.id not in down)
            for row in records.values()
        }
        names = before.keys() | self._services.keys()
        self._changed_services |= {
            name for name in names if before.get(name) != self._services.get(name)
        }

    def _rebuild(self) -> None:
        stale = set(self._changed_nodes)
        if self._changed_services:
            nodes = self._nodes.values.items()
            stale |= {
                id for id, node in nodes if node and node.host in self._changed_services
            }
        if stale:
            before = self._hosts
            hosts = dict(self._hosts)
            for id in stale & self._uuids.keys():
                hosts.pop(self._uuids.pop(id), None)
            for id in stale & self._nodes.values.keys():
                node = self._nodes.values[id]
                if node and (service := self._services.get(node.host)):
                    hosts[node.uuid] = host = replace(node, service=service)
                    if before and is_freer(host, before.get(node.uuid)):
                        self._freed.add(node.uuid)
                    self._uuids[id] = node.uuid
                elif node:
                    LOG.warning(
                        'No compute service record found for host %s', node.host
                    )
            self._hosts = hosts
        self._changed_nodes.clear()
        self._changed_services.clear()

    def _host(self, row: Any) -> Host | None:
        """A compute node as a host without its service; None if there is nothing to
        read."""
        try:
            return rows.host(row, self.cell.uuid, NO_SERVICE, self.settings)
        except (TypeError, ValueError, RecursionError) as error:
            LOG.warning(
                'Compute node %s cannot be read: %s', row.hypervisor_hostname, error
            )
            return None
