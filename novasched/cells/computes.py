# SPDX-License-Identifier: Apache-2.0
"""The compute nodes of one cell, kept in memory and brought up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.mappings import Cell
from novasched.cells.mirror import Mirror
from novasched.model.host import Host, Service
from novasched.model.settings import Settings

LOG = logging.getLogger('nova.scheduler.host_manager')
COMPUTE = 'nova-compute'


@dataclass(frozen=True, slots=True)
class State:
    """A cell at one moment: its hosts by compute node UUID, without their aggregates and
    servers; and of the servers that were asked about those that have arrived, with the
    host that each is on now (None for those that are gone)."""

    hosts: Mapping[str, Host]
    arrived: Mapping[str, str | None] = field(default_factory=dict)


class Computes:
    """A host is the same object as long as nothing about it changes, and so is the mapping
    of all of them."""

    def __init__(self, cell: Cell, settings: Settings) -> None:
        self.cell = cell
        self.settings = settings
        self._base = cell.database
        self._nodes = Mirror(self._base, 'compute_nodes', rows.COMPUTE_NODE)
        self._records = Mirror(self._base, 'services', rows.SERVICE, binary=COMPUTE)
        self._silent: frozenset[int] = frozenset()
        self._services: dict[str, Service] = {}
        self._hosts: Mapping[str, Host] = {}
        self._uuids: dict[int, str] = {}
        self._busy = threading.Lock()
        # What has changed and is not in _hosts yet: nodes by id, services by host name.
        self._new_nodes: set[int] = set()
        self._new_services: set[str] = set()

    def refresh(self, now: datetime, awaited: Collection[str] = ()) -> State:
        """The hosts as of now, and which servers out of ``awaited`` they show already.

        :raises DatabaseUnavailable: the cell does not answer.
        :raises TimeoutError: nor has it answered the last time yet.
        """
        if not self._busy.acquire(blocking=False):
            raise TimeoutError(self.cell.uuid)
        try:
            # Before the nodes: a server that is seen on its host is in what is read of the
            # host afterwards.
            arrived = self._arrived(awaited) if awaited else {}
            with self._base.transaction() as connection:
                self._refresh_services(connection, now)
                self._new_nodes.update(self._nodes.refresh(connection))
            self._rebuild()
            return State(self._hosts, arrived)
        finally:
            self._busy.release()

    def _arrived(self, awaited: Collection[str]) -> dict[str, str | None]:
        table = self._base.table('instances')
        columns = [table.c[name] for name in ('uuid', 'host', 'vm_state', 'task_state', 'deleted')]
        found = self._base.rows(sa.select(*columns).where(table.c.uuid.in_(awaited)))
        return {row.uuid: rows.place(row) for row in found if rows.has_arrived(row)}

    def _refresh_services(self, connection: sa.Connection, now: datetime) -> None:
        changed = self._records.refresh(connection)
        silent = frozenset(connection.execute(self._unheard(now)).scalars())
        if not changed and silent == self._silent:
            return
        before, self._silent = self._services, silent
        self._services = {
            row.host: rows.service(row, up=row.id not in silent)
            for row in self._records.rows.values()
        }
        names = before.keys() | self._services.keys()
        self._new_services |= {
            name for name in names if before.get(name) != self._services.get(name)
        }

    def _unheard(self, now: datetime) -> sa.Select[Any]:
        """The services that are not heard of in the last ``service_down_time`` seconds.

        One that was never heard of is as old as its row. The clocks of hosts differ, so that
        a heartbeat from the near future counts too.
        """
        table = self._base.table('services')
        heard = sa.func.coalesce(table.c.last_seen_up, table.c.created_at)
        while_up = timedelta(seconds=self.settings.service_down_time)
        late = sa.or_(heard.is_(None), heard < now - while_up, heard > now + while_up)
        return self._base.select('services', ('id',), binary=COMPUTE).where(late)

    def _rebuild(self) -> None:
        """Make the hosts anew whose node or service has changed."""
        stale = set(self._new_nodes)
        if self._new_services:
            nodes = self._nodes.rows.items()
            stale |= {key for key, row in nodes if row.host in self._new_services}
        if stale:
            hosts = dict(self._hosts)
            for key in stale & self._uuids.keys():
                hosts.pop(self._uuids.pop(key), None)
            for key in stale & self._nodes.rows.keys():
                if host := self._host(self._nodes.rows[key]):
                    hosts[host.uuid] = host
                    self._uuids[key] = host.uuid
            self._hosts = hosts
        self._new_nodes.clear()
        self._new_services.clear()

    def _host(self, row: Any) -> Host | None:
        service = self._services.get(row.host)
        if service is None:
            LOG.warning('No compute service record found for host %s', row.host)
            return None
        try:
            return rows.host(row, self.cell.uuid, service, self.settings)
        except (TypeError, ValueError) as error:
            LOG.warning('Compute node %s cannot be read: %s', row.hypervisor_hostname, error)
            return None
