# SPDX-License-Identifier: Apache-2.0
"""What each version of the scheduler's RPC brought, and how its call is read.

A message names its version, but only the dispatcher sees it; the shape of a call is
known by its arguments. Callers of any 4.x are served for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from novasched.errors import BadRequest
from novasched.objects import RequestSpec

BROUGHT = (
    # version, method, arguments                                              first sent by
    ('4.0', 'select_destinations', ('request_spec', 'filter_properties')),  # Kilo
    ('4.1', 'update_aggregates', ('aggregates',)),
    ('4.1', 'delete_aggregate', ('aggregate',)),
    ('4.2', 'update_instance_info', ('host_name', 'instance_info')),
    ('4.2', 'delete_instance_info', ('host_name', 'instance_uuid')),
    ('4.2', 'sync_instance_info', ('host_name', 'instance_uuids')),
    ('4.3', 'select_destinations', ('spec_obj',)),  # Mitaka; instead of the two above
    ('4.4', 'select_destinations', ('instance_uuids',)),  # Pike
    ('4.5', 'select_destinations', ('return_objects', 'return_alternates')),  # Queens
)
LATEST = BROUGHT[-1][0]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of select_destinations, whatever its version.

    Either ``spec`` is set or the two dicts of 4.0 are. ``instance_uuids`` of None means
    that the caller claims by itself. Alternates are only had as objects.
    """

    spec: RequestSpec | None = None
    request_spec: Mapping[str, Any] | None = None
    filter_properties: Mapping[str, Any] | None = None
    instance_uuids: tuple[str, ...] | None = None
    return_objects: bool = False
    return_alternates: bool = False


def read(arguments: Mapping[str, Any]) -> Call:
    """The call that the arguments of a message make.

    :raises BadRequest: an argument is unknown, lacking or of a wrong type
    """
    _check('select_destinations', arguments)
    return_objects = bool(arguments.get('return_objects'))
    common: dict[str, Any] = {
        'instance_uuids': _uuids(arguments.get('instance_uuids')),
        'return_objects': return_objects,
        'return_alternates': return_objects and bool(arguments.get('return_alternates')),
    }
    if 'spec_obj' in arguments:
        spec = arguments['spec_obj']
        if not isinstance(spec, RequestSpec):
            raise BadRequest(f'spec_obj must be a RequestSpec, not {type(spec).__name__}')
        return Call(spec=spec, **common)
    return Call(
        request_spec=_dict(arguments, 'request_spec'),
        filter_properties=_dict(arguments, 'filter_properties'),
        **common,
    )


def take(method: str, arguments: Mapping[str, Any]) -> list[Any]:
    """The values of all arguments of a method, in the order of the table.

    :raises BadRequest: an argument is unknown or lacking
    """
    names = _check(method, arguments)
    lacking = [name for name in names if name not in arguments]
    if lacking:
        raise BadRequest(f'{method} lacks {", ".join(lacking)}')
    return [arguments[name] for name in names]


def _check(method: str, arguments: Mapping[str, Any]) -> list[str]:
    names = [name for _, brought, names in BROUGHT if brought == method for name in names]
    unknown = sorted(arguments.keys() - set(names))
    if unknown:
        raise BadRequest(f'{method} does not take {", ".join(unknown)}')
    return names


def _dict(arguments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = arguments.get(name)
    if not isinstance(value, Mapping):
        raise BadRequest(f'without spec_obj, {name} must be a dict, not {type(value).__name__}')
    return value


def _uuids(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(uuid, str) for uuid in value):
        raise BadRequest('instance_uuids is not a list of texts')
    return tuple(value)
