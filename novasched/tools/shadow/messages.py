# SPDX-License-Identifier: Apache-2.0
"""Reads requests from recorded messages, or rebuilds requests from notifications.

Neither format of notifications contains the whole request. Missing fields are named, so
that a decision about an incomplete request is not taken for a different decision. Some
missing fields are read from ``request_specs`` in the API database, where nova-api saves
requests.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from novasched.rpc import decode, versions, wire
from novasched.rpc.server import Serializer
from novasched.rpc.wire import BadObject, RequestSpec
from novasched.rpc.wire.base import DATA, NAME
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import Request

CONTEXT_PREFIX = '_context_'
ATTRIBUTE_PREFIX = '_obj_'

SAVED_FIELDS = ('scheduler_hints', 'force_hosts', 'force_nodes', 'security_groups')
"""Fields missing in legacy notifications, and saved in the database."""

UNSAVED_FIELDS = ('ignore_hosts', 'requested_destination', 'instance_group', 'retry')
"""Fields missing in legacy notifications, and not saved."""

FIELDS_IN_CLAIM = ('is_bfv', 'requested_resources', 'request_level_params')
"""Fields missing in all notifications, with an effect on the claimed amounts."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded request.

    :ivar hosts: the host of each instance; empty if the request was refused; None if
        the reply is unknown.
    """

    line: int
    request: Request
    hosts: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Unread:
    """A line without a recorded request."""

    line: int
    why: str


def read(lines: Iterable[str]) -> Iterator[Recorded | Unread]:
    """The requests in the lines of a file, except empty lines and calls of other
    methods.

    A line is ``{"request": BODY, "reply": BODY}``; ``reply`` is optional. A body is
    that of a message of oslo.messaging, with or without its envelope
    (``oslo.message``). The token in the context of a request is not kept.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pair = json.loads(line)
            body = _body(pair['request'])
            if body.get('method') != 'select_destinations':
                continue
            yield Recorded(number, _request(body), _hosts(pair.get('reply')))
        except BadRequest as error:
            yield Unread(number, str(error))
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            why = f'no pair of request and reply ({type(error).__name__})'
            yield Unread(number, why)


def _body(body: Any) -> Mapping[str, Any]:
    """The body of a message without its envelope."""
    if 'oslo.message' in body:
        body = json.loads(body['oslo.message'])
    if not isinstance(body, Mapping):
        raise TypeError(type(body).__name__)
    return body


def _request(body: Mapping[str, Any]) -> Request:
    serializer = Serializer(keeps_caller=True)
    fields = {}
    for key, value in body.items():
        if key.startswith(CONTEXT_PREFIX):
            fields[key.removeprefix(CONTEXT_PREFIX)] = value
    context = serializer.deserialize_context(_without_token(fields))

    arguments = {}
    for name, value in body['args'].items():
        arguments[name] = serializer.deserialize_entity(context, value)
    return decode.request(versions.read(arguments), context)


def _without_token(context: Mapping[str, Any]) -> dict[str, Any]:
    """The context for plugins that read roles and catalog. No plugin acts for the user
    a second time."""
    return {**context, 'auth_token': None}


def _hosts(reply: Any) -> tuple[str, ...] | None:
    """The hosts in a reply; see :class:`Recorded`."""
    if reply is None:
        return None

    body = _body(reply)
    if body.get('failure'):
        failure = json.loads(body['failure'])
        if failure['class'] == 'NoValidHost':
            return ()
        return None

    hosts = []
    for result in body['result']:
        # A list of Selection objects, the chosen host first; a dict before 4.5.
        if isinstance(result, list):
            hosts.append(str(result[0][DATA]['service_host']))
        else:
            hosts.append(str(result['host']))
    return tuple(hosts)


def instance_of(payload: Mapping[str, Any]) -> str | None:
    """The UUID in a payload of either format: that of the first instance of a request
    in a start, that of the last instance in an end."""
    if DATA in payload:
        uuid_: str | None = payload[DATA].get('instance_uuid')
    else:
        uuid_ = payload['request_spec']['instance_properties'].get('uuid')
    return uuid_


def rebuild_request(
    payload: Mapping[str, Any],
    context: Mapping[str, Any],
    saved: RequestSpec | None = None,
    routed: bool = False,
) -> tuple[Request, tuple[str, ...]]:
    """The request of a ``select_destinations.start``, and the names of missing fields
    with a possible effect.

    The payload names the first instance only, so all further instances get new UUIDs.

    :param saved: the RequestSpec in the API database, if it is there.
    :param routed: routed networks choose among hosts.
    :raises BadRequest: the payload cannot be read.
    """
    is_versioned = DATA in payload
    try:
        if is_versioned:
            spec = _versioned(payload)
            saved_fields: tuple[str, ...] = ('is_bfv',)
        else:
            spec = _legacy(payload)
            saved_fields = ('is_bfv', *SAVED_FIELDS)
        if saved is not None:
            for name in saved_fields:
                value = saved.value(name)
                if value is not None:
                    setattr(spec, name, value)
        serializer = Serializer(keeps_caller=True)
        request_context = serializer.deserialize_context(_without_token(context))
        request = decode.request(versions.Call(spec), request_context)
    except (BadObject, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f'no payload that can be read ({error})') from None

    # A move is for one instance. num_instances is still that of the multi-create.
    uuids = [str(request.instance_uuid)]
    if not request.moves:
        for _ in range(request.num_instances - 1):
            uuids.append(str(uuid.uuid4()))

    missing: list[str] = []
    if not is_versioned and saved is None:
        missing += SAVED_FIELDS
    if not is_versioned:
        missing += UNSAVED_FIELDS
    if request.moves:
        missing.append('requested_destination.allow_cross_cell_move')
    if request.retry is not None and request.retry.hosts:
        missing.append('retry.hosts')
    if request.numa_topology is not None:
        missing.append('network_metadata')
    if routed:
        missing.append('requested_networks')
    return replace(request, instance_uuids=tuple(uuids)), tuple(missing)


def _versioned(payload: Mapping[str, Any]) -> RequestSpec:
    """The RequestSpec of a versioned payload. Payloads have the fields of their objects
    under another class name, with a few exceptions."""
    data = payload[DATA]
    fields = {name: _object(value) for name, value in data.items()}
    for name in ('force_hosts', 'force_nodes'):
        fields[name] = None
        if data.get(name):
            fields[name] = [data[name]]
    names = data.get('security_groups') or ()
    groups = [wire.SecurityGroup.from_plain({'name': name}) for name in names]
    fields['security_groups'] = wire.SecurityGroupList.from_plain({'objects': groups})
    spec: RequestSpec = RequestSpec.from_plain(fields)
    return spec


def _object(value: Any) -> Any:
    """The object of a payload, with its nested objects."""
    if isinstance(value, list):
        return [_object(item) for item in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value

    name = value[NAME].removesuffix('Payload')
    fields = {field: _object(item) for field, item in value[DATA].items()}
    if name == 'ServerGroup':
        name = 'InstanceGroup'
    if name == 'InstanceGroup':
        fields['_rules'] = fields.pop('rules', None)
    if name == 'SchedulerRetries':
        # The payload has nodes without hosts.
        names = [{'hypervisor_hostname': node} for node in fields.get('hosts') or ()]
        nodes = [*map(wire.ComputeNode.from_plain, names)]
        fields['hosts'] = wire.ComputeNodeList.from_plain({'objects': nodes})
    # A decision does not depend on objects without a class in wire, such as
    # VirtCPUTopology.
    kind = getattr(wire, name, None)
    return kind and kind.from_plain(fields)


def _legacy(payload: Mapping[str, Any]) -> RequestSpec:
    """The RequestSpec of a legacy payload, the first of both dicts of RPC version
    4.0."""
    spec = payload['request_spec']
    instance = dict(spec['instance_properties'])
    instance['pci_requests'] = _public_fields(instance.get('pci_requests'))
    return versions.spec_from_dicts({**spec, 'instance_properties': instance}, {})


def _public_fields(value: Any) -> Any:
    """The fields of an object that was serialised with its private attributes."""
    if isinstance(value, list):
        return [_public_fields(item) for item in value]
    if not isinstance(value, Mapping) or '_changed_fields' not in value:
        return value

    fields = {}
    for name, item in value.items():
        if name.startswith(ATTRIBUTE_PREFIX):
            fields[name.removeprefix(ATTRIBUTE_PREFIX)] = _public_fields(item)
    return fields
