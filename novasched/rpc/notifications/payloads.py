# SPDX-License-Identifier: Apache-2.0
"""nova's two formats of a notification, legacy and versioned, as of nova 34.0.0; and
the caller's context in them, without secrets.

nova writes its findings into the RequestSpec of the message, so its notifications show
the aggregates that prefilters ask for and, at the end, the last of the instances, the
hosts in their group, and the cells and CPUs that this instance got. novasched adds them
here, to a copy.
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
"""An object in its envelope, as it travels."""


def data(primitive: Primitive | None) -> Mapping[str, Any]:
    """The fields of an object; none where there is no object, but nothing or anything
    else."""
    if not isinstance(primitive, Mapping):
        return {}
    fields: Mapping[str, Any] = primitive.get(DATA, {})
    return fields


def at_start(sent: Primitive, request: Request) -> dict[str, Any]:
    """The fields of the RequestSpec once Placement has been asked."""
    destination = request.requested_destination
    before = data(sent).get('requested_destination')
    if destination is None:
        return {**data(sent)}
    aggregates = list(data(before).get('aggregates') or ())
    aggregates += [
        ','.join(sorted(uuids)) for uuids in destination.aggregates[len(aggregates) :]
    ]
    now = {
        'host': destination.host,
        'node': destination.node,
        'aggregates': aggregates or None,
    }
    fields = {
        **data(before),
        **{name: value for name, value in now.items() if value is not None},
    }
    return {**data(sent), 'requested_destination': {**(before or {}), DATA: fields}}


def at_end(
    sent: Primitive, request: Request, claims: Sequence[PendingClaim]
) -> dict[str, Any]:
    """The fields of the RequestSpec once all instances have their hosts, in their
    order; its NUMA topology is null if no filter has seen to it that the guest fits,
    and it does not."""
    spec = at_start(sent, request)
    spec['instance_uuid'] = request.instance_uuid
    if group := spec.get('instance_group'):
        hosts = [
            *(data(group).get('hosts') or ()),
            *(each.host.host for each in claims),
        ]
        spec['instance_group'] = {**group, DATA: {**data(group), 'hosts': hosts}}
    if spec.get('numa_topology') and claims[-1].host.numa_topology:
        place = claims[-1].place
        spec['numa_topology'] = place and _landed(spec['numa_topology'], place)
    return spec


def _landed(guest: Primitive, place: Fit) -> Primitive:
    """The guest's cells on those of its host."""
    cells = [
        {**cell, DATA: {**data(cell), **_placed(fit)}}
        for cell, fit in zip(data(guest)['cells'], place.cells, strict=True)
    ]
    fields = {
        name: value for name, value in data(guest).items() if name != 'instance_uuid'
    }
    return {**guest, DATA: {**fields, 'cells': cells}}


def _placed(place: CellFit) -> dict[str, Any]:
    fields = {
        'id': place.host_cell,
        'pagesize': place.pagesize,
        'cpu_pinning_raw': {str(guest): host for guest, host in place.pins} or None,
        'cpuset_reserved': sorted(place.emulator_cpus) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def stamped(sent: Primitive) -> Primitive:
    """The RequestSpec after nova has made a versioned payload of it, which leaves the
    UUID of the instance in parts that may go without one."""
    fields = {**data(sent)}
    for name in ('numa_topology', 'pci_requests'):
        part = fields.get(name)
        if part and 'instance_uuid' not in data(part):
            changes = [*(part.get(CHANGES) or ()), 'instance_uuid']
            uuid = {**data(part), 'instance_uuid': fields.get('instance_uuid')}
            fields[name] = {**part, DATA: uuid, CHANGES: changes}
    return {**sent, DATA: fields}


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
"""Attributes that have the same name on the wire."""
RENAMED_CONTEXT_ATTRIBUTES = {
    'domain_id': 'domain',
    'user_domain_id': 'user_domain',
    'project_domain_id': 'project_domain',
    '_is_admin': 'is_admin',
    '_read_deleted': 'read_deleted',
}
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
"""Attributes that are unknown here, or secret, and sent as null."""


def context_on_wire(context: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The context of a message from nova: oslo.context's, with what nova adds to it.

    Secrets are left out, as they are there: the token, the user's address and the
    catalog.

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
    """The context on the wire as an object of nova's that holds it becomes JSON.

    Here nova sends the user's token to all listeners; novasched does not.
    """
    return {
        **{name: wire.get(name) for name in CONTEXT_ATTRIBUTES},
        **{name: wire.get(key) for name, key in RENAMED_CONTEXT_ATTRIBUTES.items()},
        **dict.fromkeys(NULL_CONTEXT_ATTRIBUTES),
        'service_roles': [],
    }


INSTANCE_FIELDS = (
    'numa_topology',
    'pci_requests',
    'project_id',
    'user_id',
    'availability_zone',
)
INSTANCE_SIZES = ('root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')
TIME_FIELDS = ('created_at', 'updated_at', 'deleted_at')


def legacy_payload(
    spec: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, Any]:
    """The legacy payload for the fields of a RequestSpec: ``{'request_spec':
    {num_instances, image, instance_properties, instance_type}}``.

    It is how nova's objects once happened to become JSON, which consumers rely on:
    image, flavor and NUMA topology are dicts of the fields that are set; PCI requests,
    and the CPU topology of a cell, are a picture of the object's attributes.

    :param context: see :func:`context_attributes`; nova's PCI requests hold it.
    """
    flavor = data(spec['flavor'])
    instance = {name: spec[name] for name in INSTANCE_FIELDS if name in spec}
    if instance.get('numa_topology'):
        instance['numa_topology'] = _plain(instance['numa_topology'])
    if instance.get('pci_requests'):
        instance['pci_requests'] = _attributes(instance['pci_requests'], context)
    request_spec = {
        'num_instances': spec.get('num_instances', 1),
        'image': _plain(spec['image']) if spec.get('image') else {},
        'instance_properties': {
            **instance,
            'uuid': spec.get('instance_uuid'),
            **{name: flavor.get(name) for name in INSTANCE_SIZES},
        },
        'instance_type': _plain(spec['flavor']),
    }
    return {'request_spec': request_spec}


def _plain(value: Any) -> Any:
    """An object, with those in it, as a dict of the fields that are set."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    if value[NAME] == 'VirtCPUTopology':
        return _attributes(value, None)
    fields = {name: _plain(item) for name, item in data(value).items()}
    return {
        **fields,
        **{name: _time(fields[name]) for name in TIME_FIELDS if fields.get(name)},
    }


def _time(text: str) -> str:
    """A time without zone, to the microsecond; another text as it is."""
    try:
        time = datetime.fromisoformat(
            text.removesuffix('Z')
        )  # Python 3.10 does not know it
    except ValueError:
        return text
    return time.replace(tzinfo=None).isoformat(timespec='microseconds')


def _attributes(value: Any, context: Mapping[str, Any] | None) -> Any:
    """An object, with those in it, as the attributes that Python keeps of it."""
    if isinstance(value, list):
        return [_attributes(item, context) for item in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    fields = {
        f'_obj_{name}': _attributes(item, context) for name, item in data(value).items()
    }
    changed = sorted(value.get(CHANGES) or ())
    return {
        '_changed_fields': changed,
        '_context': context,
        'VERSION': value[VERSION],
        **fields,
    }


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
"""Versions of the payloads, and their fields that are sent as they are, null where not
set."""


def versioned_payload(spec: Mapping[str, Any]) -> Payload:
    """The versioned payload, RequestSpecPayload 1.1, for the fields of a
    RequestSpec."""
    groups = data(spec.get('security_groups')).get('objects') or ()
    made_of = {
        'image': _image,
        'numa_topology': _numa_topology,
        'pci_requests': _pci_requests,
        'requested_destination': _destination,
        'retry': _retry,
        'instance_group': _group,
    }
    parts = {}
    for name, make in made_of.items():
        part = {**data(spec.get(name))}
        part['instance_uuid'] = part.get('instance_uuid') or spec.get('instance_uuid')
        parts[name] = make(part) if spec.get(name) else None
    return _payload(
        'RequestSpecPayload',
        spec,
        flavor=_payload('FlavorPayload', data(spec['flavor'])),
        **parts,
        security_groups=[
            data(group).get('uuid') or data(group).get('name') for group in groups
        ],
        force_hosts=next(iter(spec.get('force_hosts') or ()), None),
        force_nodes=next(iter(spec.get('force_nodes') or ()), None),
    )


def _payload(name: str, source: Mapping[str, Any], /, **fields: Any) -> Payload:
    version, names = PAYLOADS[name]
    fields = {**{field: source.get(field) for field in names}, **fields}
    return {NAME: name, NAMESPACE: 'nova', VERSION: version, DATA: fields}


def _image(image: Mapping[str, Any]) -> Payload:
    properties = data(image.get('properties'))
    shown = {
        name: properties[name] for name in properties if name not in SECRET_PROPERTIES
    }
    properties = _payload('ImageMetaPropsPayload', {}, **shown)
    return _payload('ImageMetaPayload', image, properties=properties)


def _numa_topology(topology: Mapping[str, Any]) -> Payload:
    cells = []
    for cell in map(data, topology.get('cells') or ()):
        cpus = cell.get('cpu_topology')
        cpus = cpus and _payload('VirtCPUTopologyPayload', data(cpus))
        cells.append(_payload('InstanceNUMACellPayload', cell, cpu_topology=cpus))
    return _payload('InstanceNUMATopologyPayload', topology, cells=cells)


def _pci_requests(requests: Mapping[str, Any]) -> Payload:
    items = requests.get('requests') or ()
    made = [_payload('InstancePCIRequestPayload', data(item)) for item in items]
    return _payload('InstancePCIRequestsPayload', requests, requests=made)


def _destination(destination: Mapping[str, Any]) -> Payload:
    """Host, node and cell are named only where one is asked for."""
    names = 'host', 'node'
    fields = {x: destination[x] for x in names if destination.get(x) is not None}
    if cell := destination.get('cell'):
        fields['cell'] = _payload('CellMappingPayload', data(cell))
    return _payload('DestinationPayload', destination, **fields)


def _retry(retry: Mapping[str, Any]) -> Payload:
    nodes = data(retry.get('hosts')).get('objects') or ()
    hosts = [data(node).get('hypervisor_hostname') for node in nodes]
    return _payload('SchedulerRetriesPayload', retry, hosts=hosts)


def _group(group: Mapping[str, Any]) -> Payload:
    """Of the rules only the one that nova knows is sent."""
    name = 'max_server_per_host'
    rules = {
        rule: text for rule, text in (group.get('_rules') or {}).items() if rule == name
    }
    with contextlib.suppress(ValueError, KeyError):
        rules[name] = str(int(rules[name]))  # a number as nova writes it
    return _payload('ServerGroupPayload', group, rules=rules)
