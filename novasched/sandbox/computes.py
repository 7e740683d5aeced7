# SPDX-License-Identifier: Apache-2.0
"""What nova-manage and the nova-computes would write to the databases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from novasched.cells.mappings import CELL0
from novasched.model.host import AVAILABILITY_ZONE
from novasched.model.image_properties import IMAGE
from novasched.model.request import Flavor
from novasched.sandbox import databases as db
from novasched.sandbox.machines import Machine, stable_uuid
from novasched.sandbox.records import flavor_id

COMPUTE, TOPIC = 'nova-compute', 'compute'
SERVICE_VERSION = 74
"""What the services of nova 34.0.0 report."""

SUPPORTED = [['x86_64', 'qemu', 'hvm']]
HYPERVISOR, HYPERVISOR_VERSION = 'QEMU', 10000000


class Computes:
    """The nova-compute of every machine."""

    def __init__(
        self,
        databases: db.Databases,
        machines: Sequence[Machine],
        utcnow: Callable[[], datetime],
    ) -> None:
        self.databases = databases
        self.machines = {each.name: each for each in machines}
        self.utcnow = utcnow
        self._silent: set[str] = set()

    def deploy(self) -> None:
        """Map the cells and the hosts, make the zones, and start every nova-compute."""
        with self.databases.api.begin() as connection:
            self._map_cells(connection)
            self._make_zones(connection)
        for cell, engine in self.databases.cells.items():
            machines = [each for each in self.machines.values() if each.cell == cell]
            with engine.begin() as connection:
                _insert(connection, db.services, [self._service(each) for each in machines])
                _insert(connection, db.compute_nodes, [self._node(each) for each in machines])

    def offer(self, flavor: Flavor) -> None:
        """What ``openstack flavor create`` writes."""
        number = flavor_id(flavor)
        row = {
            'id': number,
            'name': flavor.name,
            'flavorid': flavor.flavorid,
            'vcpus': flavor.vcpus,
            'memory_mb': flavor.memory_mb,
            'root_gb': flavor.root_gb,
            'ephemeral_gb': flavor.ephemeral_gb,
            'swap': flavor.swap,
            'disabled': False,
            'is_public': True,
        }
        specs = [
            {'flavor_id': number, 'key': key, 'value': value}
            for key, value in flavor.extra_specs.items()
        ]
        with self.databases.api.begin() as connection:
            _insert(connection, db.flavors, [row])
            _insert(connection, db.flavor_extra_specs, specs)

    def report(self) -> None:
        """A heartbeat of every nova-compute that has not fallen silent."""
        now = self.utcnow()
        table = db.services
        statement = (
            sa.update(table)
            .where(table.c.binary == COMPUTE, table.c.host.not_in(self._silent))
            .values(last_seen_up=now, updated_at=now, report_count=table.c.report_count + 1)
        )
        for engine in self.databases.cells.values():
            with engine.begin() as connection:
                connection.execute(statement)

    def spawn(
        self,
        name: str,
        uuid: str,
        flavor: Flavor,
        image_properties: Mapping[str, str],
        **values: Any,
    ) -> None:
        """Run a server on a machine: a row of its own, and the host's usage anew. What
        its image says is kept with it, as nova-api does.

        :param values: further columns of the row
        """
        machine = self.machines[name]
        now = self.utcnow()
        row = {
            'uuid': uuid,
            'host': name,
            'node': name,
            'vcpus': flavor.vcpus,
            'memory_mb': flavor.memory_mb,
            'root_gb': flavor.root_gb,
            'ephemeral_gb': flavor.ephemeral_gb,
            'instance_type_id': flavor_id(flavor),
            'vm_state': 'active',
            'created_at': now,
            'launched_at': now,
            **values,
        }
        kept = [
            {'instance_uuid': uuid, 'key': f'{IMAGE}{key}', 'value': value}
            for key, value in image_properties.items()
        ]
        nodes = db.compute_nodes
        with self.databases.cells[machine.cell].begin() as connection:
            connection.execute(sa.insert(db.instances).values(row))
            _insert(connection, db.instance_system_metadata, kept)
            usage = {**self._usage(connection, machine), 'updated_at': now}
            connection.execute(sa.update(nodes).where(nodes.c.uuid == machine.uuid).values(usage))

    def disable(self, name: str, reason: str) -> None:
        """What ``openstack compute service set --disable`` writes."""
        self._set_service(name, disabled=True, disabled_reason=reason)

    def silence(self, name: str, since: timedelta) -> None:
        """Let a nova-compute have died so long ago."""
        self._silent.add(name)
        self._set_service(name, last_seen_up=self.utcnow() - since)

    def _set_service(self, name: str, **values: Any) -> None:
        table = db.services
        statement = sa.update(table).where(table.c.host == name, table.c.binary == COMPUTE)
        with self.databases.cells[self.machines[name].cell].begin() as connection:
            connection.execute(statement.values(values))

    def _map_cells(self, connection: sa.Connection) -> None:
        names = list(self.databases.cells)
        cells = [
            {'id': number, 'uuid': uuid, 'name': name, 'disabled': False, 'transport_url': 'none:',
             'database_connection': self.databases.url(file)}
            for number, (uuid, name, file) in enumerate(
                [(CELL0, 'cell0', 'main'), *((cell_uuid(x), x, x) for x in names)], start=1
            )
        ]  # fmt: skip
        _insert(connection, db.cell_mappings, cells)
        ids = {each['name']: each['id'] for each in cells}
        hosts = [{'host': x.name, 'cell_id': ids[x.cell]} for x in self.machines.values()]
        _insert(connection, db.host_mappings, hosts)

    def _make_zones(self, connection: sa.Connection) -> None:
        """One aggregate for each zone, with the zone's name."""
        in_zones = sorted((x.zone, x.name) for x in self.machines.values() if x.zone)
        for number, (zone, members) in enumerate(
            itertools.groupby(in_zones, key=lambda pair: pair[0]), start=1
        ):
            aggregate = {'id': number, 'uuid': zone_uuid(zone), 'name': zone}
            metadata = {'aggregate_id': number, 'key': AVAILABILITY_ZONE, 'value': zone}
            hosts = [{'aggregate_id': number, 'host': name} for _, name in members]
            _insert(connection, db.aggregates, [aggregate])
            _insert(connection, db.aggregate_metadata, [metadata])
            _insert(connection, db.aggregate_hosts, hosts)

    def _service(self, machine: Machine) -> dict[str, Any]:
        now = self.utcnow()
        return {
            'uuid': stable_uuid('service', machine.name),
            'host': machine.name,
            'binary': COMPUTE,
            'topic': TOPIC,
            'disabled': False,
            'forced_down': False,
            'version': SERVICE_VERSION,
            'created_at': now,
            'last_seen_up': now,
        }

    def _node(self, machine: Machine) -> dict[str, Any]:
        return {
            'uuid': machine.uuid,
            'host': machine.name,
            'hypervisor_hostname': machine.name,
            'vcpus': machine.vcpus,
            'memory_mb': machine.memory_mb,
            'local_gb': machine.disk_gb,
            'cpu_allocation_ratio': machine.cpu_allocation_ratio,
            'ram_allocation_ratio': machine.ram_allocation_ratio,
            'disk_allocation_ratio': machine.disk_allocation_ratio,
            'hypervisor_type': HYPERVISOR,
            'hypervisor_version': HYPERVISOR_VERSION,
            'cpu_info': json.dumps({'arch': SUPPORTED[0][0]}),
            'host_ip': '127.0.0.1',
            'supported_instances': json.dumps(SUPPORTED),
            'metrics': json.dumps([]),
            'mapped': 1,
            'created_at': self.utcnow(),
            **_used(machine, 0, 0, 0, 0),
        }

    def _usage(self, connection: sa.Connection, machine: Machine) -> dict[str, Any]:
        """The sum over all servers of the machine, as nova-compute's audit counts it."""
        table = db.instances
        statement = sa.select(
            sa.func.count(),
            sa.func.total(table.c.vcpus),
            sa.func.total(table.c.memory_mb),
            sa.func.total(table.c.root_gb + table.c.ephemeral_gb),
        ).where(table.c.host == machine.name, table.c.deleted == 0)
        return _used(machine, *(int(value) for value in connection.execute(statement).one()))


def cell_uuid(cell: str) -> str:
    """The UUID of a cell's mapping."""
    return stable_uuid('cell', cell)


def zone_uuid(zone: str) -> str:
    """The UUID of a zone's aggregate."""
    return stable_uuid('aggregate', zone)


def _used(
    machine: Machine, servers: int, vcpus: int, memory_mb: int, disk_gb: int
) -> dict[str, Any]:
    """Columns of compute_nodes; used memory includes what the host keeps for itself,
    and ``stats`` holds its numbers as texts, both as nova-compute has it."""
    memory_used = machine.reserved_memory_mb + memory_mb
    return {
        'vcpus_used': vcpus,
        'memory_mb_used': memory_used,
        'free_ram_mb': machine.memory_mb - memory_used,
        'local_gb_used': disk_gb,
        'free_disk_gb': machine.disk_gb - disk_gb,
        'disk_available_least': machine.disk_gb - disk_gb,
        'running_vms': servers,
        'current_workload': 0,
        'stats': json.dumps(
            {'num_instances': str(servers), 'io_workload': '0', 'failed_builds': '0'}
        ),
    }


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(sa.insert(table), rows)
