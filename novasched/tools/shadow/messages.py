# SPDX-License-Identifier: Apache-2.0
"""Requests, read from recorded messages, or rebuilt from what a scheduler says of them
on the notification bus.

Neither form of a notification tells everything. What is not told is named, so that
nobody takes a decision about half a request for a different opinion. What nova-api has
saved of the request (``request_specs`` in the API database) fills in some of it.
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
INSIDE = '_obj_'
SAVED_FIELDS = ('scheduler_hints', 'force_hosts', 'force_nodes', 'security_groups')
"""What the legacy form lacks, and the database has."""
UNSAVED_FIELDS = ('ignore_hosts', 'requested_destination', 'instance_group', 'retry')
"""What the legacy form lacks, and nobody has."""
FIELDS_IN_CLAIM = ('is_bfv', 'requested_resources', 'request_level_params')
"""What no form tells, and what shows in the amounts that are claimed."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request, and the host of each of its instances; none if it was refused, None if
    that is not known."""

    line: int
    request: Request
    hosts: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is no recorded request."""

    line: int
    why: str


def read(lines: Iterable[str]) -> Iterator[Recorded | Unread]:
    """The requests in the lines of a file; empty lines and other methods are passed
    over.

    A line is ``{"request": BODY, "reply": BODY}``; ``reply`` may be left out. A body is
    what oslo.messaging put into a message, with its envelope (``oslo.message``) or
    without. The token in a request's context is not kept.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            both = json.loads(line)
            body = _body(both['request'])
            if body.get('method') != 'select_destinations':
                continue
            yield Recorded(number, _request(body), _hosts(both.get('reply')))
        except BadRequest as error:
            yield Unread(number, str(error))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            yield Unread(
                number, f'no pair of request and reply ({type(error).__name__})'
            )


def _body(body: Any) -> Mapping[str, Any]:
    """A message without its envelope."""
    opened = json.loads(body['oslo.message']) if 'oslo.message' in body else body
    if not isinstance(opened, Mapping):
        raise TypeError(type(opened).__name__)
    return opened


def _request(body: Mapping[str, Any]) -> Request:
    reader = Serializer()
    names = {
        key.removeprefix(CONTEXT_PREFIX): value
        for key, value in body.items()
        if key.startswith(CONTEXT_PREFIX)
    }
    context = reader.deserialize_context(names)
    arguments = {
        name: reader.deserialize_entity(context, value)
        for name, value in body['args'].items()
    }
    return decode.request(versions.read(arguments), context)


def _hosts(reply: Any) -> tuple[str, ...] | None:
    if reply is None:
        return None
    body = _body(reply)
    if body.get('failure'):
        failure = json.loads(body['failure'])
        if failure['class'] == 'NoValidHost':
            return ()
        return None
    # For each instance a list of Selection objects of which the first counts; a dict
    # before 4.5.
    return tuple(
        str(
            each[0]['nova_object.data']['service_host']
            if isinstance(each, list)
            else each['host']
        )
        for each in body['result']
    )


def instance_of(payload: Mapping[str, Any]) -> str | None:
    """The instance that either form of a payload names: at the start the first of a
    request, in the end the last."""
    if DATA in payload:
        named: str | None = payload[DATA].get('instance_uuid')
    else:
        named = payload['request_spec']['instance_properties'].get('uuid')
    return named


def rebuild_request(
    payload: Mapping[str, Any],
    context: Mapping[str, Any],
    saved: RequestSpec | None = None,
    routed: bool = False,
) -> tuple[Request, tuple[str, ...]]:
    """The request that a ``select_destinations.start`` tells of, as far as it is known,
    and the names of the missing fields; one that would change nothing is not named.

    Of the instances of one request only the first is named; the others get UUIDs of
    their own. An instance that was created with others and is moved alone says how many
    they were, and names its cell.

    :param saved: the RequestSpec in the API database, if it is there.
    :param routed: whether networks choose among hosts.
    :raises BadRequest: it is no such payload.
    """
    versioned = DATA in payload
    try:
        spec = _versioned(payload) if versioned else _legacy(payload)
        if saved is not None:
            for name in ('is_bfv',) if versioned else ('is_bfv', *SAVED_FIELDS):
                if (value := saved.value(name)) is not None:
                    setattr(spec, name, value)
        request = decode.request(
            versions.Call(spec), Serializer().deserialize_context(context)
        )
    except (BadObject, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f'no payload that can be read ({error})') from None
    wanted = request.requested_destination
    moved = wanted is not None and wanted.cell_uuid is not None
    others = 0 if moved else request.num_instances - 1
    uuids = (str(request.instance_uuid), *(str(uuid.uuid4()) for _ in range(others)))
    names: list[str] = []
    if not versioned:
        names += (
            UNSAVED_FIELDS if saved is not None else (*SAVED_FIELDS, *UNSAVED_FIELDS)
        )
    if moved:
        names.append('requested_destination.allow_cross_cell_move')
    if request.retry is not None and request.retry.hosts:
        names.append('retry.hosts')
    if request.numa_topology is not None:
        names.append('network_metadata')
    if routed:
        names.append('requested_networks')
    return replace(request, instance_uuids=uuids), tuple(names)


def _versioned(payload: Mapping[str, Any]) -> RequestSpec:
    """A payload is the object that it tells of under another name, but for a few
    fields."""
    told = payload[DATA]
    fields = {name: _object(value) for name, value in told.items()}
    for name in ('force_hosts', 'force_nodes'):
        fields[name] = [told[name]] if told.get(name) else None
    names = told.get('security_groups') or ()
    groups = [wire.SecurityGroup.from_plain({'name': name}) for name in names]
    fields['security_groups'] = wire.SecurityGroupList.from_plain({'objects': groups})
    spec: RequestSpec = RequestSpec.from_plain(fields)
    return spec


def _object(value: Any) -> Any:
    """The object that a payload tells of, with those in it."""
    if isinstance(value, list):
        return [_object(each) for each in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    told = value[NAME].removesuffix('Payload')
    name = 'InstanceGroup' if told == 'ServerGroup' else told
    fields = {field: _object(each) for field, each in value[DATA].items()}
    if name == 'InstanceGroup':
        fields['_rules'] = fields.pop('rules', None)
    if name == 'SchedulerRetries':
        # Only the nodes are told, which is not enough to know the hosts by.
        names = [{'hypervisor_hostname': node} for node in fields.get('hosts') or ()]
        nodes = [*map(wire.ComputeNode.from_plain, names)]
        fields['hosts'] = wire.ComputeNodeList.from_plain({'objects': nodes})
    # A decision does not depend on objects that the wire does not know, as
    # VirtCPUTopology.
    kind = getattr(wire, name, None)
    return kind and kind.from_plain(fields)


def _legacy(payload: Mapping[str, Any]) -> RequestSpec:
    """The form is that of the first of the two dicts of version 4.0."""
    told = payload['request_spec']
    instance = dict(told['instance_properties'])
    instance['pci_requests'] = _outside(instance.get('pci_requests'))
    return versions.spec_from_dicts({**told, 'instance_properties': instance}, {})


def _outside(value: Any) -> Any:
    """The fields of an object of which the insides are told."""
    if isinstance(value, list):
        return [_outside(each) for each in value]
    if not isinstance(value, Mapping) or '_changed_fields' not in value:
        return value
    return {
        name.removeprefix(INSIDE): _outside(each)
        for name, each in value.items()
        if name.startswith(INSIDE)
    }
