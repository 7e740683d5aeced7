# SPDX-License-Identifier: Apache-2.0
"""The hosts of a sandbox, and the writes of nova-manage and their nova-computes to the
databases and to Placement."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import os_resource_classes as classes
import os_traits
import requests
import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.cells.mappings import CELL0
from novasched.conf.errors import NovaschedError
from novasched.rpc import wire
from novasched.rpc.wire import base
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import AVAILABILITY_ZONE
from novasched.scheduler.model.image_properties import IMAGE
from novasched.tools.sandbox import databases as db

CELLS = ('cell1', 'cell2')
COMPUTE = 'nova-compute'
SERVICE_VERSION = 74
"""What the services of nova 34.0.0 report."""

Amounts = Mapping[str, int]
"""Resource class to amount."""


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """A compute host with one node of the same name. ``zone`` None is the default
    zone."""

    name: str
    vcpus: int = 16
    memory_mb: int = 65536
    disk_gb: int = 640
    zone: str | None = None
    cell: str = CELLS[0]
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mb: int = 512

    @property
    def uuid(self) -> str:
        """The compute node's, and so the resource provider's; the same in every run."""
        return stable_uuid('node', self.name)

    @property
    def inventories(self) -> Mapping[str, Mapping[str, float]]:
        """Inventories for Placement: totals, reserved amounts, allocation ratios."""
        rows = (
            (classes.VCPU, self.vcpus, 0, self.cpu_allocation_ratio),
            (
                classes.MEMORY_MB,
                self.memory_mb,
                self.reserved_memory_mb,
                self.ram_allocation_ratio,
            ),
            (classes.DISK_GB, self.disk_gb, 0, self.disk_allocation_ratio),
        )
        return {
            name: {'total': total, 'reserved': reserved, 'allocation_ratio': ratio}
            for name, total, reserved, ratio in rows
        }

    @property
    def capacity(self) -> Mapping[str, int]:
        """The amount of each resource class that instances can have in all."""
        return {
            name: int((each['total'] - each['reserved']) * each['allocation_ratio'])
            for name, each in self.inventories.items()
        }


def stable_uuid(kind: str, name: str) -> str:
    """A UUID that depends on nothing but what it names."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f'novasched-sandbox:{kind}/{name}'))


def flavor_columns(flavor: Flavor) -> dict[str, Any]:
    """The columns of a flavor in the database; its number is 1 if it bears none."""
    names = (
        'name',
        'flavorid',
        'vcpus',
        'memory_mb',
        'root_gb',
        'ephemeral_gb',
        'swap',
    )
    return {'id': flavor.id or 1, **{name: getattr(flavor, name) for name in names}}


class SandboxComputes:
    """The nova-compute of every machine.

    :ivar silent: names of those that do not report any more.
    """

    def __init__(
        self, databases: db.Databases, machines: Sequence[SandboxHost]
    ) -> None:
        self.databases = databases
        self.machines = {each.name: each for each in machines}
        self.silent: set[str] = set()

    def deploy(self) -> None:
        """Map the cells and the hosts, make the zones, and start every nova-compute."""
        with self.databases.api.begin() as connection:
            self._map_cells(connection)
            self._make_zones(connection)
        for cell, engine in self.databases.cells.items():
            machines = [each for each in self.machines.values() if each.cell == cell]
            with engine.begin() as connection:
                _insert(
                    connection, db.services, [self._service(each) for each in machines]
                )
                nodes = [self._node(connection, each) for each in machines]
                _insert(connection, db.compute_nodes, nodes)

    def report(self) -> None:
        """A heartbeat of every nova-compute that has not fallen silent."""
        now = timeutils.utcnow()
        table = db.services
        statement = (
            sa.update(table)
            .where(table.c.binary == COMPUTE, table.c.host.not_in(self.silent))
            .values(
                last_seen_up=now, updated_at=now, report_count=table.c.report_count + 1
            )
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
        """Run an instance on a machine: write its row, its image properties (as
        nova-api does) and the host's usage.

        :param values: further columns of the row
        """
        machine = self.machines[name]
        columns = flavor_columns(flavor)
        now = timeutils.utcnow()
        row = {
            'uuid': uuid,
            'host': name,
            'node': name,
            **{
                size: columns[size]
                for size in ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb')
            },
            'instance_type_id': columns['id'],
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
            connection.execute(
                sa.update(nodes).where(nodes.c.uuid == machine.uuid).values(usage)
            )

    def save_requests(self, spec: wire.RequestSpec, uuids: Sequence[str]) -> None:
        """Keep the request of each instance, and the members of its group, as nova-api
        does."""
        kept = spec.obj_to_primitive()
        group = spec.value('instance_group')
        with self.databases.api.begin() as connection:
            for uuid in uuids:
                own = {**kept, base.DATA: {**kept[base.DATA], 'instance_uuid': uuid}}
                row = {'instance_uuid': uuid, 'spec': json.dumps(own)}
                connection.execute(sa.insert(db.request_specs), row)
            if group is not None:
                _join(connection, group.value('uuid'), uuids)

    def _map_cells(self, connection: sa.Connection) -> None:
        files = [(CELL0, 'cell0', 'main')]
        files += [
            (stable_uuid('cell', name), name, name) for name in self.databases.cells
        ]
        cells = [
            {
                'id': number,
                'uuid': uuid,
                'name': name,
                'disabled': False,
                'transport_url': 'none:',
                'database_connection': self.databases.url(file),
            }
            for number, (uuid, name, file) in enumerate(files, start=1)
        ]
        _insert(connection, db.cell_mappings, cells)
        ids = {each['name']: each['id'] for each in cells}
        hosts = [
            {'host': x.name, 'cell_id': ids[x.cell]} for x in self.machines.values()
        ]
        _insert(connection, db.host_mappings, hosts)

    def _make_zones(self, connection: sa.Connection) -> None:
        """One aggregate for each zone, with the zone's name."""
        machines = self.machines.values()
        for number, zone in enumerate(
            sorted({x.zone for x in machines if x.zone}), start=1
        ):
            aggregate = {
                'id': number,
                'uuid': stable_uuid('aggregate', zone),
                'name': zone,
            }
            metadata = {'aggregate_id': number, 'key': AVAILABILITY_ZONE, 'value': zone}
            hosts = [
                {'aggregate_id': number, 'host': x.name}
                for x in machines
                if x.zone == zone
            ]
            _insert(connection, db.aggregates, [aggregate])
            _insert(connection, db.aggregate_metadata, [metadata])
            _insert(connection, db.aggregate_hosts, hosts)

    def _service(self, machine: SandboxHost) -> dict[str, Any]:
        now = timeutils.utcnow()
        return {
            'uuid': stable_uuid('service', machine.name),
            'host': machine.name,
            'binary': COMPUTE,
            'topic': 'compute',
            'disabled': False,
            'forced_down': False,
            'version': SERVICE_VERSION,
            'created_at': now,
            'last_seen_up': now,
        }

    def _node(self, connection: sa.Connection, machine: SandboxHost) -> dict[str, Any]:
        ratios = (
            'cpu_allocation_ratio',
            'ram_allocation_ratio',
            'disk_allocation_ratio',
        )
        return {
            'uuid': machine.uuid,
            'host': machine.name,
            'hypervisor_hostname': machine.name,
            'local_gb': machine.disk_gb,
            **{
                name: getattr(machine, name) for name in ('vcpus', 'memory_mb', *ratios)
            },
            'hypervisor_type': 'QEMU',
            'hypervisor_version': 10000000,
            'cpu_info': json.dumps({'arch': 'x86_64'}),
            'host_ip': '127.0.0.1',
            'supported_instances': json.dumps([['x86_64', 'qemu', 'hvm']]),
            'metrics': json.dumps([]),
            'mapped': 1,
            'created_at': timeutils.utcnow(),
            **self._usage(connection, machine),
        }

    def _usage(self, connection: sa.Connection, machine: SandboxHost) -> dict[str, Any]:
        """Columns of compute_nodes: sums over all instances of the machine, as
        nova-compute's audit counts them. Used memory includes what the host keeps for
        itself, and ``stats`` holds its numbers as texts."""
        table = db.instances
        statement = sa.select(
            sa.func.count(),
            sa.func.total(table.c.vcpus),
            sa.func.total(table.c.memory_mb),
            sa.func.total(table.c.root_gb + table.c.ephemeral_gb),
        ).where(table.c.host == machine.name, table.c.deleted == 0)
        servers, vcpus, memory_mb, disk_gb = map(
            int, connection.execute(statement).one()
        )
        memory_mb += machine.reserved_memory_mb
        stats = {
            'num_instances': str(servers),
            'io_workload': '0',
            'failed_builds': '0',
        }
        return {
            'vcpus_used': vcpus,
            'memory_mb_used': memory_mb,
            'free_ram_mb': machine.memory_mb - memory_mb,
            'local_gb_used': disk_gb,
            'free_disk_gb': machine.disk_gb - disk_gb,
            'disk_available_least': machine.disk_gb - disk_gb,
            'running_vms': servers,
            'current_workload': 0,
            'stats': json.dumps(stats),
        }


def _join(connection: sa.Connection, group: str, uuids: Sequence[str]) -> None:
    """Make instances members of a group, which is made with its first ones."""
    table = db.instance_groups
    select = sa.select(table.c.id).where(table.c.uuid == group)
    if connection.execute(select).first() is None:
        connection.execute(sa.insert(table), {'uuid': group, 'name': group})
    number = connection.execute(select).scalar_one()
    members = [{'instance_uuid': uuid, 'group_id': number} for uuid in uuids]
    _insert(connection, db.instance_group_member, members)


def _insert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]
) -> None:
    if rows:
        connection.execute(sa.insert(table), rows)


class PlacementRefused(NovaschedError):
    """For whoever runs the sandbox: Placement does not do what it is asked."""


class Providers:
    """One connection to Placement."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._http = requests.Session()
        # A proxy of the environment has no business on loopback.
        self._http.trust_env = False
        headers = {'X-Auth-Token': token, 'OpenStack-API-Version': 'placement 1.36'}
        self._http.headers.update(headers)

    def close(self) -> None:
        self._http.close()

    def register(self, machine: SandboxHost) -> None:
        """Make a machine's provider, with its inventories and nova's mark, in its
        zone's aggregate."""
        self.call('POST', '/resource_providers', uuid=machine.uuid, name=machine.name)
        self.put(machine.uuid, inventories=machine.inventories)
        if machine.zone:
            self.put(machine.uuid, aggregates=[stable_uuid('aggregate', machine.zone)])
        self.put(machine.uuid, traits=[os_traits.OWNER_NOVA])

    def put(self, provider: str, **part: Any) -> None:
        """Replace one part of a provider: its inventories, aggregates or traits."""
        path = f'/resource_providers/{provider}/{"".join(part)}'
        generation = self.call('GET', path)['resource_provider_generation']
        self.call('PUT', path, resource_provider_generation=generation, **part)

    def allocations(self, consumer: str) -> dict[str, Amounts]:
        """The amounts that a consumer has, by provider."""
        held = self.call('GET', f'/allocations/{consumer}')['allocations']
        return {provider: each['resources'] for provider, each in held.items()}

    def usages(self, provider: str) -> Amounts:
        """The amounts taken from a provider, by class of its inventory."""
        return dict(
            self.call('GET', f'/resource_providers/{provider}/usages')['usages']
        )

    def call(self, method: str, path: str, **body: Any) -> Any:
        """One request; the answer is its JSON, None for an empty one.

        :raises PlacementRefused: Placement cannot be reached or answers with an error
        """
        try:
            response = self._http.request(
                method, self._url + path, json=body or None, timeout=60
            )
        except requests.RequestException as error:
            raise PlacementRefused(f'{method} {path}: {error}') from None
        if not response.ok:
            raise PlacementRefused(
                f'{method} {path}: {response.status_code} {response.text}'
            )
        if response.content:
            return response.json()
        return None
