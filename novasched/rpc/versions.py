# SPDX-License-Identifier: Apache-2.0
"""Reads the arguments of select_destinations in the RPC versions 4.0 to 4.5.

Only the dispatcher knows the version of a message. A call is recognised by its
arguments.

From the two dicts of version 4.0, this module builds the RequestSpec that replaced the
dicts in version 4.3. Kilo and Liberty send instance, flavor and image as plain dicts.
Later releases that are pinned to 4.0 send objects in place of several dicts. Both forms
are accepted for each part.
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
"""Arguments of select_destinations, and the version that introduced the argument."""
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
"""Methods that report changes of aggregates and instances. novasched reads these from
the databases."""
SpecVersion = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of select_destinations in any version.

    :ivar spec_version: the version of the RequestSpec in the message; (0,) for dicts.
    :ivar instance_uuids: None if the caller makes the claims.
    :ivar return_alternates: False unless ``return_objects`` is set.
    """

    spec: RequestSpec
    spec_version: SpecVersion = (0,)
    instance_uuids: tuple[str, ...] | None = None
    return_objects: bool = False
    return_alternates: bool = False


def read(arguments: Mapping[str, Any]) -> Call:
    """Read the arguments of a message.

    :raises BadRequest: an argument is unknown, missing or malformed.
    """
    unknown = sorted(arguments.keys() - ARGUMENTS.keys())
    if unknown:
        raise BadRequest(f'select_destinations has no argument {", ".join(unknown)}')

    uuids = arguments.get('instance_uuids')
    if uuids is not None:
        if not is_list_of_texts(uuids, list | tuple):
            raise BadRequest('instance_uuids must be a list of strings')
        uuids = tuple(uuids)

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
                _dict_argument(arguments, 'request_spec'),
                _dict_argument(arguments, 'filter_properties'),
            )
        except BadObject as error:
            raise BadRequest(str(error)) from None

    return_objects = bool(arguments.get('return_objects'))
    return_alternates = return_objects and bool(arguments.get('return_alternates'))
    return Call(spec, version, uuids, return_objects, return_alternates)


def is_list_of_texts(value: Any, kinds: Any) -> bool:
    """True for a list of texts. ``kinds`` are the accepted classes of the list."""
    return isinstance(value, kinds) and all(isinstance(item, str) for item in value)


def _dict_argument(arguments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _mapping(arguments.get(name), f'without spec_obj, {name}')


def spec_from_dicts(spec: Mapping[str, Any], filters: Mapping[str, Any]) -> RequestSpec:
    """Build the RequestSpec from ``request_spec`` and ``filter_properties``.

    ``filters['limits']`` is not read. Limits are a part of the answer.

    :raises BadObject: a part is malformed.
    """
    instance = spec.get('instance_properties') or {}
    if not isinstance(instance, NovaObject):
        instance = _mapping(instance, 'instance_properties')

    pci_requests = _container(
        wire.InstancePCIRequests,
        _get(instance, 'pci_requests'),
        'requests',
        wire.InstancePCIRequest,
    )
    destination = filters.get('requested_destination')
    decoded: RequestSpec = RequestSpec.from_plain(
        {
            'project_id': _get(instance, 'project_id'),
            'user_id': _get(instance, 'user_id'),
            'availability_zone': _get(instance, 'availability_zone'),
            'instance_uuid': _get(instance, 'uuid'),
            'numa_topology': _numa_topology(_get(instance, 'numa_topology')),
            'pci_requests': pci_requests,
            'num_instances': spec.get('num_instances'),
            'flavor': _object(wire.Flavor, spec.get('instance_type')),
            'image': _image(spec.get('image')),
            'ignore_hosts': filters.get('ignore_hosts'),
            'force_hosts': filters.get('force_hosts'),
            'force_nodes': filters.get('force_nodes'),
            'scheduler_hints': _hints(filters.get('scheduler_hints', {})),
            'retry': _retry(filters.get('retry')),
            'instance_group': _group(filters),
            'requested_destination': _object(wire.Destination, destination),
        }
    )
    return decoded


def _get(part: Any, name: str) -> Any:
    """A field of an object, or an element of a dict."""
    if isinstance(part, NovaObject):
        return part.value(name)
    return part.get(name)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadObject(f'{name} must be a dict, not {type(value).__name__}')
    return value


def _object(cls: type[NovaObject], value: Any) -> Any:
    """Build an object from a dict. An object is returned as it is."""
    if value and not isinstance(value, NovaObject):
        return cls.from_plain(value)
    return value or None


def _container(
    cls: type[NovaObject], value: Any, name: str, item: type[NovaObject]
) -> Any:
    """Build an object from a dict with a list of objects or dicts.

    :param name: the field with the list.
    :param item: the class of the elements.
    """
    if isinstance(value, Mapping):
        items = value.get(name) or []
        if not isinstance(items, list):
            raise BadObject(f'{name} must be a list, not {type(items).__name__}')
        value = {**value, name: [_object(item, element) for element in items]}
    return _object(cls, value)


def _numa_topology(value: Any) -> Any:
    """Newton and Ocata send the primitive as JSON. Earlier releases send dicts."""
    if isinstance(value, str):
        if not value:
            return None
        return wire.loads(value)
    return _container(wire.InstanceNUMATopology, value, 'cells', wire.InstanceNUMACell)


def _image(value: Any) -> Any:
    """Build the image. A request that boots from a volume has an empty dict."""
    if not isinstance(value, Mapping):
        return value or None

    properties = value.get('properties') or {}
    if isinstance(properties, Mapping):
        texts = {}
        plain = {}
        for name, text in properties.items():
            if isinstance(text, str):
                texts[name] = text
            else:
                plain[name] = text
        properties = wire.ImageMetaProps.from_plain({**plain, **typed(texts)})

    if not value:
        return None
    return wire.ImageMeta.from_plain({**value, 'properties': properties})


def _hints(hints: Any) -> Any:
    """Convert hints to lists of texts.

    A hint has the form in which the user wrote it: a value or a list, of texts or of
    other JSON, such as a query without quotes. A hint of null is left out.

    :raises BadObject: a hint contains a versioned object, which no user can write.
    """
    if not isinstance(hints, Mapping):
        return hints

    lists = {}
    for name, value in hints.items():
        if value is None:
            continue
        values = [value]
        if isinstance(value, list | tuple):
            values = [*value]
        try:
            lists[name] = list(map(_text, values))
        except TypeError:
            raise BadObject(
                f'the scheduler hint {name} must not contain a versioned object'
            ) from None
    return lists


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _retry(value: Any) -> Any:
    """Build the object from ``{'num_attempts': 1, 'hosts': [[host, node], ...]}``."""
    if not value:
        return None

    pairs = _mapping(value, 'retry').get('hosts') or ()
    try:
        pairs = [(host, node) for host, node in pairs]
    except (TypeError, ValueError):
        raise BadObject('retry: hosts must be a list of pairs') from None

    nodes = []
    for host, node in pairs:
        fields = {'host': host, 'hypervisor_hostname': node}
        nodes.append(wire.ComputeNode.from_plain(fields))
    hosts = wire.ComputeNodeList.from_plain({'objects': nodes})
    retry = {'num_attempts': value.get('num_attempts'), 'hosts': hosts}
    return wire.SchedulerRetries.from_plain(retry)


def _group(filters: Mapping[str, Any]) -> Any:
    """Build the group from an object, or from the keys ``group_*``."""
    if filters.get('instance_group'):
        return filters['instance_group']

    # nova sets this key together with the other keys.
    if not filters.get('group_updated'):
        return None
    return wire.InstanceGroup.from_plain(
        {
            'uuid': filters.get('group_uuid'),
            'policies': filters.get('group_policies'),
            'hosts': filters.get('group_hosts'),
            'members': filters.get('group_members'),
        }
    )
