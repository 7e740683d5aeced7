# SPDX-License-Identifier: Apache-2.0
"""The versioned payload: RequestSpecPayload 1.1 and the payloads in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from novasched.notify.spec import Primitive, data
from novasched.objects.base import DATA, NAME, NAMESPACE, VERSION

VERSIONS = {
    'RequestSpecPayload': '1.1',
    'FlavorPayload': '1.4',
    'ImageMetaPayload': '1.0',
    'ImageMetaPropsPayload': '1.20',
    'InstanceNUMATopologyPayload': '1.0',
    'InstanceNUMACellPayload': '1.2',
    'InstancePCIRequestsPayload': '1.0',
    'InstancePCIRequestPayload': '1.1',
    'DestinationPayload': '1.0',
    'CellMappingPayload': '2.0',
    'SchedulerRetriesPayload': '1.0',
    'ServerGroupPayload': '1.1',
}
FLAVOR = (
    'flavorid', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'name', 'swap', 'rxtx_factor',
    'vcpu_weight', 'disabled', 'is_public', 'extra_specs', 'projects', 'description',
)  # fmt: skip
IMAGE = (
    'id', 'name', 'status', 'visibility', 'protected', 'checksum', 'owner', 'size', 'virtual_size',
    'container_format', 'disk_format', 'created_at', 'updated_at', 'tags', 'direct_url', 'min_ram',
    'min_disk',
)  # fmt: skip
SECRET_PROPERTIES = ('hw_ephemeral_encryption_secret_uuid',)
CELL = (
    'id', 'cpuset', 'pcpuset', 'cpuset_reserved', 'memory', 'pagesize', 'cpu_topology',
    'cpu_pinning_raw', 'cpu_policy', 'cpu_thread_policy',
)  # fmt: skip
PCI_REQUEST = ('count', 'spec', 'alias_name', 'request_id', 'numa_policy')
GROUP = ('uuid', 'name', 'user_id', 'project_id', 'policies', 'members', 'hosts', 'policy')
SPEC = (
    'instance_uuid', 'project_id', 'user_id', 'availability_zone', 'ignore_hosts', 'num_instances',
    'scheduler_hints',
)  # fmt: skip


def payload(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The payload for the fields of a RequestSpec."""
    groups = data(spec.get('security_groups')).get('objects') or ()
    numa, pci = spec.get('numa_topology'), spec.get('pci_requests')
    return _payload(
        'RequestSpecPayload',
        **_taken(spec, SPEC),
        flavor=_payload('FlavorPayload', **_taken(data(spec['flavor']), FLAVOR)),
        image=_made(_image, spec.get('image')),
        numa_topology=_numa_topology(data(numa), spec) if numa else None,
        pci_requests=_pci_requests(data(pci), spec) if pci else None,
        requested_destination=_made(_destination, spec.get('requested_destination')),
        retry=_made(_retry, spec.get('retry')),
        instance_group=_made(_group, spec.get('instance_group')),
        security_groups=[data(each).get('uuid') or data(each).get('name') for each in groups],
        force_hosts=next(iter(spec.get('force_hosts') or ()), None),
        force_nodes=next(iter(spec.get('force_nodes') or ()), None),
    )


def _payload(name: str, /, **fields: Any) -> dict[str, Any]:
    return {NAME: name, NAMESPACE: 'nova', VERSION: VERSIONS[name], DATA: fields}


def _taken(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """These fields, null where they are not set."""
    return {name: fields.get(name) for name in names}


def _made(make: Any, primitive: Primitive | None) -> Any:
    return make(data(primitive)) if primitive else None


def _image(image: Mapping[str, Any]) -> dict[str, Any]:
    every = data(image.get('properties'))
    properties = {name: each for name, each in every.items() if name not in SECRET_PROPERTIES}
    return _payload(
        'ImageMetaPayload',
        **_taken(image, IMAGE),
        properties=_payload('ImageMetaPropsPayload', **properties),
    )


def _numa_topology(topology: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return _payload(
        'InstanceNUMATopologyPayload',
        instance_uuid=topology.get('instance_uuid') or spec.get('instance_uuid'),
        cells=[
            _payload('InstanceNUMACellPayload', **_taken(data(each), CELL))
            for each in topology.get('cells') or ()
        ],
        emulator_threads_policy=topology.get('emulator_threads_policy'),
    )


def _pci_requests(requests: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return _payload(
        'InstancePCIRequestsPayload',
        instance_uuid=requests.get('instance_uuid') or spec.get('instance_uuid'),
        requests=[
            _payload('InstancePCIRequestPayload', **_taken(data(each), PCI_REQUEST))
            for each in requests.get('requests') or ()
        ],
    )


def _destination(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Host, node and cell are named only where one is wanted."""
    aimed = {name: wanted[name] for name in ('host', 'node') if wanted.get(name) is not None}
    if cell := wanted.get('cell'):
        names = ('uuid', 'name', 'disabled')
        aimed['cell'] = _payload('CellMappingPayload', **_taken(data(cell), names))
    return _payload('DestinationPayload', aggregates=wanted.get('aggregates'), **aimed)


def _retry(retry: Mapping[str, Any]) -> dict[str, Any]:
    nodes = data(retry.get('hosts')).get('objects') or ()
    return _payload(
        'SchedulerRetriesPayload',
        num_attempts=retry.get('num_attempts'),
        hosts=[data(each).get('hypervisor_hostname') for each in nodes],
    )


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Of the rules only the one that nova knows is told."""
    rule, rules = 'max_server_per_host', group.get('_rules') or {}
    rules = {rule: _whole(rules[rule])} if rule in rules else {}
    return _payload('ServerGroupPayload', **_taken(group, GROUP), rules=rules)


def _whole(text: str) -> str:
    """A number as nova writes it; what is none stays as it is."""
    try:
        return str(int(text))
    except ValueError:
        return text
