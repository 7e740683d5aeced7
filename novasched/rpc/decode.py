# SPDX-License-Identifier: Apache-2.0
"""Decodes a call of select_destinations into a Request.

Releases differ in the fields that callers send, and a field may be null. In both cases
the field gets the default value of the Request. No other module handles missing fields.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from oslo_context.context import RequestContext

from novasched.rpc.versions import Call, is_list_of_texts
from novasched.rpc.wire import NovaObject
from novasched.rpc.wire.base import kind
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import (
    Destination,
    Origin,
    Request,
    RequestedNetwork,
    Retry,
    ServerGroup,
)

T = TypeVar('T')

REQUIRED_FLAVOR_SIZES = ('vcpus', 'memory_mb', 'root_gb')
FLAVOR_SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
MAX_FLAVOR_SIZE = 2**31 - 1
"""The maximum of an INTEGER column in nova's databases."""
MAX_HEADER_CHARACTERS = 255
"""Maximum length of a text in an HTTP header. Request IDs have 40 characters."""
MAX_INSTANCES = 10_000
"""Maximum number of instances in a request. In nova, only the quota of the project
limits the number. The instances of a request are placed in turn, and claimed
together."""


def request(call: Call, context: RequestContext) -> Request:
    """Decode a call.

    :raises BadRequest: the request has no flavor, or a malformed part.
    """
    spec = call.spec
    decoded = Request(
        flavor=_flavor(spec.value('flavor')),
        instance_uuids=call.instance_uuids,
        return_alternates=call.return_alternates,
        request_id=_header_text(context.request_id),
        global_request_id=_header_text(context.global_request_id),
        received=getattr(context, 'received', math.inf),
        origin=Origin(
            spec,
            context,
            _header_text(getattr(context, 'traceparent', None)),
            getattr(context, 'caller', {}),
        ),
        **_instance_fields(spec, context),
        **_host_fields(spec),
        **_device_and_network_fields(spec),
        **_request_group_fields(spec),
    )
    if not 0 < decoded.count <= MAX_INSTANCES:
        why = f'a request is for 1 to {MAX_INSTANCES} instances, not {decoded.count}'
        raise BadRequest(why)
    return decoded


def _instance_fields(spec: NovaObject, context: RequestContext) -> dict[str, Any]:
    """The instances, their owner and their image."""
    # Before version 1.9 a RequestSpec has no user. The caller acts for the user.
    user = spec.value('user_id') or _header_text(context.user_id)
    return {
        'user_id': user,
        'image': _optional(_image, spec.value('image')),
        **_set_fields(spec, 'instance_uuid', 'num_instances', 'project_id', 'is_bfv'),
    }


def _host_fields(spec: NovaObject) -> dict[str, Any]:
    """Destination, zone, hints, group, and hosts to force or ignore."""
    destination = spec.value('requested_destination')
    return {
        'availability_zone': spec.value('availability_zone') or None,
        'scheduler_hints': _hints(spec.value('scheduler_hints')),
        'instance_group': _optional(_group, spec.value('instance_group')),
        'requested_destination': _optional(_destination, destination),
        'retry': _optional(_retry, spec.value('retry')),
        **_set_fields(spec, 'ignore_hosts', 'force_hosts', 'force_nodes'),
    }


def _device_and_network_fields(spec: NovaObject) -> dict[str, Any]:
    pci_requests = _items(spec.value('pci_requests'), 'requests')
    networks = spec.value('network_metadata')
    physnets = None
    if networks:
        physnets = frozenset(networks.value('physnets', ()))
    return {
        'numa_topology': _optional(_numa_topology, spec.value('numa_topology')),
        'pci_requests': tuple(map(_pci_request, pci_requests)),
        'requested_networks': _networks(spec.value('requested_networks')),
        'security_groups': _security_groups(spec.value('security_groups')),
        'physnets': physnets,
        **_set_fields(networks, 'tunneled'),
    }


def _request_group_fields(spec: NovaObject) -> dict[str, Any]:
    """Request groups of ports and devices, and parameters for the whole query."""
    groups = _items(spec, 'requested_resources')
    params = spec.value('request_level_params')
    return {
        'requested_resources': tuple(map(_request_group, groups)),
        'same_subtree': _frozensets(_items(params, 'same_subtree')),
        **_set_fields(params, 'root_required', 'root_forbidden'),
    }


def _header_text(text: Any) -> str | None:
    """The text, or None if the text is not valid in an HTTP header."""
    if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
        return None
    if text.isascii() and text.isprintable():
        return text
    return None


def _set_fields(part: NovaObject | None, *names: str) -> dict[str, Any]:
    """The named fields of an object as immutable values. Unset fields and nulls are
    left out."""
    if part is None:
        return {}

    fields = {}
    for name in names:
        value = part.value(name)
        if value is not None:
            fields[name] = _frozen(value)
    return fields


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    return value


def _optional(make: Callable[[NovaObject], T], part: NovaObject | None) -> T | None:
    if part is None:
        return None
    return make(part)


def _items(part: NovaObject | None, name: str) -> Sequence[Any]:
    """The list in a field of an object. Empty if the object or the field is missing."""
    if part is None:
        return ()
    items: Sequence[Any] = part.value(name, ())
    return items


def _frozensets(lists: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, lists))


def _not_null(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _flavor(flavor: NovaObject | None) -> Flavor:
    if flavor is None:
        raise BadRequest('the request has no flavor')

    missing = []
    for name in REQUIRED_FLAVOR_SIZES:
        if flavor.value(name) is None:
            missing.append(name)
    if missing:
        raise BadRequest(f'the flavor has no {", ".join(missing)}')

    for size in FLAVOR_SIZES:
        if not 0 <= flavor.value(size, 0) <= MAX_FLAVOR_SIZE:
            raise BadRequest(
                f'{size} of the flavor is not between 0 and {MAX_FLAVOR_SIZE}'
            )

    return Flavor(
        extra_specs=_not_null(flavor.value('extra_specs', {})),
        **_set_fields(flavor, 'name', 'flavorid', 'id', *FLAVOR_SIZES),
    )


def _image(image: NovaObject) -> Image:
    properties: Mapping[str, Any] = {}
    wire_properties = image.value('properties')
    if wire_properties is not None:
        properties = wire_properties.values

    # All other properties are checked by the filter that reads the property.
    traits = properties.get('traits_required')
    if traits is not None and not is_list_of_texts(traits, list):
        raise BadRequest('traits_required of the image must be a list of strings')

    return Image(
        properties=_not_null(properties),
        **_set_fields(image, 'id', 'name', 'disk_format', 'container_format'),
        **_set_fields(image, 'min_ram', 'min_disk', 'size'),
    )


def _hints(hints: Any) -> dict[str, tuple[str, ...]]:
    """Decode scheduler hints. nova sends the values of a hint as a list of texts.
    Numbers become texts."""
    if hints is None:
        return {}
    if not isinstance(hints, Mapping):
        raise BadRequest(f'scheduler_hints must be a dict, not {kind(hints)}')

    decoded = {}
    for name, values in hints.items():
        if not isinstance(values, list | tuple):
            raise BadRequest(
                f'the scheduler hint {name} must be a list, not {kind(values)}'
            )
        for value in values:
            if not isinstance(value, str | int | float):
                raise BadRequest(
                    f'the scheduler hint {name} must list strings, not {kind(value)}'
                )
        decoded[name] = tuple(map(str, values))
    return decoded


def _group(group: NovaObject) -> ServerGroup:
    # Before version 1.11 the policy of a group is the only element of ``policies``.
    policies = group.value('policies') or [None]
    return ServerGroup(
        policy=group.value('policy') or policies[0],
        rules=dict(group.value('_rules', {})),
        members=frozenset(_items(group, 'members')),
        hosts=frozenset(_items(group, 'hosts')),
        **_set_fields(group, 'uuid', 'name'),
    )


def _destination(destination: NovaObject) -> Destination:
    cell_uuid = None
    cell = destination.value('cell')
    if cell is not None:
        cell_uuid = cell.value('uuid')

    # An element is a text of UUIDs, separated by commas.
    aggregates = [text.split(',') for text in _items(destination, 'aggregates')]

    return Destination(
        cell_uuid=cell_uuid,
        aggregates=_frozensets(aggregates),
        **_set_fields(
            destination, 'host', 'node', 'forbidden_aggregates', 'allow_cross_cell_move'
        ),
    )


def _retry(retry: NovaObject) -> Retry:
    hosts = []
    for node in _items(retry.value('hosts'), 'objects'):
        hosts.append((node.value('host', ''), node.value('hypervisor_hostname')))
    return Retry(hosts=tuple(hosts), **_set_fields(retry, 'num_attempts'))


def _numa_topology(topology: NovaObject) -> GuestTopology:
    return GuestTopology(
        cells=tuple(map(_guest_cell, _items(topology, 'cells'))),
        emulator_threads_policy=topology.value('emulator_threads_policy'),
    )


def _guest_cell(cell: NovaObject) -> GuestCell:
    cpuset = frozenset(_items(cell, 'cpuset'))
    pcpuset = frozenset(_items(cell, 'pcpuset'))
    # Before version 1.5 the dedicated CPUs are in ``cpuset``. nova converts such cells
    # in the same way.
    if cell.value('cpu_policy') == 'dedicated' and not pcpuset:
        pcpuset = cpuset
        cpuset = frozenset()
    return GuestCell(
        id=cell.value('id', -1),
        cpuset=cpuset,
        memory=cell.value('memory', 0),
        pcpuset=pcpuset,
        **_set_fields(cell, 'pagesize', 'cpu_policy', 'cpu_thread_policy'),
    )


def _pci_request(request: NovaObject) -> PciRequest:
    return PciRequest(
        count=request.value('count', 1),
        spec=tuple(map(dict, _items(request, 'spec'))),
        **_set_fields(
            request, 'alias_name', 'request_id', 'requester_id', 'numa_policy', 'is_new'
        ),
    )


def _networks(networks: NovaObject | None) -> tuple[RequestedNetwork, ...]:
    decoded = []
    for network in _items(networks, 'objects'):
        fields = _set_fields(network, 'network_id', 'port_id', 'pci_request_id')
        decoded.append(RequestedNetwork(**fields))
    return tuple(decoded)


def _security_groups(groups: NovaObject | None) -> tuple[str, ...]:
    """Names of security groups. A group without a name is named by its UUID."""
    names = []
    for group in _items(groups, 'objects'):
        names.append(group.value('name') or group.value('uuid', ''))
    return tuple(names)


def _request_group(group: NovaObject) -> RequestGroup:
    names = (
        'requester_id',
        'resources',
        'required_traits',
        'forbidden_traits',
        'in_tree',
        'forbidden_aggregates',
        'use_same_provider',
        'provider_uuids',
    )
    return RequestGroup(
        aggregates=_frozensets(_items(group, 'aggregates')),
        **_set_fields(group, *names),
    )
