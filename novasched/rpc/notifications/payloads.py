# SPDX-License-Identifier: Apache-2.0
"""The legacy and the versioned format of notifications, as of nova 34.0.0, and the
context of the caller without secrets.

While nova places instances, nova changes the RequestSpec of the message. The
notifications of nova therefore contain the aggregates of prefilters and, at the end,
the last instance, the hosts of the group, and the cells and CPUs of the last instance.
novasched adds these values to a copy of the RequestSpec.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from novasched.rpc.wire.base import CHANGES, DATA, NAME, NAMESPACE, VERSION
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.image_properties import SECRET_PROPERTIES
from novasched.scheduler.model.numa import CellFit, Fit
from novasched.scheduler.model.request import Request

Primitive = Mapping[str, Any]
"""An object with the envelope of nova."""


def data(primitive: Primitive | None) -> Mapping[str, Any]:
    """The fields of an object. Empty for every value that is no object."""
    if not isinstance(primitive, Mapping):
        return {}
    fields: Mapping[str, Any] = primitive.get(DATA, {})
    return fields


def at_start(sent: Primitive, request: Request) -> dict[str, Any]:
    """The fields of the RequestSpec after Placement has been asked.

    :param sent: the RequestSpec of the message.
    """
    spec = dict(data(sent))
    destination = request.requested_destination
    if destination is None:
        return spec

    # Prefilters append aggregates to the aggregates of the message.
    sent_destination = spec.get('requested_destination')
    aggregates = list(data(sent_destination).get('aggregates') or ())
    for uuids in destination.aggregates[len(aggregates) :]:
        aggregates.append(','.join(sorted(uuids)))

    fields = dict(data(sent_destination))
    if destination.host is not None:
        fields['host'] = destination.host
    if destination.node is not None:
        fields['node'] = destination.node
    if aggregates:
        fields['aggregates'] = aggregates

    spec['requested_destination'] = {**(sent_destination or {}), DATA: fields}
    return spec


def at_end(
    sent: Primitive, request: Request, claims: Sequence[PendingClaim]
) -> dict[str, Any]:
    """The fields of the RequestSpec after all instances were placed.

    The NUMA topology is null if the guest does not fit on the NUMA cells of the host,
    which happens without NUMATopologyFilter.

    :param claims: the claims of the instances, in order.
    """
    spec = at_start(sent, request)
    spec['instance_uuid'] = request.instance_uuid

    group = spec.get('instance_group')
    if group:
        hosts = list(data(group).get('hosts') or ())
        hosts += [claim.host.host for claim in claims]
        spec['instance_group'] = {**group, DATA: {**data(group), 'hosts': hosts}}

    last = claims[-1]
    if spec.get('numa_topology') and last.host.numa_topology:
        fit = last.fit
        spec['numa_topology'] = fit and _fitted_topology(spec['numa_topology'], fit)
    return spec


def _fitted_topology(topology: Primitive, fit: Fit) -> Primitive:
    """The NUMA topology of a guest after it was fitted on the cells of its host."""
    cells = []
    for cell, cell_fit in zip(data(topology)['cells'], fit.cells, strict=True):
        fields = {**data(cell), **_fitted_fields(cell_fit)}
        cells.append({**cell, DATA: fields})

    fields = {**data(topology), 'cells': cells}
    # nova builds a new topology here, which has no instance.
    fields.pop('instance_uuid', None)
    return {**topology, DATA: fields}


def _fitted_fields(fit: CellFit) -> dict[str, Any]:
    fields: dict[str, Any] = {'id': fit.host_cell}
    if fit.pagesize is not None:
        fields['pagesize'] = fit.pagesize
    if fit.pins:
        fields['cpu_pinning_raw'] = {str(guest): host for guest, host in fit.pins}
    if fit.emulator_cpus:
        fields['cpuset_reserved'] = sorted(fit.emulator_cpus)
    return fields


def with_instance_uuid(sent: Primitive) -> Primitive:
    """The RequestSpec after nova has built a versioned payload. To build the payload,
    nova sets the UUID of the instance in the NUMA topology and in the PCI requests."""
    spec = dict(data(sent))
    for name in ('numa_topology', 'pci_requests'):
        part = spec.get(name)
        if part and 'instance_uuid' not in data(part):
            changes = [*(part.get(CHANGES) or ()), 'instance_uuid']
            fields = {**data(part), 'instance_uuid': spec.get('instance_uuid')}
            spec[name] = {**part, DATA: fields, CHANGES: changes}
    return {**sent, DATA: spec}


CONTEXT_ATTRIBUTES = (
    'user_id',
    'project_id',
    'user_name',
    'project_name',
    'system_scope',
    'is_admin_project',
    'read_only',
    'show_deleted',
    'resource_uuid',
    'roles',
    'request_id',
    'global_request_id',
    'remote_address',
    'timestamp',
    'service_catalog',
    'quota_class',
)
"""Attributes of nova's context with the same name on the wire."""
RENAMED_CONTEXT_ATTRIBUTES = {
    'domain_id': 'domain',
    'user_domain_id': 'user_domain',
    'project_domain_id': 'project_domain',
    '_is_admin': 'is_admin',
    '_read_deleted': 'read_deleted',
}
"""Attributes of nova's context, and their names on the wire."""
NULL_CONTEXT_ATTRIBUTES = (
    'domain_name',
    'user_domain_name',
    'project_domain_name',
    'service_user_id',
    'service_user_name',
    'service_user_domain_id',
    'service_user_domain_name',
    'service_project_id',
    'service_project_name',
    'service_project_domain_id',
    'service_project_domain_name',
    'db_connection',
    'mq_connection',
    'cell_uuid',
    'user_auth_plugin',
    'auth_token',
    'service_token',
)
"""Attributes that are secret or unknown to novasched, and therefore null."""


def context_on_wire(context: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The context of a message from nova: the fields of oslo.context and of nova.

    Like nova, novasched leaves out secrets: the token, the address of the user and the
    service catalog.

    :param now: the time of the message.
    """
    return {
        **context,
        'auth_token': None,
        'user_id': context.get('user'),
        'read_deleted': 'no',
        'remote_address': None,
        'timestamp': now.isoformat(timespec='microseconds'),
        'quota_class': None,
        'user_name': context.get('user_name'),
        'service_catalog': [],
        'project_name': context.get('project_name'),
    }


def context_attributes(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The context within an object of nova that is encoded as JSON by its attributes.

    nova sends the token of the user to all listeners here. novasched does not.
    """
    attributes: dict[str, Any] = {}
    for name in CONTEXT_ATTRIBUTES:
        attributes[name] = wire.get(name)
    for name, key in RENAMED_CONTEXT_ATTRIBUTES.items():
        attributes[name] = wire.get(key)
    for name in NULL_CONTEXT_ATTRIBUTES:
        attributes[name] = None
    attributes['service_roles'] = []
    return attributes


INSTANCE_FIELDS = (
    'numa_topology',
    'pci_requests',
    'project_id',
    'user_id',
    'availability_zone',
)
INSTANCE_SIZES = ('root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')
MAX_SERVER_PER_HOST = 'max_server_per_host'
TIME_FIELDS = ('created_at', 'updated_at', 'deleted_at')


def legacy_payload(
    spec: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, Any]:
    """The legacy payload for the fields of a RequestSpec: ``{'request_spec':
    {num_instances, image, instance_properties, instance_type}}``.

    The format is that in which nova's objects once were encoded as JSON, and consumers
    rely on it. Image, flavor and NUMA topology are dicts of the fields that are set.
    PCI requests and the CPU topology of a cell are dicts of the attributes of the
    Python object.

    :param context: see :func:`context_attributes`. nova's PCI requests contain the
        context.
    """
    instance = {}
    for name in INSTANCE_FIELDS:
        if name in spec:
            instance[name] = spec[name]
    if instance.get('numa_topology'):
        instance['numa_topology'] = _plain(instance['numa_topology'])
    if instance.get('pci_requests'):
        instance['pci_requests'] = _attributes(instance['pci_requests'], context)
    instance['uuid'] = spec.get('instance_uuid')

    flavor = data(spec['flavor'])
    for name in INSTANCE_SIZES:
        instance[name] = flavor.get(name)

    image = {}
    if spec.get('image'):
        image = _plain(spec['image'])
    request_spec = {
        'num_instances': spec.get('num_instances', 1),
        'image': image,
        'instance_properties': instance,
        'instance_type': _plain(spec['flavor']),
    }
    return {'request_spec': request_spec}


def _plain(value: Any) -> Any:
    """Convert objects, at any depth, to dicts of the fields that are set."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    if value[NAME] == 'VirtCPUTopology':
        return _attributes(value, None)

    fields = {}
    for name, item in data(value).items():
        fields[name] = _plain(item)
    for name in TIME_FIELDS:
        if fields.get(name):
            fields[name] = _time(fields[name])
    return fields


def _time(text: str) -> str:
    """Format a time without zone, with microseconds. A malformed time stays as it
    is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.replace(tzinfo=None).isoformat(timespec='microseconds')


def _attributes(value: Any, context: Mapping[str, Any] | None) -> Any:
    """Convert objects, at any depth, to dicts of the attributes of the Python
    object."""
    if isinstance(value, list):
        return [_attributes(item, context) for item in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value

    attributes = {
        '_changed_fields': sorted(value.get(CHANGES) or ()),
        '_context': context,
        'VERSION': value[VERSION],
    }
    for name, item in data(value).items():
        attributes[f'_obj_{name}'] = _attributes(item, context)
    return attributes


Payload = dict[str, Any]

PAYLOADS: Mapping[str, tuple[str, Sequence[str]]] = {
    'RequestSpecPayload': (
        '1.1',
        (
            'instance_uuid',
            'project_id',
            'user_id',
            'availability_zone',
            'ignore_hosts',
            'num_instances',
            'scheduler_hints',
        ),
    ),
    'FlavorPayload': (
        '1.4',
        (
            'flavorid',
            'memory_mb',
            'vcpus',
            'root_gb',
            'ephemeral_gb',
            'name',
            'swap',
            'rxtx_factor',
            'vcpu_weight',
            'disabled',
            'is_public',
            'extra_specs',
            'projects',
            'description',
        ),
    ),
    'ImageMetaPayload': (
        '1.0',
        (
            'id',
            'name',
            'status',
            'visibility',
            'protected',
            'checksum',
            'owner',
            'size',
            'virtual_size',
            'container_format',
            'disk_format',
            'created_at',
            'updated_at',
            'tags',
            'direct_url',
            'min_ram',
            'min_disk',
        ),
    ),
    'ImageMetaPropsPayload': ('1.20', ()),
    'InstanceNUMATopologyPayload': (
        '1.0',
        ('instance_uuid', 'emulator_threads_policy'),
    ),
    'InstanceNUMACellPayload': (
        '1.2',
        (
            'id',
            'cpuset',
            'pcpuset',
            'cpuset_reserved',
            'memory',
            'pagesize',
            'cpu_topology',
            'cpu_pinning_raw',
            'cpu_policy',
            'cpu_thread_policy',
        ),
    ),
    'VirtCPUTopologyPayload': ('1.0', ('sockets', 'cores', 'threads')),
    'InstancePCIRequestsPayload': ('1.0', ('instance_uuid',)),
    'InstancePCIRequestPayload': (
        '1.1',
        (
            'count',
            'spec',
            'alias_name',
            'request_id',
            'numa_policy',
        ),
    ),
    'DestinationPayload': ('1.0', ('aggregates',)),
    'CellMappingPayload': ('2.0', ('uuid', 'name', 'disabled')),
    'SchedulerRetriesPayload': ('1.0', ('num_attempts',)),
    'ServerGroupPayload': (
        '1.1',
        (
            'uuid',
            'name',
            'user_id',
            'project_id',
            'policies',
            'members',
            'hosts',
            'policy',
        ),
    ),
}
"""Payload to its version, and to the fields that the payload copies from the object. A
field that is not set is null."""


def versioned_payload(spec: Mapping[str, Any]) -> Payload:
    """The versioned payload, RequestSpecPayload 1.1, for the fields of a
    RequestSpec."""
    builders = {
        'image': _image,
        'numa_topology': _numa_topology,
        'pci_requests': _pci_requests,
        'requested_destination': _destination,
        'retry': _retry,
        'instance_group': _group,
    }
    parts: dict[str, Payload | None] = {}
    for name, build in builders.items():
        parts[name] = None
        if spec.get(name):
            part = dict(data(spec[name]))
            part['instance_uuid'] = part.get('instance_uuid') or spec.get(
                'instance_uuid'
            )
            parts[name] = build(part)

    security_groups = []
    for group in data(spec.get('security_groups')).get('objects') or ():
        security_groups.append(data(group).get('uuid') or data(group).get('name'))

    return _payload(
        'RequestSpecPayload',
        spec,
        flavor=_payload('FlavorPayload', data(spec['flavor'])),
        **parts,
        security_groups=security_groups,
        force_hosts=_first(spec.get('force_hosts')),
        force_nodes=_first(spec.get('force_nodes')),
    )


def _first(items: Sequence[Any] | None) -> Any:
    """The first item. None if there is no item."""
    return next(iter(items or ()), None)


def _payload(name: str, source: Mapping[str, Any], /, **fields: Any) -> Payload:
    """Build a payload with the fields that ``PAYLOADS`` names, and further fields."""
    version, names = PAYLOADS[name]
    copied = {field: source.get(field) for field in names}
    return {NAME: name, NAMESPACE: 'nova', VERSION: version, DATA: {**copied, **fields}}


def _image(image: Mapping[str, Any]) -> Payload:
    properties = {}
    for name, value in data(image.get('properties')).items():
        if name not in SECRET_PROPERTIES:
            properties[name] = value
    payload = _payload('ImageMetaPropsPayload', {}, **properties)
    return _payload('ImageMetaPayload', image, properties=payload)


def _numa_topology(topology: Mapping[str, Any]) -> Payload:
    cells = []
    for cell in map(data, topology.get('cells') or ()):
        cpus = cell.get('cpu_topology')
        cpus = cpus and _payload('VirtCPUTopologyPayload', data(cpus))
        cells.append(_payload('InstanceNUMACellPayload', cell, cpu_topology=cpus))
    return _payload('InstanceNUMATopologyPayload', topology, cells=cells)


def _pci_requests(requests: Mapping[str, Any]) -> Payload:
    payloads = []
    for request in requests.get('requests') or ():
        payloads.append(_payload('InstancePCIRequestPayload', data(request)))
    return _payload('InstancePCIRequestsPayload', requests, requests=payloads)


def _destination(destination: Mapping[str, Any]) -> Payload:
    # Unlike all other fields, host, node and cell are left out where not set.
    fields = {}
    for name in ('host', 'node'):
        if destination.get(name) is not None:
            fields[name] = destination[name]
    cell = destination.get('cell')
    if cell:
        fields['cell'] = _payload('CellMappingPayload', data(cell))
    return _payload('DestinationPayload', destination, **fields)


def _retry(retry: Mapping[str, Any]) -> Payload:
    nodes = data(retry.get('hosts')).get('objects') or ()
    hosts = [data(node).get('hypervisor_hostname') for node in nodes]
    return _payload('SchedulerRetriesPayload', retry, hosts=hosts)


def _group(group: Mapping[str, Any]) -> Payload:
    # nova sends the only rule that nova knows.
    rules = {}
    rule = (group.get('_rules') or {}).get(MAX_SERVER_PER_HOST)
    if rule is not None:
        rules[MAX_SERVER_PER_HOST] = rule
        with contextlib.suppress(ValueError):
            # nova decodes the number, and encodes it again.
            rules[MAX_SERVER_PER_HOST] = str(int(rule))
    return _payload('ServerGroupPayload', group, rules=rules)
