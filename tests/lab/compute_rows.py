# SPDX-License-Identifier: Apache-2.0
"""Compute hosts and servers, and their database rows as nova-compute writes rows."""

import datetime
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from .reports import some_devices

Row = dict[str, Any]


def now():
    """The time as nova's services write it: UTC, naive, whole seconds."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)


@dataclass(frozen=True)
class Compute:
    """A compute host with one node. The UUID of the node is the UUID of the resource
    provider.

    :ivar columns: columns of compute_nodes that differ.
    """

    name: str
    cell: str
    vcpus: int = 16
    ram_mb: int = 65536
    disk_gb: int = 1000
    cpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    disk_ratio: float = 1.0
    pcpus: int = 0
    traits: tuple[str, ...] = ()
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    columns: Row = field(default_factory=dict)

    def inventories(self):
        """The inventories of the host in Placement."""
        sizes = {
            'VCPU': (self.vcpus, self.cpu_ratio),
            'MEMORY_MB': (self.ram_mb, self.ram_ratio),
            'DISK_GB': (self.disk_gb, self.disk_ratio),
        }
        if self.pcpus:
            sizes['PCPU'] = (self.pcpus, 1.0)

        inventories = {}
        for name, (total, ratio) in sizes.items():
            inventories[name] = {
                'total': total,
                'max_unit': total,
                'allocation_ratio': ratio,
            }
        return inventories

    def node_row(self):
        """The row in compute_nodes of a host without servers."""
        row = {
            'created_at': now(),
            'updated_at': now(),
            'deleted': 0,
            'host': self.name,
            'uuid': self.uuid,
            'vcpus': self.vcpus,
            'memory_mb': self.ram_mb,
            'local_gb': self.disk_gb,
            'vcpus_used': 0,
            'memory_mb_used': 0,
            'local_gb_used': 0,
            'hypervisor_type': 'QEMU',
            'hypervisor_version': 8002000,
            'hypervisor_hostname': self.name,
            'free_ram_mb': self.ram_mb,
            'free_disk_gb': self.disk_gb,
            'current_workload': 0,
            'running_vms': 0,
            'cpu_info': json.dumps(_CPU),
            'disk_available_least': self.disk_gb,
            'host_ip': '127.0.0.1',
            'metrics': '[]',
            'numa_topology': None,
            'mapped': 1,
            'supported_instances': json.dumps(
                [['x86_64', 'kvm', 'hvm'], ['i686', 'kvm', 'hvm']]
            ),
            'pci_stats': some_devices(0, None),
            'stats': json.dumps({'failed_builds': '0'}),
            'ram_allocation_ratio': self.ram_ratio,
            'cpu_allocation_ratio': self.cpu_ratio,
            'disk_allocation_ratio': self.disk_ratio,
        }
        return {**row, **self.columns}

    def service_row(self, version):
        """The row in services of a nova-compute that reports now."""
        return {
            'created_at': now(),
            'updated_at': now(),
            'deleted': 0,
            'uuid': str(uuid.uuid4()),
            'host': self.name,
            'binary': 'nova-compute',
            'topic': 'compute',
            'report_count': 1,
            'disabled': False,
            'forced_down': False,
            'last_seen_up': now(),
            'version': version,
        }


FLAVOR_ID = 1
"""The id of the flavor of instances, and of requests."""


@dataclass(frozen=True)
class Flavor:
    """A flavor."""

    vcpus: int = 1
    ram_mb: int = 1024
    disk_gb: int = 10
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: dict[str, str] = field(default_factory=dict)

    def resources(self):
        """The allocations of a server of the flavor."""
        disk = self.disk_gb + self.ephemeral_gb + -(-self.swap_mb // 1024)
        if self.extra_specs.get('hw:cpu_policy') == 'dedicated':
            cpus = 'PCPU'
        else:
            cpus = 'VCPU'
        amounts = {cpus: self.vcpus, 'MEMORY_MB': self.ram_mb, 'DISK_GB': disk}
        return {name: amount for name, amount in amounts.items() if amount}


def instance_row(server, compute, flavor, project, user, index):
    """The row in instances of a server that runs on a host."""
    return {
        'created_at': now(),
        'updated_at': now(),
        'launched_at': now(),
        'deleted': 0,
        'uuid': server,
        'host': compute.name,
        'node': compute.name,
        'launched_on': compute.name,
        'project_id': project,
        'user_id': user,
        'hostname': f'server-{index}',
        'display_name': f'server-{index}',
        'launch_index': 0,
        'vm_state': 'active',
        'power_state': 1,
        'instance_type_id': FLAVOR_ID,
        'vcpus': flavor.vcpus,
        'memory_mb': flavor.ram_mb,
        'root_gb': flavor.disk_gb,
        'ephemeral_gb': flavor.ephemeral_gb,
        'cleaned': 0,
        'hidden': False,
    }


def used_by(flavor, row):
    """The columns of a compute_nodes row that change with another server."""
    stats = json.loads(row['stats'])
    count = row['running_vms'] + 1
    stats.update(num_instances=str(count), num_vm_active=str(count), io_workload='0')
    return {
        'updated_at': now(),
        'vcpus_used': row['vcpus_used'] + flavor.vcpus,
        'memory_mb_used': row['memory_mb_used'] + flavor.ram_mb,
        'local_gb_used': row['local_gb_used'] + flavor.disk_gb + flavor.ephemeral_gb,
        'free_ram_mb': row['free_ram_mb'] - flavor.ram_mb,
        'free_disk_gb': row['free_disk_gb'] - flavor.disk_gb - flavor.ephemeral_gb,
        'disk_available_least': row['disk_available_least'] - flavor.disk_gb,
        'running_vms': count,
        'stats': json.dumps(stats),
    }


_CPU = {
    'arch': 'x86_64',
    'model': 'Broadwell',
    'vendor': 'Intel',
    'features': ['sse', 'avx', 'aes'],
    'topology': {'sockets': 2, 'cores': 8, 'threads': 1, 'cells': 1},
}
