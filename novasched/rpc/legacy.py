# SPDX-License-Identifier: Apache-2.0
"""The two dicts of version 4.0, read as the RequestSpec that replaced them.

Kilo and Liberty flatten the instance, the flavor and the image into plain dicts; Mitaka
and later releases, held back to 4.0, leave objects in place of some of them. Both are
taken for each part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from novasched import objects
from novasched.model.image_properties import typed
from novasched.objects import BadObject, NovaObject, RequestSpec


def request_spec(spec: Mapping[str, Any], filters: Mapping[str, Any]) -> RequestSpec:
    """The RequestSpec that ``request_spec`` and ``filter_properties`` amount to.

    ``filters['limits']`` is not read: limits are what a scheduler answers.

    :raises BadObject: a part cannot be read
    """
    instance = spec.get('instance_properties') or {}
    if not isinstance(instance, NovaObject):
        instance = _mapping(instance, 'instance_properties')
    values = {name: _get(instance, name) for name in ('project_id', 'user_id')}
    values['instance_uuid'] = _get(instance, 'uuid')
    values['availability_zone'] = _get(instance, 'availability_zone')
    values['numa_topology'] = _numa_topology(_get(instance, 'numa_topology'))
    values['pci_requests'] = _pci_requests(_get(instance, 'pci_requests'))
    values['num_instances'] = spec.get('num_instances')
    values['flavor'] = _object(objects.Flavor, spec.get('instance_type'))
    values['image'] = _image(spec.get('image'))
    for name in ('ignore_hosts', 'force_hosts', 'force_nodes'):
        values[name] = filters.get(name)
    values['scheduler_hints'] = _hints(filters.get('scheduler_hints', {}))
    values['retry'] = _retry(filters.get('retry'))
    values['instance_group'] = _group(filters)
    destination = filters.get('requested_destination')
    values['requested_destination'] = _object(objects.Destination, destination)
    decoded: RequestSpec = RequestSpec.from_plain(values)
    return decoded


def _get(thing: Any, name: str) -> Any:
    return thing.value(name) if isinstance(thing, NovaObject) else thing.get(name)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadObject(f'{name} must be a dict, not {type(value).__name__}')
    return value


def _object(cls: type[NovaObject], value: Any) -> Any:
    """``value`` if it is an object, the object with the fields of a dict, or None."""
    return cls.from_plain(value) if value and not isinstance(value, NovaObject) else value or None


def _objects(cls: type[NovaObject], values: Mapping[str, Any], name: str) -> list[Any]:
    each = values.get(name) or []
    if not isinstance(each, list):
        raise BadObject(f'{name} must be a list, not {type(each).__name__}')
    return [_object(cls, value) for value in each]


def _numa_topology(value: Any) -> Any:
    """Newton and Ocata send a JSON text of the primitive, their predecessors dicts."""
    if isinstance(value, str):
        return objects.loads(value) if value else None
    if isinstance(value, Mapping):
        value = {**value, 'cells': _objects(objects.InstanceNUMACell, value, 'cells')}
    return _object(objects.InstanceNUMATopology, value)


def _pci_requests(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = {**value, 'requests': _objects(objects.InstancePCIRequest, value, 'requests')}
    return _object(objects.InstancePCIRequests, value)


def _image(value: Any) -> Any:
    """An image without properties of its own, such as that of a volume, is ``{}``."""
    if not isinstance(value, Mapping):
        return value or None
    properties = value.get('properties') or {}
    if isinstance(properties, Mapping):
        texts = {name: value for name, value in properties.items() if isinstance(value, str)}
        others = {name: value for name, value in properties.items() if name not in texts}
        properties = objects.ImageMetaProps.from_plain({**others, **typed(texts)})
    return objects.ImageMeta.from_plain({**value, 'properties': properties}) if value else None


def _hints(hints: Any) -> Any:
    """Hints as lists of texts. Their values come as the user wrote them: one or several,
    texts or other JSON, such as a query that is not quoted. A hint of null is not given."""
    if not isinstance(hints, Mapping):
        return hints
    return {
        name: [_text(each) for each in (value if isinstance(value, list | tuple) else [value])]
        for name, value in hints.items()
        if value is not None
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _retry(value: Any) -> Any:
    """``{'num_attempts': 1, 'hosts': [[host, node], ...]}``"""
    if not value:
        return None
    hosts = _mapping(value, 'retry').get('hosts') or ()
    try:
        tried = [(host, node) for host, node in hosts]
    except (TypeError, ValueError):
        raise BadObject('retry: hosts is no list of pairs') from None
    nodes = [
        objects.ComputeNode.from_plain({'host': host, 'hypervisor_hostname': node})
        for host, node in tried
    ]
    return objects.SchedulerRetries.from_plain(
        {
            'num_attempts': value.get('num_attempts'),
            'hosts': objects.ComputeNodeList.from_plain({'objects': nodes}),
        }
    )


def _group(filters: Mapping[str, Any]) -> Any:
    """An object, or the keys ``group_*`` of which ``group_updated`` says that they hold.
    A group has one policy, though it stands in a list."""
    if filters.get('instance_group'):
        return filters['instance_group']
    if not filters.get('group_updated'):
        return None
    return objects.InstanceGroup.from_plain(
        {
            'uuid': filters.get('group_uuid'),
            'policies': filters.get('group_policies'),
            'hosts': filters.get('group_hosts'),
            'members': filters.get('group_members'),
        }
    )
