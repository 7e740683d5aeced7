# SPDX-License-Identifier: Apache-2.0
"""The nova-computes of the simulation, and the rows that nova-api and nova-conductor
write about servers. All write to the databases that the schedulers read."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as db
from novasched.tools.sandbox.computes import SandboxComputes, SandboxHost
from tests.lab.reports import a_numa_cell, a_numa_topology
from tests.simulation.devices import Device, cells_of, report_of
from tests.simulation.flavors import CELL_CPUS, CELLS, PINNED, PINNED_FLAVORS

CELL0 = 1
"""The id of cell0 in ``cell_mappings``; the cells with hosts follow."""


class Computes(SandboxComputes):
    """The nova-computes, by the name of their hosts. Each host has :data:`CELLS` NUMA
    cells, of which each takes one guest with dedicated CPUs.

    :param devices: the devices of the hosts that have devices.
    :param devices_on: returns the devices of a server on a host.
    """

    def __init__(
        self,
        databases: db.Databases,
        machines: Sequence[SandboxHost],
        devices: Mapping[str, Sequence[Device]],
        devices_on: Callable[[str, str], Collection[str]],
    ) -> None:
        super().__init__(databases, machines)
        self._devices = devices
        self._devices_on = devices_on

    def has_free_cell(self, host: str, devices: Collection[str]) -> bool:
        """True if a guest with dedicated CPUs fits on a host.

        :param devices: the devices of the guest, whose NUMA cell has to be free.
        """
        machine = self.machines[host]
        with self.databases.cells[machine.cell].begin() as connection:
            guests = _pinned_guests(connection, host)
        full = self._full_cells(host, guests)
        if devices:
            return full.isdisjoint(cells_of(self._devices[host], devices))
        return len(full) < CELLS

    def _full_cells(self, host: str, guests: Sequence[str]) -> Collection[int]:
        """The NUMA cells of guests with dedicated CPUs. A guest with devices is on their
        cell. A host without devices has other guests, on its first cells."""
        if host not in self._devices:
            return {*range(len(guests))}
        return cells_of(self._devices[host], self._taken_devices(host, guests))

    def _taken_devices(self, host: str, guests: Sequence[str]) -> Collection[str]:
        taken = set()
        for uuid in guests:
            taken.update(self._devices_on(uuid, host))
        return taken

    def _usage(self, connection: sa.Connection, machine: SandboxHost) -> dict[str, Any]:
        usage = super()._usage(connection, machine)
        guests = _pinned_guests(connection, machine.name)
        full = self._full_cells(machine.name, guests)
        cells = []
        for number in range(CELLS):
            cells.append(_numa_cell(number, is_taken=number in full))
        usage['numa_topology'] = a_numa_topology(*cells)

        taken = self._taken_devices(machine.name, guests)
        free = []
        for device in self._devices.get(machine.name, ()):
            if device.uuid not in taken:
                free.append(device)
        usage['pci_stats'] = report_of(tuple(free))
        return usage

    def ask_for(self, uuids: Sequence[str]) -> None:
        """Note servers for which a scheduler will be asked."""
        rows = [{'instance_uuid': uuid, 'project_id': 'project'} for uuid in uuids]
        with self.databases.api.begin() as connection:
            connection.execute(sa.insert(db.instance_mappings), rows)

    def bury(self, uuids: Sequence[str]) -> None:
        """Map servers that got no host to cell0."""
        self._map(uuids, CELL0)

    def create(self, uuid: str, flavor: Flavor, host: str) -> None:
        """Create the row of a server whose build begins."""
        machine = self.machines[host]
        row = {
            'uuid': uuid,
            'ephemeral_gb': 0,
            **_size(flavor),
            'vm_state': 'building',
            'task_state': 'scheduling',
            'created_at': timeutils.utcnow(),
            'project_id': 'project',
            'user_id': 'user',
        }
        with self.databases.cells[machine.cell].begin() as connection:
            connection.execute(sa.insert(db.instances).values(row))
        cells = [*self.databases.cells]
        self._map([uuid], CELL0 + 1 + cells.index(machine.cell))

    def name_host(self, uuid: str, host: str) -> None:
        """Write the host into the row of a server, which the host does not report
        yet."""
        values = {'host': host, 'node': host}
        with self.databases.cells[self.machines[host].cell].begin() as connection:
            self._change_row(connection, uuid, values)

    def report_usage(self, host: str) -> None:
        """Report the usage of a host."""
        with self.databases.cells[self.machines[host].cell].begin() as connection:
            self._change_node(connection, host)

    def build(self, uuid: str, host: str) -> None:
        """Run a server on its host."""
        values = {'host': host, 'node': host, 'vm_state': 'active', 'task_state': None}
        self._change(host, uuid, values)

    def fail(self, uuid: str, host: str) -> None:
        """Give up a server whose build has failed on a host."""
        self._change(host, uuid, {'vm_state': 'error', 'task_state': None})

    def set_disabled(self, host: str, is_disabled: bool) -> None:
        """Disable or enable the nova-compute of a host."""
        table = db.services
        statement = sa.update(table).where(table.c.host == host)
        with self.databases.cells[self.machines[host].cell].begin() as connection:
            connection.execute(statement.values(disabled=is_disabled))

    def set_zone(self, host: str, is_inside: bool) -> None:
        """Let a host join the aggregate of the availability zone, or leave it."""
        table = db.aggregate_hosts
        with self.databases.api.begin() as connection:
            if is_inside:
                row = {'aggregate_id': 1, 'host': host}
                connection.execute(sa.insert(table).values(row))
            else:
                connection.execute(sa.delete(table).where(table.c.host == host))

    def set_task(self, uuid: str, host: str, task: str | None) -> None:
        """Set the task of a server."""
        self._change(host, uuid, {'task_state': task})

    def move(
        self, uuid: str, source: str, destination: str, flavor: Flavor | None = None
    ) -> None:
        """Run a server on another host of its cell, with another flavor if one is
        given."""
        values = {'host': destination, 'node': destination, 'task_state': None}
        if flavor is not None:
            values.update(_size(flavor))
        self._change(destination, uuid, values)
        self._change(source, uuid, {})

    def begin_migration(self, uuid: str, source: str, kind: str) -> None:
        """Create the row of a migration."""
        values = {
            'instance_uuid': uuid,
            'source_compute': source,
            'migration_type': kind,
            'status': 'accepted',
        }
        with self.databases.cells[self.machines[source].cell].begin() as connection:
            connection.execute(sa.insert(db.migrations).values(values))

    def end_migration(self, uuid: str, source: str, status: str) -> None:
        """Set the status of the migration of a server from a host."""
        table = db.migrations
        statement = sa.update(table).where(
            table.c.instance_uuid == uuid,
            table.c.source_compute == source,
            table.c.status.in_(('accepted', 'done')),
        )
        with self.databases.cells[self.machines[source].cell].begin() as connection:
            connection.execute(statement.values(status=status))

    def offload(self, uuid: str, host: str) -> None:
        """Take a shelved server from its host."""
        values = {'host': None, 'node': None, 'vm_state': 'shelved_offloaded'}
        self._change(host, uuid, {**values, 'task_state': None})

    def delete(self, uuid: str, host: str) -> None:
        """Delete a server from its host."""
        self._change(host, uuid, {'deleted': db.instances.c.id})

    def _map(self, uuids: Sequence[str], cell: int) -> None:
        table = db.instance_mappings
        with self.databases.api.begin() as connection:
            statement = sa.update(table).where(table.c.instance_uuid.in_(uuids))
            connection.execute(statement.values(cell_id=cell))

    def _change(self, host: str, uuid: str, values: Mapping[str, Any]) -> None:
        """Change the row of a server, and report the usage of the host, at once."""
        with self.databases.cells[self.machines[host].cell].begin() as connection:
            self._change_row(connection, uuid, values)
            self._change_node(connection, host)

    def _change_row(
        self, connection: sa.Connection, uuid: str, values: Mapping[str, Any]
    ) -> None:
        table = db.instances
        statement = sa.update(table).where(table.c.uuid == uuid)
        now = timeutils.utcnow()
        connection.execute(statement.values(updated_at=now, **values))

    def _change_node(self, connection: sa.Connection, host: str) -> None:
        machine = self.machines[host]
        nodes = db.compute_nodes
        usage = self._usage(connection, machine)
        usage['updated_at'] = timeutils.utcnow()
        connection.execute(
            sa.update(nodes).where(nodes.c.uuid == machine.uuid).values(usage)
        )


def _size(flavor: Flavor) -> Mapping[str, Any]:
    """The columns of a server that follow from its flavor."""
    return {
        'vcpus': flavor.vcpus,
        'memory_mb': flavor.memory_mb,
        'root_gb': flavor.root_gb,
        'instance_type_id': flavor.id,
    }


def _pinned_guests(connection: sa.Connection, host: str) -> Sequence[str]:
    """The UUIDs of the guests with dedicated CPUs on a host."""
    table = db.instances
    select = sa.select(table.c.uuid).where(
        table.c.host == host,
        table.c.deleted == 0,
        table.c.instance_type_id.in_([flavor.id for flavor in PINNED_FLAVORS]),
    )
    return connection.execute(select).scalars().all()


def _numa_cell(number: int, is_taken: bool) -> dict[str, Any]:
    """A NUMA cell of a host, as nova-compute reports it."""
    first = number * CELL_CPUS
    pinned: range = range(0)
    memory_mb = 0
    if is_taken:
        pinned = range(first, first + PINNED.vcpus)
        memory_mb = PINNED.memory_mb
    return a_numa_cell(
        number,
        cores=CELL_CPUS,
        threads=1,
        memory=32768,
        pinned=pinned,
        cpu_usage=len(pinned),
        memory_usage=memory_mb,
    )
