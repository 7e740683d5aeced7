# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cell in memory."""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.change_tracking import (
    LARGE_BUCKET,
    ChangeTrackedTable,
    Row,
    plain_row,
)
from novasched.cells.database import Database
from novasched.cells.mappings import Cell
from novasched.cells.servicegroup import COMPUTE, ServiceGroup
from novasched.conf.settings import Settings
from novasched.scheduler.model.host import NO_HOSTS, Host, HostView, Service

LOG = logging.getLogger('nova.scheduler.host_manager')

NO_SERVICE = Service('')
"""The service of a host until its record is known."""


@dataclass(frozen=True, slots=True)
class CellRefresh:
    """The result of :meth:`CellHostCache.refresh`.

    :ivar view: all hosts, without aggregates and instances. The same object as before
        if no host has changed.
    :ivar freed: UUIDs of the hosts that have become freer (:func:`is_freer`) since the
        version known to the caller.
    :ivar minimum_version: the lowest version of nova-compute by :func:`lowest_version`.
    :ivar instances: rows of the pending instances by UUID, deleted instances included.
    :ivar changed_rows: number of new, changed and deleted rows.
    """

    view: HostView
    freed: frozenset[str]
    minimum_version: int
    instances: Mapping[str, Row]
    changed_rows: int


def is_freer(host: Host, before: Host | None) -> bool:
    """True if a host may take an instance that it could not take before: the host is
    new, has more resources left, or its service has changed."""
    return before is None or (
        host.service != before.service
        or host.free_ram_mb > before.free_ram_mb
        or host.free_disk_mb > before.free_disk_mb
        or host.vcpus_total - host.vcpus_used > before.vcpus_total - before.vcpus_used
        or host.num_instances < before.num_instances
    )


def lowest_version(records: Iterable[Any]) -> int:
    """The lowest version in rows of the services table; 0 if there is no version.

    As in nova, services forced down do not count, nor do versions other than numbers.
    """
    versions = []
    for row in records:
        if not row.forced_down and isinstance(row.version, int):
            versions.append(row.version)
    return min(versions, default=0)


class ComputeServices:
    """The nova-compute services of a cell. For one thread at a time.

    :ivar by_host: services by host name.
    :ivar minimum_version: see :func:`lowest_version`.
    """

    def __init__(self, database: Database, group: ServiceGroup) -> None:
        self.by_host: Mapping[str, Service] = {}
        self.minimum_version = 0
        self._group = group
        self._records = ChangeTrackedTable(
            database,
            'services',
            rows.SERVICE_COLUMNS,
            plain_row,
            lambda table: [group.late(table)],
            LARGE_BUCKET,
            binary=COMPUTE,
        )
        self._down: frozenset[int] = frozenset()
        # The next three last until they are handled: a reading that fails halfway is
        # repeated, and the second time the records count as unchanged.
        self._is_stale = False
        self._changed_hosts: set[str] = set()
        self._changed_rows = 0

    def refresh(self, connection: sa.Connection, now: datetime) -> None:
        """Read the changes, including services without a report in time."""
        changed = self._records.refresh(connection, **self._group.moment(now))
        if changed:
            self._is_stale = True
            self._changed_rows += len(changed)

        records = self._records.values
        # In memcached, a service also goes down without a changed row.
        if self._is_stale or not self._group.is_in_rows:
            down = self._group.down(COMPUTE, records)
            if self._is_stale or down != self._down:
                self._rebuild(records, down)

    def take_changed_hosts(self) -> set[str]:
        """The names of the hosts with a changed service since the last call."""
        names = self._changed_hosts
        self._changed_hosts = set()
        return names

    def take_changed_rows(self) -> int:
        """The number of new, changed and deleted rows since the last call."""
        number = self._changed_rows
        self._changed_rows = 0
        return number

    def _rebuild(self, records: Mapping[int, Any], down: frozenset[int]) -> None:
        before = self.by_host
        after = {}
        for id, row in records.items():
            after[row.host] = rows.service(row, up=id not in down)

        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                self._changed_hosts.add(name)

        self.by_host = after
        self.minimum_version = lowest_version(records.values())
        self._down = down
        self._is_stale = False


class CellHostCache:
    """Keeps the hosts of a cell up to date. A host is the same object as long as the
    host does not change, and so is the mapping of all hosts."""

    def __init__(self, cell: Cell, settings: Settings, group: ServiceGroup) -> None:
        self.cell = cell
        self.settings = settings
        self._services = ComputeServices(cell.database, group)
        self._nodes = ChangeTrackedTable(
            cell.database, 'compute_nodes', rows.COMPUTE_NODE_COLUMNS, self._host
        )
        # Held while the cell is read, so that one thread at a time does so.
        self._refresh_lock = threading.Lock()
        self._view = NO_HOSTS
        # UUIDs of the hosts in the view, by the id of the compute node.
        self._uuids: dict[int, str] = {}
        # Ids of compute nodes whose changes are not in the view yet.
        self._changed_nodes: set[int] = set()
        # UUIDs of freed hosts, with the version in which this was seen.
        self._freed: dict[str, int] = {}
        self._changed_rows = 0

    def refresh(
        self, now: datetime, pending: Collection[str] = (), known_version: int = 0
    ) -> CellRefresh:
        """Read all changes.

        :param pending: UUIDs of instances whose rows are wanted.
        :param known_version: the version of the last refresh whose result the caller
            has used. The result of a late refresh may have been dropped.
        :raises DatabaseUnavailable: the cell does not answer.
        :raises TimeoutError: an earlier refresh still waits for the cell.
        """
        if not self._refresh_lock.acquire(blocking=False):
            raise TimeoutError(self.cell.uuid)

        def read(connection: sa.Connection) -> Mapping[str, Row]:
            # Before the nodes: a host that already shows one of the instances in its
            # row then includes the instance in its resources, too. On the same
            # connection: another one may lead to a database that lags behind.
            instances: Mapping[str, Row] = {}
            uuids = list(filter(rows.may_be_uuid, pending))
            if uuids:
                instances = self._read_instances(connection, uuids)
            self._read(connection, now)
            return instances

        try:
            instances = self.cell.database.read(read)
            self._update_view()
            return self._result(instances, known_version)
        finally:
            self._refresh_lock.release()

    def _read_instances(
        self, connection: sa.Connection, uuids: Collection[str]
    ) -> Mapping[str, Row]:
        table = self.cell.database.table('instances')
        columns = [table.c[name] for name in rows.PENDING_INSTANCE_COLUMNS]
        select = sa.select(*columns).where(table.c.uuid.in_(uuids))
        return {row.uuid: row for row in connection.execute(select)}

    def _read(self, connection: sa.Connection, now: datetime) -> None:
        """Read all changes; may be repeated after a failure, which loses no change."""
        self._services.refresh(connection, now)
        changed = self._nodes.refresh(connection)
        self._changed_nodes |= changed
        self._changed_rows += len(changed)

    def _update_view(self) -> None:
        """Bring the view up to date with the tables."""
        stale = set(self._changed_nodes)
        if changed_services := self._services.take_changed_hosts():
            for id, node in self._nodes.values.items():
                if node is not None and node.host in changed_services:
                    stale.add(id)
        self._changed_nodes.clear()
        if not stale:
            return

        before = self._view.hosts
        hosts = dict(before)
        changed = set()
        freed = []
        for id in stale & self._uuids.keys():
            uuid = self._uuids.pop(id)
            hosts.pop(uuid, None)
            changed.add(uuid)

        for id in stale & self._nodes.values.keys():
            node = self._nodes.values[id]
            if node is None:
                continue
            service = self._services.by_host.get(node.host)
            if service is None:
                LOG.warning('No compute service record found for host %s', node.host)
                continue
            host = replace(node, service=service)
            hosts[node.uuid] = host
            self._uuids[id] = node.uuid
            changed.add(node.uuid)
            # Hosts of the first reading are not freed.
            if before and is_freer(host, before.get(node.uuid)):
                freed.append(node.uuid)

        if changed:
            self._view = HostView(hosts, self._view.changes.with_step(changed))
            self._freed |= dict.fromkeys(freed, self._view.changes.version)

    def _result(self, instances: Mapping[str, Row], known_version: int) -> CellRefresh:
        freed = {}
        for uuid, version in self._freed.items():
            if version > known_version:
                freed[uuid] = version
        # The caller knows the rest.
        self._freed = freed

        changed_rows = self._changed_rows + self._services.take_changed_rows()
        self._changed_rows = 0
        return CellRefresh(
            view=self._view,
            freed=frozenset(freed),
            minimum_version=self._services.minimum_version,
            instances=instances,
            changed_rows=changed_rows,
        )

    def _host(self, row: Any) -> Host | None:
        """A compute node as a host without service; None if the node has not reported
        yet, or is unreadable."""
        try:
            return rows.host(row, self.cell.uuid, NO_SERVICE, self.settings)
        except (TypeError, ValueError, RecursionError) as error:
            LOG.warning(
                'Compute node %s cannot be read: %s', row.hypervisor_hostname, error
            )
            return None
