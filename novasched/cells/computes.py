# SPDX-License-Identifier: Apache-2.0
"""The compute nodes of one cell, kept in memory and brought up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.mappings import Cell
from novasched.cells.mirror import Mirror
from novasched.cells.servicegroup import COMPUTE, Group
from novasched.model.host import Host, Service
from novasched.model.settings import Settings

LOG = logging.getLogger('nova.scheduler.host_manager')
NOBODY = Service('')
"""The service of a host while it is not known."""


@dataclass(frozen=True, slots=True)
class State:
    """A cell at one moment: its hosts by compute node UUID, without their aggregates and
    servers; of the servers that were asked about those that have arrived, with the host that
    each is on now (None for those that are gone); and how many rows were not as before."""

    hosts: Mapping[str, Host]
    arrived: Mapping[str, str | None] = field(default_factory=dict)
    changes: int = 0


class Computes:
    """A host is the same object as long as nothing about it changes, and so is the mapping
    of all of them."""

    def __init__(self, cell: Cell, settings: Settings, group: Group) -> None:
        self.cell = cell
        self.settings = settings
        self._group = group
        self._base = cell.database
        self._nodes = Mirror(self._base, 'compute_nodes', rows.COMPUTE_NODE, self._bare)
        self._records = Mirror(
            self._base, 'services', rows.SERVICE, lambda row: row, binary=COMPUTE.binary
        )
        self._silent: frozenset[int] = frozenset()
        self._stale = False
        self._services: dict[str, Service] = {}
        self._hosts: Mapping[str, Host] = {}
        self._uuids: dict[int, str] = {}
        self._busy = threading.Lock()
        self._changes = 0
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
            self._base.read(lambda connection: self._read(connection, now))
            self._rebuild()
            changes, self._changes = self._changes, 0
            return State(self._hosts, arrived, changes)
        finally:
            self._busy.release()

    def _arrived(self, awaited: Collection[str]) -> dict[str, str | None]:
        table = self._base.table('instances')
        columns = [table.c[name] for name in ('uuid', 'host', 'vm_state', 'task_state', 'deleted')]
        found = self._base.rows(sa.select(*columns).where(table.c.uuid.in_(awaited)))
        return {row.uuid: rows.place(row) for row in found if rows.has_arrived(row)}

    def _read(self, connection: sa.Connection, now: datetime) -> None:
        """Wherever it ends early, it can be done again."""
        if changed := self._records.refresh(connection):
            self._stale = True
            self._changes += len(changed)
        services = self._records.made
        silent = self._group.silent(self._base, connection, COMPUTE, services, now)
        if self._stale or silent != self._silent:
            self._judge(services, silent)
        changed = self._nodes.refresh(connection)
        self._changes += len(changed)
        self._new_nodes.update(changed)

    def _judge(self, services: Mapping[int, Any], silent: frozenset[int]) -> None:
        """See which services say or are something else than before."""
        before, self._silent, self._stale = self._services, silent, False
        self._services = {
            row.host: rows.service(row, up=row.id not in silent) for row in services.values()
        }
        names = before.keys() | self._services.keys()
        self._new_services |= {
            name for name in names if before.get(name) != self._services.get(name)
        }

    def _rebuild(self) -> None:
        """Make the hosts anew whose node or service has changed."""
        stale = set(self._new_nodes)
        if self._new_services:
            nodes = self._nodes.made.items()
            stale |= {key for key, node in nodes if node and node.host in self._new_services}
        if stale:
            hosts = dict(self._hosts)
            for key in stale & self._uuids.keys():
                hosts.pop(self._uuids.pop(key), None)
            for key in stale & self._nodes.made.keys():
                if host := self._served(self._nodes.made[key]):
                    hosts[host.uuid] = host
                    self._uuids[key] = host.uuid
            self._hosts = hosts
        self._new_nodes.clear()
        self._new_services.clear()

    def _served(self, node: Host | None) -> Host | None:
        """A compute node with its nova-compute."""
        if node is None:
            return None
        service = self._services.get(node.host)
        if service is None:
            LOG.warning('No compute service record found for host %s', node.host)
            return None
        return replace(node, service=service)

    def _bare(self, row: Any) -> Host | None:
        """A compute node by itself; None while there is nothing to be known of it."""
        try:
            return rows.host(row, self.cell.uuid, NOBODY, self.settings)
        except (TypeError, ValueError, RecursionError) as error:
            LOG.warning('Compute node %s cannot be read: %s', row.hypervisor_hostname, error)
            return None
