# SPDX-License-Identifier: Apache-2.0
"""Short descriptions of cases, which are made into rows and versioned objects.

A description is JSON with the values that differ from ordinary values, so that parts of
the description can be dropped one by one:

    {'config': {group: {option: value}}, 'index': servers of the request placed already,
     'hosts': [{'name', 'node', 'cell', 'row': columns of compute_nodes,
                'service': columns of services, 'aggregates': [metadata, ...],
                'instances': [...], 'candidates': [...]}],
     'request': fields of RequestSpec; objects in it are dicts of their fields}

Times are seconds from :data:`NOW`. A JSON column is a value or a text. The column of
NUMA cells has the fields of the object.
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
    """The case for nova and for novasched, with rows and objects."""
    hosts = []
    for number, host in enumerate(case.get('hosts', ()), 1):
        hosts.append(host_rows(number, host))
    return {
        **case,
        'config': case.get('config', {}),
        'index': case.get('index', 0),
        'hosts': hosts,
        'request': wire('RequestSpec', case.get('request', {})),
    }


def wire(name, fields):
    """A versioned object with its inner objects. Other fields are ordinary."""
    ordinary = OBJECTS[name]
    data = {**ordinary.get('fields', {}), **fields}
    for field, kind in ordinary.get('parts', {}).items():
        value = data.get(field)
        if isinstance(value, list):
            data[field] = [wire(kind, item) for item in value]
        elif value is not None:
            data[field] = wire(kind, value)
    return {**primitive(name, ordinary['version']), 'nova_object.data': data}


def host_rows(number, host):
    """The rows of a host in the databases, and its candidates."""
    name = host.get('name', f'host{number}')
    node = host.get('node', name)
    row = {
        'id': number,
        'uuid': a_uuid(node),
        'host': name,
        'hypervisor_hostname': node,
    }
    service = {'id': number, 'uuid': a_uuid(f'service of {name}'), 'host': name}
    aggregates = []
    for i, metadata in enumerate(host.get('aggregates', ()), 1):
        aggregate = {
            'id': i,
            'uuid': a_uuid(f'aggregate{i}'),
            'name': f'aggregate{i}',
            'metadata': metadata,
        }
        aggregates.append(aggregate)

    return {
        'row': _columns({**_ORDINARY['compute_node'], **row, **host.get('row', {})}),
        'service': _columns(
            {**_ORDINARY['service'], **service, **host.get('service', {})}
        ),
        'cell_uuid': a_uuid(host.get('cell', 'cell1')),
        'aggregates': aggregates,
        'instances': [_instance(fields) for fields in host.get('instances', ())],
        'candidates': host.get('candidates', [{'mappings': {}}]),
    }


def _instance(fields):
    properties = fields.get('image', {})
    metadata = {f'image_{name}': value for name, value in properties.items()}
    return {
        'uuid': fields.get('uuid', a_uuid('server')),
        'project_id': fields.get('project_id', 'project'),
        'instance_type_id': fields.get('instance_type_id', 1),
        'system_metadata': metadata,
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
