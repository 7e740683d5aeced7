# SPDX-License-Identifier: Apache-2.0
"""A case in few words, made into rows and wire objects.

A description is JSON that says only what differs from the ordinary, so that parts can
be dropped from it one by one:

    {'config': {group: {option: value}}, 'index': servers of the request placed already,
     'hosts': [{'name', 'node', 'cell', 'row': columns of compute_nodes,
                'service': columns of services, 'aggregates': [metadata, ...],
                'instances': [...], 'candidates': [...]}],
     'request': fields of RequestSpec; objects in it are dicts of their fields}

Times are seconds from :data:`NOW`. A JSON column is a value, or the text itself; that of
NUMA cells is the fields of the object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.lab.builders import a_uuid
from tests.lab.wire import primitive

NOW = datetime(2026, 11, 21, 12, 0, 0)

Case = dict[str, Any]

VERSIONS = {
    'CellMapping': '1.1', 'ComputeNode': '1.19', 'ComputeNodeList': '1.17', 'Destination': '1.4',
    'Flavor': '1.2', 'ImageMeta': '1.8', 'ImageMetaProps': '1.44', 'InstanceGroup': '1.11',
    'InstanceNUMACell': '1.6', 'InstanceNUMATopology': '1.3', 'InstancePCIRequest': '1.4',
    'InstancePCIRequests': '1.1', 'NetworkMetadata': '1.0', 'NetworkRequest': '1.3',
    'NetworkRequestList': '1.1', 'RequestGroup': '1.3', 'RequestLevelParams': '1.1',
    'NUMACell': '1.5', 'NUMAPagesTopology': '1.1', 'NUMATopology': '1.2', 'RequestSpec': '1.15',
    'PciDevicePool': '1.1', 'PciDevicePoolList': '1.1', 'SchedulerRetries': '1.1',
}  # fmt: skip
PARTS = {
    'ComputeNodeList': {'objects': 'ComputeNode'},
    'Destination': {'cell': 'CellMapping'},
    'ImageMeta': {'properties': 'ImageMetaProps'},
    'InstanceNUMATopology': {'cells': 'InstanceNUMACell'},
    'InstancePCIRequests': {'requests': 'InstancePCIRequest'},
    'NUMACell': {'mempages': 'NUMAPagesTopology', 'network_metadata': 'NetworkMetadata'},
    'NUMATopology': {'cells': 'NUMACell'},
    'NetworkRequestList': {'objects': 'NetworkRequest'},
    'PciDevicePoolList': {'objects': 'PciDevicePool'},
    'RequestSpec': {
        'flavor': 'Flavor', 'image': 'ImageMeta', 'instance_group': 'InstanceGroup',
        'network_metadata': 'NetworkMetadata', 'numa_topology': 'InstanceNUMATopology',
        'pci_requests': 'InstancePCIRequests', 'request_level_params': 'RequestLevelParams',
        'requested_destination': 'Destination', 'requested_networks': 'NetworkRequestList',
        'requested_resources': 'RequestGroup', 'retry': 'SchedulerRetries',
    },
    'SchedulerRetries': {'hosts': 'ComputeNodeList'},
}  # fmt: skip
"""Which fields of an object hold objects, or lists of them."""

ORDINARY = {
    'Destination': {'allow_cross_cell_move': False},
    'Flavor': {
        'id': 1, 'name': 'small', 'flavorid': '1', 'vcpus': 1, 'memory_mb': 512, 'root_gb': 1,
        'ephemeral_gb': 0, 'swap': 0, 'extra_specs': {},
    },
    'ImageMeta': {'id': a_uuid('image'), 'properties': {}},
    'InstanceGroup': {
        'uuid': a_uuid('group'), 'members': [], 'hosts': [], 'policy': None, 'policies': [],
    },
    'InstanceNUMACell': {
        'id': 0, 'cpuset': [], 'memory': 0, 'cpu_policy': None, 'cpu_thread_policy': None, 'pagesize': None, 'pcpuset': [],
        'cpu_pinning_raw': None, 'cpuset_reserved': None, 'cpu_topology': None,
    },
    'InstancePCIRequest': {
        'count': 1, 'spec': [], 'alias_name': None, 'is_new': False, 'numa_policy': None,
        'requester_id': None,
    },
    'NUMACell': {
        'id': 0, 'cpuset': [], 'pcpuset': [], 'memory': 0, 'cpu_usage': 0, 'memory_usage': 0,
        'pinned_cpus': [], 'siblings': [], 'mempages': [], 'network_metadata': {}, 'socket': 0,
    },
    'NUMAPagesTopology': {'size_kb': 4, 'total': 0, 'used': 0, 'reserved': 0},
    'NUMATopology': {'cells': []},
    'NetworkMetadata': {'physnets': [], 'tunneled': False},
    'RequestSpec': {
        'image': None, 'numa_topology': None, 'pci_requests': None, 'project_id': 'project',
        'user_id': 'user', 'availability_zone': None, 'flavor': {}, 'num_instances': 1,
        'ignore_hosts': None, 'force_hosts': None, 'force_nodes': None,
        'requested_destination': None, 'retry': None, 'limits': None, 'instance_group': None,
        'scheduler_hints': {}, 'instance_uuid': a_uuid('server0'), 'is_bfv': False,
        'requested_resources': [],
    },
    'SchedulerRetries': {'num_attempts': 1, 'hosts': {'objects': []}},
}  # fmt: skip

COMPUTE_NODE = {
    'service_id': None, 'vcpus': 8, 'vcpus_used': 0, 'memory_mb': 8192, 'memory_mb_used': 0,
    'free_ram_mb': 8192, 'local_gb': 100, 'local_gb_used': 0, 'free_disk_gb': 100,
    'disk_available_least': None, 'hypervisor_type': 'QEMU', 'hypervisor_version': 8002000,
    'current_workload': 0, 'running_vms': 0, 'cpu_info': '', 'metrics': None, 'stats': {},
    'host_ip': '192.0.2.1', 'numa_topology': None, 'supported_instances': [],
    'pci_stats': None, 'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0,
    'disk_allocation_ratio': 1.0, 'mapped': 1, 'updated_at': -10, 'created_at': -9999,
    'deleted_at': None, 'deleted': 0,
}  # fmt: skip
SERVICE = {
    'binary': 'nova-compute', 'topic': 'compute', 'report_count': 1, 'disabled': False,
    'disabled_reason': None, 'last_seen_up': -5, 'forced_down': False, 'version': 74,
    'updated_at': -5, 'created_at': -9999, 'deleted_at': None, 'deleted': 0,
}  # fmt: skip
JSON_COLUMNS = ('stats', 'metrics', 'supported_instances', 'cpu_info', 'pci_stats', 'numa_topology')
DATES = ('created_at', 'updated_at', 'deleted_at', 'last_seen_up')


def complete(case: Case) -> Case:
    """The case as nova's side takes it, and ours."""
    return {
        **case,
        'config': case.get('config', {}),
        'index': case.get('index', 0),
        'hosts': [host_rows(number, each) for number, each in enumerate(case.get('hosts', ()), 1)],
        'request': wire('RequestSpec', case.get('request', {})),
    }


def wire(name: str, fields: Mapping[str, Any]) -> Any:
    """An object as it travels, with the objects in it; what is not said is ordinary."""
    data = {**ORDINARY.get(name, {}), **fields}
    for field, kind in PARTS.get(name, {}).items():
        value = data.get(field)
        if isinstance(value, list):
            data[field] = [wire(kind, each) for each in value]
        elif value is not None:
            data[field] = wire(kind, value)
    return {**primitive(name, VERSIONS[name]), 'nova_object.data': data}


def host_rows(number: int, host: Case) -> Case:
    """Everything that the databases hold of a host."""
    name = host.get('name', f'host{number}')
    node = host.get('node', name)
    row = {'id': number, 'uuid': a_uuid(node), 'host': name, 'hypervisor_hostname': node}
    service = {'id': number, 'uuid': a_uuid(f'service of {name}'), 'host': name}
    return {
        'row': _columns({**COMPUTE_NODE, **row, **host.get('row', {})}),
        'service': _columns({**SERVICE, **service, **host.get('service', {})}),
        'cell_uuid': a_uuid(host.get('cell', 'cell1')),
        'aggregates': [
            {'id': i, 'uuid': a_uuid(f'aggregate{i}'), 'name': f'aggregate{i}', 'metadata': each}
            for i, each in enumerate(host.get('aggregates', ()), 1)
        ],
        'instances': [_instance(each) for each in host.get('instances', ())],
        'candidates': host.get('candidates', [{'mappings': {}}]),
    }


def _instance(instance: Case) -> Case:
    properties = instance.get('image', {})
    return {
        'uuid': instance.get('uuid', a_uuid('server')),
        'project_id': instance.get('project_id', 'project'),
        'instance_type_id': instance.get('instance_type_id', 1),
        'system_metadata': {f'image_{name}': value for name, value in properties.items()},
    }


def _columns(row: Case) -> Case:
    """A row with its JSON columns as texts and its times as ISO dates."""
    if isinstance(row.get('numa_topology'), dict):
        row['numa_topology'] = wire('NUMATopology', row['numa_topology'])
    for name in JSON_COLUMNS:
        if name in row and not isinstance(row[name], str | None):
            row[name] = json.dumps(row[name])
    for name in DATES:
        if row.get(name) is not None:
            row[name] = (NOW + timedelta(seconds=row[name])).isoformat()
    return row
