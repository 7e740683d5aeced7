# SPDX-License-Identifier: Apache-2.0
"""Versions of the scheduler's RPC, 4.0 to 4.5: the arguments of each, read as one call.

A message names its version, but only the dispatcher sees it; a call is known by its
arguments.

The two dicts of version 4.0 become the RequestSpec that replaced them. Kilo and Liberty
flatten the instance, the flavor and the image into plain dicts; Mitaka and later
releases, held back to 4.0, leave objects in place of some of them. Both are taken for
each part.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from novasched.rpc import wire
from novasched.rpc.wire import BadObject, NovaObject, RequestSpec
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.image_properties import typed

ARGUMENTS = {
    'request_spec': '4.0',  # Kilo
    'filter_properties': '4.0',
    'spec_obj': '4.3',  # Mitaka; instead of the two above
    'instance_uuids': '4.4',  # Pike
    'return_objects': '4.5',  # Queens
    'return_alternates': '4.5',
}
"""Of select_destinations, with the version that brought each."""
LATEST = '4.5'

IGNORED_CASTS = frozenset(
    (
        'update_aggregates',
        'delete_aggregate',  # since 4.1
        'update_instance_info',
        'delete_instance_info',
        'sync_instance_info',  # since 4.2
    )
)
"""Methods by which others tell what the databases say as well."""
SpecVersion = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of select_destinations, whatever its version. Alternates are only had as
    objects.

    :ivar spec_version: the version of the RequestSpec that was sent; (0,) for dicts.
    :ivar instance_uuids: None if the caller claims by itself.
    """

    spec: RequestSpec
    spec_version: SpecVersion = (0,)
    instance_uuids: tuple[str, ...] | None = None
    return_objects: bool = False
    return_alternates: bool = False


def read(arguments: Mapping[str, Any]) -> Call:
    """Read the arguments of a message as a call.

    :raises BadRequest: an argument is unknown, lacking or of a wrong type.
    """
    if unknown := sorted(arguments.keys() - ARGUMENTS.keys()):
        raise BadRequest(f'select_destinations does not take {", ".join(unknown)}')
    if (uuids := arguments.get('instance_uuids')) is not None:
        if not isinstance(uuids, list | tuple) or not all(
            isinstance(x, str) for x in uuids
        ):
            raise BadRequest('instance_uuids is not a list of texts')
        uuids = tuple(uuids)
    return_objects = bool(arguments.get('return_objects'))
    return_alternates = return_objects and bool(arguments.get('return_alternates'))
    version: SpecVersion = (0,)
    if 'spec_obj' in arguments:
        spec = arguments['spec_obj']
        if not isinstance(spec, RequestSpec):
            raise BadRequest(
                f'spec_obj must be a RequestSpec, not {type(spec).__name__}'
            )
        version = tuple(map(int, spec.VERSION.split('.')))
    else:
        try:
            spec = spec_from_dicts(
                _mapping(
                    arguments.get('request_spec'), 'without spec_obj, request_spec'
                ),
                _mapping(
                    arguments.get('filter_properties'),
                    'without spec_obj, filter_properties',
                ),
            )
        except BadObject as error:
            raise BadRequest(str(error)) from None
    return Call(spec, version, uuids, return_objects, return_alternates)


def spec_from_dicts(spec: Mapping[str, Any], filters: Mapping[str, Any]) -> RequestSpec:
    """The RequestSpec that ``request_spec`` and ``filter_properties`` amount to.

    ``filters['limits']`` is not read: limits are what a scheduler answers.

    :raises BadObject: a part cannot be read.
    """
    instance = spec.get('instance_properties') or {}
    if not isinstance(instance, NovaObject):
        instance = _mapping(instance, 'instance_properties')
    values = {
        x: _get(instance, x) for x in ('project_id', 'user_id', 'availability_zone')
    }
    values['instance_uuid'] = _get(instance, 'uuid')
    values['numa_topology'] = _numa_topology(_get(instance, 'numa_topology'))
    pci = _get(instance, 'pci_requests')
    pci_kind = wire.InstancePCIRequest
    values['pci_requests'] = _container(
        wire.InstancePCIRequests, pci, 'requests', pci_kind
    )
    values['num_instances'] = spec.get('num_instances')
    values['flavor'] = _object(wire.Flavor, spec.get('instance_type'))
    values['image'] = _image(spec.get('image'))
    for name in ('ignore_hosts', 'force_hosts', 'force_nodes'):
        values[name] = filters.get(name)
    values['scheduler_hints'] = _hints(filters.get('scheduler_hints', {}))
    values['retry'] = _retry(filters.get('retry'))
    values['instance_group'] = _group(filters)
    destination = filters.get('requested_destination')
    values['requested_destination'] = _object(wire.Destination, destination)
    decoded: RequestSpec = RequestSpec.from_plain(values)
    return decoded


def _get(thing: Any, name: str) -> Any:
    if isinstance(thing, NovaObject):
        return thing.value(name)
    return thing.get(name)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadObject(f'{name} must be a dict, not {type(value).__name__}')
    return value


def _object(cls: type[NovaObject], value: Any) -> Any:
    """``value`` if it is an object, the object with the fields of a dict, or None."""
    if value and not isinstance(value, NovaObject):
        return cls.from_plain(value)
    return value or None


def _container(
    cls: type[NovaObject], value: Any, name: str, item: type[NovaObject]
) -> Any:
    """An object from a dict in which one field lists objects, or dicts of their
    fields."""
    if isinstance(value, Mapping):
        items = value.get(name) or []
        if not isinstance(items, list):
            raise BadObject(f'{name} must be a list, not {type(items).__name__}')
        value = {**value, name: [_object(item, each) for each in items]}
    return _object(cls, value)


def _numa_topology(value: Any) -> Any:
    """Newton and Ocata send a JSON text of the primitive, their predecessors dicts."""
    if isinstance(value, str):
        if value:
            return wire.loads(value)
        return None
    return _container(wire.InstanceNUMATopology, value, 'cells', wire.InstanceNUMACell)


def _image(value: Any) -> Any:
    """An image without properties of its own, such as that of a volume, is ``{}``."""
    if not isinstance(value, Mapping):
        return value or None
    properties = value.get('properties') or {}
    if isinstance(properties, Mapping):
        texts = {
            name: value for name, value in properties.items() if isinstance(value, str)
        }
        others = {
            name: value for name, value in properties.items() if name not in texts
        }
        properties = wire.ImageMetaProps.from_plain({**others, **typed(texts)})
    if value:
        return wire.ImageMeta.from_plain({**value, 'properties': properties})
    return None


def _hints(hints: Any) -> Any:
    """Hints as lists of texts. Their values come as the user wrote them: one or
    several, texts or other JSON, such as a query that is not quoted. A hint of null is
    not given."""
    if not isinstance(hints, Mapping):
        return hints
    return {
        name: [
            _text(item)
            for item in (value if isinstance(value, list | tuple) else [value])
        ]
        for name, value in hints.items()
        if value is not None
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _retry(value: Any) -> Any:
    """``{'num_attempts': 1, 'hosts': [[host, node], ...]}``"""
    if not value:
        return None
    hosts = _mapping(value, 'retry').get('hosts') or ()
    try:
        tried = [(host, node) for host, node in hosts]
    except (TypeError, ValueError):
        raise BadObject('retry: hosts is no list of pairs') from None
    from_plain = wire.ComputeNode.from_plain
    nodes = [
        from_plain({'host': host, 'hypervisor_hostname': node}) for host, node in tried
    ]
    hosts = wire.ComputeNodeList.from_plain({'objects': nodes})
    retry = {'num_attempts': value.get('num_attempts'), 'hosts': hosts}
    return wire.SchedulerRetries.from_plain(retry)


def _group(filters: Mapping[str, Any]) -> Any:
    """An object, or the keys ``group_*`` of which ``group_updated`` says that they
    hold. A group has one policy, though it stands in a list."""
    if filters.get('instance_group'):
        return filters['instance_group']
    if not filters.get('group_updated'):
        return None
    names = 'uuid', 'policies', 'hosts', 'members'
    return wire.InstanceGroup.from_plain(
        {name: filters.get(f'group_{name}') for name in names}
    )
