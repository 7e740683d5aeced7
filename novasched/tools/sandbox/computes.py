# SPDX-License-Identifier: Apache-2.0
"""The hosts of a sandbox. nova-manage and the nova-computes write to the databases and
to Placement."""

import json
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
"""Version of the services of nova 34.0.0."""

Amounts = Mapping[str, int]
"""Amounts by resource class."""


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """A compute host with one node of the same name.

    :ivar zone: the availability zone; None for the default zone.
    """

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
        """UUID of the compute node and of the resource provider; the same in every
        run."""
        return stable_uuid('node', self.name)

    @property
    def inventories(self) -> Mapping[str, Mapping[str, float]]:
        """Inventories for Placement, by resource class."""
        return {
            classes.VCPU: {
                'total': self.vcpus,
                'reserved': 0,
                'allocation_ratio': self.cpu_allocation_ratio,
            },
            classes.MEMORY_MB: {
                'total': self.memory_mb,
                'reserved': self.reserved_memory_mb,
                'allocation_ratio': self.ram_allocation_ratio,
            },
            classes.DISK_GB: {
                'total': self.disk_gb,
                'reserved': 0,
                'allocation_ratio': self.disk_allocation_ratio,
            },
        }

    @property
    def capacity(self) -> Mapping[str, int]:
        """The total amount of each resource class for instances."""
        capacity = {}
        for name, inventory in self.inventories.items():
            unreserved = inventory['total'] - inventory['reserved']
            capacity[name] = int(unreserved * inventory['allocation_ratio'])
        return capacity


@cache
def stable_uuid(kind: str, name: str) -> str:
    """A UUID derived from a kind and a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f'novasched-sandbox:{kind}/{name}'))


def flavor_columns(flavor: Flavor) -> dict[str, Any]:
    """The columns of a flavor in the database. The id is 1 by default."""
    return {
        'id': flavor.id or 1,
        'name': flavor.name,
        'flavorid': flavor.flavorid,
        'vcpus': flavor.vcpus,
        'memory_mb': flavor.memory_mb,
        'root_gb': flavor.root_gb,
        'ephemeral_gb': flavor.ephemeral_gb,
        'swap': flavor.swap,
    }


class SandboxComputes:
    """The nova-compute of every machine. Thread-safe.

    :ivar machines: machines by name.
    :ivar silent: names of machines without reports.
    """

    def __init__(
        self, databases: db.Databases, machines: Sequence[SandboxHost]
    ) -> None:
        self.databases = databases
        self.machines = {machine.name: machine for machine in machines}
        self.silent: set[str] = set()
        self._reported_at = time.monotonic()
        # SQLite has one writer. Concurrent builds wait here instead of failing there.
        self._lock = threading.Lock()

    def deploy(self) -> None:
        """Map the cells and the hosts, create the zones, and start every
        nova-compute."""
        with self.databases.api.begin() as connection:
            self._map_cells(connection)
            self._create_zones(connection)

        for cell, engine in self.databases.cells.items():
            with engine.begin() as connection:
                services = []
                nodes = []
                for machine in self.machines.values():
                    if machine.cell == cell:
                        services.append(self._service(machine))
                        nodes.append(self._node(connection, machine))
                _insert(connection, db.services, services)
                _insert(connection, db.compute_nodes, nodes)

    def report_if_due(self, interval: float) -> None:
        """Report if the last report is at least ``interval`` seconds ago."""
        now = time.monotonic()
        if now - self._reported_at >= interval:
            self._reported_at = now
            self.report()

    def report(self) -> None:
        """Write a heartbeat of every nova-compute, except silent ones."""
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
        """Run an instance on a machine: write its row, its image properties and the
        usage of the host.

        :param values: further columns of the row.
        """
        machine = self.machines[name]
        now = timeutils.utcnow()
        row = {
            'uuid': uuid,
            'host': name,
            'node': name,
            'vcpus': flavor.vcpus,
            'memory_mb': flavor.memory_mb,
            'root_gb': flavor.root_gb,
            'ephemeral_gb': flavor.ephemeral_gb,
            'instance_type_id': flavor_columns(flavor)['id'],
            'vm_state': 'active',
            'created_at': now,
            'launched_at': now,
            **values,
        }
        metadata = []
        for key, value in image_properties.items():
            metadata.append(
                {'instance_uuid': uuid, 'key': f'{IMAGE}{key}', 'value': value}
            )

        nodes = db.compute_nodes
        engine = self.databases.cells[machine.cell]
        with self._lock, engine.begin() as connection:
            connection.execute(sa.insert(db.instances).values(row))
            _insert(connection, db.instance_system_metadata, metadata)
            usage = {**self._usage(connection, machine), 'updated_at': now}
            connection.execute(
                sa.update(nodes).where(nodes.c.uuid == machine.uuid).values(usage)
            )

    def save_requests(self, spec: wire.RequestSpec, uuids: Sequence[str]) -> None:
        """Save the request of each instance, and the members of its group, like
        nova-api."""
        primitive = spec.obj_to_primitive()
        group = spec.value('instance_group')
        with self.databases.api.begin() as connection:
            for uuid in uuids:
                fields = {**primitive[base.DATA], 'instance_uuid': uuid}
                text = json.dumps({**primitive, base.DATA: fields})
                row = {'instance_uuid': uuid, 'spec': text}
                connection.execute(sa.insert(db.request_specs), row)
            if group is not None:
                _join(connection, group.value('uuid'), uuids)

    def _map_cells(self, connection: sa.Connection) -> None:
        files = [(CELL0, 'cell0', 'main')]
        for name in self.databases.cells:
            files.append((stable_uuid('cell', name), name, name))

        cells = []
        ids = {}
        for number, (cell_uuid, name, file) in enumerate(files, start=1):
            ids[name] = number
            cell = {
                'id': number,
                'uuid': cell_uuid,
                'name': name,
                'disabled': False,
                'transport_url': 'none:',
                'database_connection': self.databases.url(file),
            }
            cells.append(cell)
        _insert(connection, db.cell_mappings, cells)

        hosts = []
        for machine in self.machines.values():
            hosts.append({'host': machine.name, 'cell_id': ids[machine.cell]})
        _insert(connection, db.host_mappings, hosts)

    def _create_zones(self, connection: sa.Connection) -> None:
        """Create an aggregate for each zone, with the name of the zone."""
        hosts_in: dict[str, list[str]] = defaultdict(list)
        for machine in self.machines.values():
            if machine.zone:
                hosts_in[machine.zone].append(machine.name)

        for number, zone in enumerate(sorted(hosts_in), start=1):
            uuid = stable_uuid('aggregate', zone)
            aggregate = {'id': number, 'uuid': uuid, 'name': zone}
            metadata = {'aggregate_id': number, 'key': AVAILABILITY_ZONE, 'value': zone}
            hosts = [{'aggregate_id': number, 'host': name} for name in hosts_in[zone]]
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
        return {
            'uuid': machine.uuid,
            'host': machine.name,
            'hypervisor_hostname': machine.name,
            'local_gb': machine.disk_gb,
            'vcpus': machine.vcpus,
            'memory_mb': machine.memory_mb,
            'cpu_allocation_ratio': machine.cpu_allocation_ratio,
            'ram_allocation_ratio': machine.ram_allocation_ratio,
            'disk_allocation_ratio': machine.disk_allocation_ratio,
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
        """Columns of ``compute_nodes``: sums over all instances of the machine, as in
        nova-compute's audit. Used memory includes the memory reserved for the host, and
        ``stats`` holds numbers as texts."""
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
    """Add instances to a group, which is created with its first members."""
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
    """For the user of the sandbox: Placement refuses a request."""


class Providers:
    """Creates and reads resource providers and allocations in Placement."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._http = requests.Session()
        # Placement is on loopback, so a proxy of the environment does not apply.
        self._http.trust_env = False
        headers = {'X-Auth-Token': token, 'OpenStack-API-Version': 'placement 1.36'}
        self._http.headers.update(headers)

    def close(self) -> None:
        self._http.close()

    def register(self, machine: SandboxHost) -> None:
        """Create the provider of a machine, with its inventories and nova's trait, in
        the aggregate of its zone."""
        generation = self.create(machine.uuid, machine.name)
        generation = self.put(machine.uuid, generation, inventories=machine.inventories)
        if machine.zone:
            zone = stable_uuid('aggregate', machine.zone)
            generation = self.put(machine.uuid, generation, aggregates=[zone])
        self.put(machine.uuid, generation, traits=[os_traits.OWNER_NOVA])

    def create(self, uuid: str, name: str, parent: str | None = None) -> int:
        """Create a provider.

        :returns: the generation of the provider.
        """
        body = {'uuid': uuid, 'name': name}
        if parent is not None:
            body['parent_provider_uuid'] = parent
        generation: int = self.call('POST', '/resource_providers', **body)['generation']
        return generation

    def put(self, provider: str, generation: int | None = None, **part: Any) -> int:
        """Replace a part of a provider: inventories, aggregates or traits.

        :param generation: the generation of the provider; None if unknown.
        :returns: the next generation of the provider.
        """
        path = f'/resource_providers/{provider}/{"".join(part)}'
        if generation is None:
            generation = self.call('GET', path)['resource_provider_generation']
        answer = self.call('PUT', path, resource_provider_generation=generation, **part)
        next_generation: int = answer['resource_provider_generation']
        return next_generation

    def allocations(self, consumer: str) -> dict[str, Amounts]:
        """The allocations of a consumer, by provider."""
        answer = self.call('GET', f'/allocations/{consumer}')
        amounts = {}
        for provider, allocation in answer['allocations'].items():
            amounts[provider] = allocation['resources']
        return amounts

    def usages(self, provider: str) -> Amounts:
        """The amounts in use on a provider, by resource class of its inventories."""
        answer = self.call('GET', f'/resource_providers/{provider}/usages')
        return dict(answer['usages'])

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Send a request, and return the JSON of the answer; None for an empty answer.

        :raises PlacementRefused: Placement does not answer, or answers with an error.
        """
        url = self._url + path
        try:
            response = self._http.request(method, url, json=body or None, timeout=60)
        except requests.RequestException as error:
            raise PlacementRefused(f'{method} {path}: {error}') from None

        if not response.ok:
            raise PlacementRefused(
                f'{method} {path}: {response.status_code} {response.text}'
            )
        if response.content:
            return response.json()
        return None
