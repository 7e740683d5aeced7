# SPDX-License-Identifier: Apache-2.0
"""From the call that came to the request that everybody works on.

Absence is dealt with here, once: what a release does not send, or sends as null, gets
the value that means that nothing was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_context.context import RequestContext

from novasched.errors import BadRequest
from novasched.model.numa import GuestCell, GuestTopology
from novasched.model.pci import PciRequest
from novasched.model.request import (
    Destination,
    Flavor,
    Image,
    InstanceGroup,
    NetworkRequest,
    Origin,
    Request,
    RequestGroup,
    Retry,
)
from novasched.objects import BadObject, NovaObject, RequestSpec
from novasched.objects.base import kind
from novasched.rpc import legacy
from novasched.rpc.versions import Call

SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
MOST_OF_ANYTHING = 2**31 - 1
"""What nova's databases hold of a flavor's sizes."""

MOST_SERVERS = 10_000
"""In one request. Each is given a host before the next is looked at."""


def request(call: Call, context: RequestContext) -> Request:
    """The request that a call makes.

    The user is the caller's where the RequestSpec names none (before 1.9).

    :raises BadRequest: it has no flavor, or a part that cannot be read
    """
    spec = call.spec if call.spec is not None else _from_dicts(call)
    params = spec.value('request_level_params')
    networks = spec.value('network_metadata')
    return Request(
        flavor=_flavor(spec.value('flavor')),
        instance_uuids=call.instance_uuids,
        instance_uuid=spec.value('instance_uuid'),
        num_instances=_count(call, spec.value('num_instances', 1)),
        return_alternates=call.return_alternates,
        project_id=spec.value('project_id'),
        user_id=spec.value('user_id') or _told(context.user_id),
        request_id=_told(context.request_id),
        global_request_id=_told(context.global_request_id),
        availability_zone=spec.value('availability_zone') or None,
        image=_image(spec.value('image')),
        is_bfv=spec.value('is_bfv', False),
        scheduler_hints=_hints(spec.value('scheduler_hints')),
        instance_group=_group(spec.value('instance_group')),
        requested_destination=_destination(spec.value('requested_destination')),
        ignore_hosts=tuple(spec.value('ignore_hosts', ())),
        force_hosts=tuple(spec.value('force_hosts', ())),
        force_nodes=tuple(spec.value('force_nodes', ())),
        retry=_retry(spec.value('retry')),
        numa_topology=_numa_topology(spec.value('numa_topology')),
        pci_requests=_pci_requests(spec.value('pci_requests')),
        requested_networks=_networks(spec.value('requested_networks')),
        security_groups=_security_groups(spec.value('security_groups')),
        physnets=_set(networks, 'physnets') if networks else None,
        tunneled=networks.value('tunneled', False) if networks else False,
        requested_resources=tuple(_request_group(x) for x in spec.value('requested_resources', ())),
        root_required=_set(params, 'root_required'),
        root_forbidden=_set(params, 'root_forbidden'),
        same_subtree=_sets(params.value('same_subtree', ())) if params else (),
        origin=Origin(spec, context, _told(getattr(context, 'traceparent', None))),
    )


def _from_dicts(call: Call) -> RequestSpec:
    try:
        return legacy.request_spec(call.request_spec or {}, call.filter_properties or {})
    except BadObject as error:
        raise BadRequest(str(error)) from None


def _told(text: Any) -> str | None:
    """What a context says of the caller, if it is what can stand in a header of HTTP."""
    return text if isinstance(text, str) and text.isascii() and text.isprintable() else None


def _count(call: Call, number: int) -> int:
    """How many servers are asked for, where they have no UUIDs.

    :raises BadRequest: none, or more than anybody asks for at once.
    """
    if not call.instance_uuids and not 0 < number <= MOST_SERVERS:
        raise BadRequest(f'num_instances must be between 1 and {MOST_SERVERS}')
    return number


def _set(thing: NovaObject | None, name: str) -> frozenset[str]:
    return frozenset(thing.value(name, ())) if thing else frozenset()


def _sets(alternatives: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(each) for each in alternatives)


def _flavor(flavor: NovaObject | None) -> Flavor:
    if flavor is None:
        raise BadRequest('the request has no flavor')
    lacking = [x for x in ('vcpus', 'memory_mb', 'root_gb') if flavor.value(x) is None]
    if lacking:
        raise BadRequest(f'the flavor has no {", ".join(lacking)}')
    for size in SIZES:
        if not 0 <= flavor.value(size, 0) <= MOST_OF_ANYTHING:
            raise BadRequest(f'{size} of the flavor is not between 0 and {MOST_OF_ANYTHING}')
    specs = flavor.value('extra_specs', {})
    return Flavor(
        name=flavor.value('name', ''),
        flavorid=flavor.value('flavorid', ''),
        id=flavor.value('id'),
        vcpus=flavor.value('vcpus'),
        memory_mb=flavor.value('memory_mb'),
        root_gb=flavor.value('root_gb'),
        ephemeral_gb=flavor.value('ephemeral_gb', 0),
        swap=flavor.value('swap', 0),
        extra_specs={key: value for key, value in specs.items() if value is not None},
    )


def _image(image: NovaObject | None) -> Image | None:
    if image is None:
        return None
    properties = image.value('properties')
    values = properties.values if properties else {}
    traits = values.get('traits_required') or []
    if not isinstance(traits, list) or not all(isinstance(trait, str) for trait in traits):
        raise BadRequest('traits_required of the image is not a list of texts')
    return Image(
        id=image.value('id'),
        name=image.value('name'),
        disk_format=image.value('disk_format'),
        container_format=image.value('container_format'),
        min_ram=image.value('min_ram', 0),
        min_disk=image.value('min_disk', 0),
        size=image.value('size'),
        properties={key: value for key, value in values.items() if value is not None},
    )


def _hints(hints: Any) -> dict[str, tuple[str, ...]]:
    """Each hint as a tuple of texts, which is how every release sends it; numbers among
    them become texts."""
    if hints is None:
        return {}
    if not isinstance(hints, Mapping):
        raise BadRequest(f'scheduler_hints must be a dict, not {kind(hints)}')
    return {name: _texts(name, value) for name, value in hints.items()}


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise BadRequest(f'the scheduler hint {name} must be a list, not {kind(values)}')
    for value in values:
        if not isinstance(value, str | int | float):
            raise BadRequest(f'the scheduler hint {name} must list texts, not {kind(value)}')
    return tuple(map(str, values))


def _group(group: NovaObject | None) -> InstanceGroup | None:
    if group is None:
        return None
    policies = group.value('policies') or [None]
    return InstanceGroup(
        uuid=group.value('uuid'),
        name=group.value('name'),
        policy=group.value('policy') or policies[0],
        rules=dict(group.value('_rules', {})),
        members=_set(group, 'members'),
        hosts=_set(group, 'hosts'),
    )


def _destination(wanted: NovaObject | None) -> Destination | None:
    if wanted is None:
        return None
    cell = wanted.value('cell')
    return Destination(
        host=wanted.value('host'),
        node=wanted.value('node'),
        cell_uuid=cell.value('uuid') if cell else None,
        aggregates=_sets(text.split(',') for text in wanted.value('aggregates', ())),
        forbidden_aggregates=_set(wanted, 'forbidden_aggregates'),
        allow_cross_cell_move=wanted.value('allow_cross_cell_move', False),
    )


def _retry(retry: NovaObject | None) -> Retry | None:
    if retry is None:
        return None
    nodes = retry.value('hosts')
    tried = nodes.value('objects', ()) if nodes else ()
    return Retry(
        num_attempts=retry.value('num_attempts', 1),
        hosts=tuple((node.value('host', ''), node.value('hypervisor_hostname')) for node in tried),
    )


def _numa_topology(topology: NovaObject | None) -> GuestTopology | None:
    if topology is None:
        return None
    return GuestTopology(
        cells=tuple(_guest_cell(cell) for cell in topology.value('cells', ())),
        emulator_threads_policy=topology.value('emulator_threads_policy'),
    )


def _guest_cell(cell: NovaObject) -> GuestCell:
    """A cell whose dedicated CPUs are in ``pcpuset``. Cells before 1.5 have them in
    ``cpuset``, and nova itself reads such cells in this way."""
    cpuset, pcpuset = _set_of_ints(cell, 'cpuset'), _set_of_ints(cell, 'pcpuset')
    if cell.value('cpu_policy') == 'dedicated' and not pcpuset:
        cpuset, pcpuset = pcpuset, cpuset
    return GuestCell(
        id=cell.value('id', -1),
        cpuset=cpuset,
        memory=cell.value('memory', 0),
        pcpuset=pcpuset,
        pagesize=cell.value('pagesize'),
        cpu_policy=cell.value('cpu_policy'),
        cpu_thread_policy=cell.value('cpu_thread_policy'),
    )


def _set_of_ints(cell: NovaObject, name: str) -> frozenset[int]:
    return frozenset(cell.value(name, ()))


def _pci_requests(requests: NovaObject | None) -> tuple[PciRequest, ...]:
    if requests is None:
        return ()
    return tuple(
        PciRequest(
            count=each.value('count', 1),
            spec=tuple(dict(spec) for spec in each.value('spec', ())),
            alias_name=each.value('alias_name'),
            request_id=each.value('request_id'),
            requester_id=each.value('requester_id'),
            numa_policy=each.value('numa_policy'),
            is_new=each.value('is_new', False),
        )
        for each in requests.value('requests', ())
    )


def _networks(networks: NovaObject | None) -> tuple[NetworkRequest, ...]:
    if networks is None:
        return ()
    return tuple(
        NetworkRequest(
            network_id=each.value('network_id'),
            port_id=each.value('port_id'),
            pci_request_id=each.value('pci_request_id'),
        )
        for each in networks.value('objects', ())
    )


def _security_groups(groups: NovaObject | None) -> tuple[str, ...]:
    """The names; a group that is known by its UUID alone gives that."""
    if groups is None:
        return ()
    return tuple(x.value('name') or x.value('uuid', '') for x in groups.value('objects', ()))


def _request_group(group: NovaObject) -> RequestGroup:
    return RequestGroup(
        requester_id=group.value('requester_id'),
        resources=dict(group.value('resources', {})),
        required_traits=_set(group, 'required_traits'),
        forbidden_traits=_set(group, 'forbidden_traits'),
        aggregates=_sets(group.value('aggregates', ())),
        forbidden_aggregates=_set(group, 'forbidden_aggregates'),
        in_tree=group.value('in_tree'),
        use_same_provider=group.value('use_same_provider', True),
        provider_uuids=tuple(group.value('provider_uuids', ())),
    )
