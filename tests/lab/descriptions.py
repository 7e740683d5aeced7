# SPDX-License-Identifier: Apache-2.0
"""A case in few words, made into rows and wire objects.

A description is JSON that says only what differs from the ordinary, so that parts can
be dropped from it one by one:

    {'config': {group: {option: value}}, 'index': servers of the request placed already,
     'hosts': [{'name', 'node', 'cell', 'row': columns of compute_nodes,
                'service': columns of services, 'aggregates': [metadata, ...],
                'instances': [...], 'candidates': [...]}],
     'request': fields of RequestSpec; objects in it are dicts of their fields}

Times are seconds from :data:`NOW`. A JSON column is a value, or the text itself; that
of NUMA cells is the fields of the object.
"""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.lab.builders import a_uuid
from tests.lab.wire import primitive

NOW = datetime(2026, 11, 21, 12, 0, 0)

Case = dict[str, Any]

_ORDINARY = yaml.safe_load(Path(__file__).with_name('ordinary.yaml').read_text())
OBJECTS: dict[str, Case] = _ORDINARY['objects']
JSON_COLUMNS = (
    'stats',
    'metrics',
    'supported_instances',
    'cpu_info',
    'pci_stats',
    'numa_topology',
)
DATES = ('created_at', 'updated_at', 'deleted_at', 'last_seen_up')


def complete(case):
    """The case as nova's side takes it, and ours."""
    return {
        **case,
        'config': case.get('config', {}),
        'index': case.get('index', 0),
        'hosts': [
            host_rows(number, each)
            for number, each in enumerate(case.get('hosts', ()), 1)
        ],
        'request': wire('RequestSpec', case.get('request', {})),
    }


def wire(name, fields):
    """An object as it travels, with the objects in it; what is not said is ordinary."""
    known = OBJECTS[name]
    data = {**known.get('fields', {}), **fields}
    for field, kind in known.get('parts', {}).items():
        value = data.get(field)
        if isinstance(value, list):
            data[field] = [wire(kind, each) for each in value]
        elif value is not None:
            data[field] = wire(kind, value)
    return {**primitive(name, known['version']), 'nova_object.data': data}


def host_rows(number, host):
    """Everything that the databases hold of a host."""
    name = host.get('name', f'host{number}')
    node = host.get('node', name)
    row = {
        'id': number,
        'uuid': a_uuid(node),
        'host': name,
        'hypervisor_hostname': node,
    }
    service = {'id': number, 'uuid': a_uuid(f'service of {name}'), 'host': name}
    return {
        'row': _columns({**_ORDINARY['compute_node'], **row, **host.get('row', {})}),
        'service': _columns(
            {**_ORDINARY['service'], **service, **host.get('service', {})}
        ),
        'cell_uuid': a_uuid(host.get('cell', 'cell1')),
        'aggregates': [
            {
                'id': i,
                'uuid': a_uuid(f'aggregate{i}'),
                'name': f'aggregate{i}',
                'metadata': each,
            }
            for i, each in enumerate(host.get('aggregates', ()), 1)
        ],
        'instances': [_instance(each) for each in host.get('instances', ())],
        'candidates': host.get('candidates', [{'mappings': {}}]),
    }


def _instance(instance):
    properties = instance.get('image', {})
    return {
        'uuid': instance.get('uuid', a_uuid('server')),
        'project_id': instance.get('project_id', 'project'),
        'instance_type_id': instance.get('instance_type_id', 1),
        'system_metadata': {
            f'image_{name}': value for name, value in properties.items()
        },
    }


def _columns(row):
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
