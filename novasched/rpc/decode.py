# SPDX-License-Identifier: Apache-2.0
"""From a call to the request that all steps work on.

Absence is dealt with here, once: a field that a release does not send, or sends as
null, gets the value that means that nothing is asked.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from oslo_context.context import RequestContext

from novasched.rpc.versions import Call
from novasched.rpc.wire import NovaObject
from novasched.rpc.wire.base import kind
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import (
    Destination,
    InstanceGroup,
    Origin,
    Request,
    RequestedNetwork,
    Retry,
)

T = TypeVar('T')

FLAVOR_SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
MAX_FLAVOR_SIZE = 2**31 - 1
"""The largest that nova's databases hold."""
MAX_HEADER_CHARACTERS = 255
"""Maximum length of a text in an HTTP header. Request IDs have 40 characters."""
MAX_INSTANCES = 10_000
"""Maximum number of instances in one request. nova bounds the number by the project's
quota alone. The instances of a request are placed one after the other, and claimed
together."""


def request(call: Call, context: RequestContext) -> Request:
    """The user is the caller's where the RequestSpec names none (before 1.9).

    :raises BadRequest: it has no flavor, or a part that cannot be read.
    """
    spec = call.spec
    params = spec.value('request_level_params')
    networks = spec.value('network_metadata')
    names = 'instance_uuid', 'num_instances', 'project_id', 'is_bfv'
    named_hosts = 'ignore_hosts', 'force_hosts', 'force_nodes'
    made = Request(
        flavor=_flavor(spec.value('flavor')),
        instance_uuids=call.instance_uuids,
        return_alternates=call.return_alternates,
        user_id=spec.value('user_id') or _header_text(context.user_id),
        request_id=_header_text(context.request_id),
        global_request_id=_header_text(context.global_request_id),
        availability_zone=spec.value('availability_zone') or None,
        image=_optional(_image, spec.value('image')),
        scheduler_hints=_hints(spec.value('scheduler_hints')),
        instance_group=_optional(_group, spec.value('instance_group')),
        requested_destination=_optional(
            _destination, spec.value('requested_destination')
        ),
        retry=_optional(_retry, spec.value('retry')),
        numa_topology=_optional(_numa_topology, spec.value('numa_topology')),
        pci_requests=tuple(
            map(_pci_request, _items(spec.value('pci_requests'), 'requests'))
        ),
        requested_networks=_networks(spec.value('requested_networks')),
        security_groups=_security_groups(spec.value('security_groups')),
        physnets=frozenset(networks.value('physnets', ())) if networks else None,
        requested_resources=tuple(
            map(_request_group, _items(spec, 'requested_resources'))
        ),
        same_subtree=_sets(_items(params, 'same_subtree')),
        received=getattr(context, 'received', math.inf),
        origin=Origin(
            spec, context, _header_text(getattr(context, 'traceparent', None))
        ),
        **_given(spec, *names, *named_hosts),
        **_given(networks, 'tunneled'),
        **_given(params, 'root_required', 'root_forbidden'),
    )
    if not 0 < made.count <= MAX_INSTANCES:
        why = f'a request is for 1 to {MAX_INSTANCES} instances, not {made.count}'
        raise BadRequest(why)
    return made


def _header_text(text: Any) -> str | None:
    """The text if it can stand in a header of HTTP, or None."""
    if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
        return None
    if text.isascii() and text.isprintable():
        return text
    return None


def _given(part: NovaObject | None, *names: str) -> dict[str, Any]:
    """The fields of an object that are set, as they are kept in a request: of others,
    the defaults of the request mean that nothing is asked."""
    values = {name: part.value(name) for name in names} if part else {}
    return {name: _frozen(value) for name, value in values.items() if value is not None}


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
    items: Sequence[Any] = part.value(name, ()) if part else ()
    return items


def _sets(alternatives: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(names) for names in alternatives)


def _flavor(flavor: NovaObject | None) -> Flavor:
    if flavor is None:
        raise BadRequest('the request has no flavor')
    lacking = [x for x in ('vcpus', 'memory_mb', 'root_gb') if flavor.value(x) is None]
    if lacking:
        raise BadRequest(f'the flavor has no {", ".join(lacking)}')
    for size in FLAVOR_SIZES:
        if not 0 <= flavor.value(size, 0) <= MAX_FLAVOR_SIZE:
            raise BadRequest(
                f'{size} of the flavor is not between 0 and {MAX_FLAVOR_SIZE}'
            )
    specs = flavor.value('extra_specs', {})
    return Flavor(
        **_given(flavor, 'name', 'flavorid', 'id', *FLAVOR_SIZES),
        extra_specs={key: value for key, value in specs.items() if value is not None},
    )


def _image(image: NovaObject) -> Image:
    properties = image.value('properties')
    values = properties.values if properties else {}
    traits = values.get('traits_required') or []
    if not isinstance(traits, list) or not all(
        isinstance(trait, str) for trait in traits
    ):
        raise BadRequest('traits_required of the image is not a list of texts')
    return Image(
        **_given(image, 'id', 'name', 'disk_format', 'container_format'),
        **_given(image, 'min_ram', 'min_disk', 'size'),
        properties={key: value for key, value in values.items() if value is not None},
    )


def _hints(hints: Any) -> dict[str, tuple[str, ...]]:
    """Each hint as a tuple of texts, as every release sends it; numbers become
    texts."""
    if hints is None:
        return {}
    if not isinstance(hints, Mapping):
        raise BadRequest(f'scheduler_hints must be a dict, not {kind(hints)}')
    for name, values in hints.items():
        if not isinstance(values, list | tuple):
            raise BadRequest(
                f'the scheduler hint {name} must be a list, not {kind(values)}'
            )
        for value in values:
            if not isinstance(value, str | int | float):
                raise BadRequest(
                    f'the scheduler hint {name} must list texts, not {kind(value)}'
                )
    return {name: tuple(map(str, values)) for name, values in hints.items()}


def _group(group: NovaObject) -> InstanceGroup:
    policies = group.value('policies') or [None]
    return InstanceGroup(
        policy=group.value('policy') or policies[0],
        rules=dict(group.value('_rules', {})),
        members=frozenset(_items(group, 'members')),
        hosts=frozenset(_items(group, 'hosts')),
        **_given(group, 'uuid', 'name'),
    )


def _destination(destination: NovaObject) -> Destination:
    cell = destination.value('cell')
    return Destination(
        cell_uuid=cell.value('uuid') if cell else None,
        aggregates=_sets(text.split(',') for text in _items(destination, 'aggregates')),
        **_given(
            destination, 'host', 'node', 'forbidden_aggregates', 'allow_cross_cell_move'
        ),
    )


def _retry(retry: NovaObject) -> Retry:
    nodes = _items(retry.value('hosts'), 'objects')
    hosts = tuple(
        (node.value('host', ''), node.value('hypervisor_hostname')) for node in nodes
    )
    return Retry(**_given(retry, 'num_attempts'), hosts=hosts)


def _numa_topology(topology: NovaObject) -> GuestTopology:
    return GuestTopology(
        cells=tuple(map(_guest_cell, _items(topology, 'cells'))),
        emulator_threads_policy=topology.value('emulator_threads_policy'),
    )


def _guest_cell(cell: NovaObject) -> GuestCell:
    """A cell whose dedicated CPUs are in ``pcpuset``. Cells before 1.5 have them in
    ``cpuset``, and nova itself reads such cells in this way."""
    cpuset, pcpuset = (frozenset(_items(cell, name)) for name in ('cpuset', 'pcpuset'))
    if cell.value('cpu_policy') == 'dedicated' and not pcpuset:
        cpuset, pcpuset = pcpuset, cpuset
    return GuestCell(
        id=cell.value('id', -1),
        cpuset=cpuset,
        memory=cell.value('memory', 0),
        pcpuset=pcpuset,
        **_given(cell, 'pagesize', 'cpu_policy', 'cpu_thread_policy'),
    )


def _pci_request(request: NovaObject) -> PciRequest:
    return PciRequest(
        count=request.value('count', 1),
        spec=tuple(map(dict, _items(request, 'spec'))),
        **_given(
            request, 'alias_name', 'request_id', 'requester_id', 'numa_policy', 'is_new'
        ),
    )


def _networks(networks: NovaObject | None) -> tuple[RequestedNetwork, ...]:
    names = 'network_id', 'port_id', 'pci_request_id'
    return tuple(
        RequestedNetwork(**_given(x, *names)) for x in _items(networks, 'objects')
    )


def _security_groups(groups: NovaObject | None) -> tuple[str, ...]:
    """The names; a group that is known by its UUID alone gives that."""
    return tuple(
        x.value('name') or x.value('uuid', '') for x in _items(groups, 'objects')
    )


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
        aggregates=_sets(_items(group, 'aggregates')), **_given(group, *names)
    )
