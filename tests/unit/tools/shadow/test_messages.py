# SPDX-License-Identifier: Apache-2.0
"""Requests read from recorded messages, and requests rebuilt from notifications.

The notifications are novasched's own; functional tests compare them with nova's.
"""

import json
from dataclasses import replace
from datetime import datetime

import pytest

from novasched.rpc import decode, versions
from novasched.rpc.notifications import payloads
from novasched.rpc.server import Serializer
from novasched.scheduler.errors import BadRequest
from novasched.tools.shadow.messages import (
    SAVED_FIELDS,
    UNSAVED_FIELDS,
    Recorded,
    Unread,
    instance_of,
    read,
    rebuild_request,
)
from tests.lab.wire import (
    CALLS,
    MADE,
    RECORDED,
    REPLIES,
    context_of,
    decoded,
    primitive,
)

DATA = 'nova_object.data'
CALL = CALLS['boot']
CALLER = context_of(CALL)
NOW = datetime(2026, 11, 21, 12, 0, 0)
BOOT = CALL['args']['spec_obj'][DATA]
EVERYTHING = MADE['everything']['spec_obj'][DATA]
SPECS = {name: call['args']['spec_obj'][DATA] for name, call in CALLS.items()}
SPECS['everything'] = EVERYTHING
HOSTS = primitive(
    'ComputeNodeList', '1.17',
    objects=[primitive('ComputeNode', '1.19', host='h', hypervisor_hostname='n')],
)  # fmt: skip
CELL = primitive('CellMapping', '1.1', uuid='cell', disabled=False)

TOLD = (
    'instance_uuid', 'num_instances', 'project_id', 'user_id', 'request_id', 'image',
    'availability_zone', 'numa_topology',
)  # fmt: skip
"""What both forms tell."""
TOLD_BY_VERSIONED = (
    *TOLD,
    'scheduler_hints',
    'instance_group',
    'ignore_hosts',
    'force_hosts',
    'force_nodes',
)
"""And what only the versioned one does."""


def called(spec):
    """The request of a call with these fields."""
    arguments = decoded({'spec_obj': primitive('RequestSpec', '1.15', **spec)})
    return decode.request(
        versions.read(arguments), Serializer().deserialize_context(CALLER)
    )


def a_legacy(spec):
    return payloads.legacy_payload(
        spec, payloads.context_attributes(payloads.context_on_wire(CALLER, NOW))
    )


def devices_of(request):
    return request.count, request.spec, request.alias_name, request.numa_policy


FORMS = {
    'versioned': (payloads.versioned_payload, TOLD_BY_VERSIONED),
    'unversioned': (a_legacy, TOLD),
}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('spec', SPECS.values(), ids=SPECS)
def test_a_rebuilt_request_has_the_fields_of_the_call(spec, form):
    """A rebuilt request has the fields of the call, including devices and flavor."""
    payload, told = FORMS[form]
    call = called(spec)
    (found, _) = rebuild_request(payload(spec), CALLER)

    for name in told:
        assert (name, getattr(found, name)) == (name, getattr(call, name))
    assert replace(found.flavor, id=None) == replace(call.flavor, id=None)
    found_devices = [*map(devices_of, found.pci_requests)]
    assert found_devices == [*map(devices_of, call.pci_requests)]
    assert instance_of(payload(spec)) == call.instance_uuid


@pytest.mark.parametrize(
    ('fields', 'routed', 'missing_fields'),
    [
        ({}, False, ()),
        ({}, True, ('requested_networks',)),
        ({'numa_topology': EVERYTHING['numa_topology']}, False, ('network_metadata',)),
        (
            {
                'retry': primitive(
                    'SchedulerRetries', '1.1', num_attempts=2, hosts=HOSTS
                )
            },
            False,
            ('retry.hosts',),
        ),
        (
            {'requested_destination': primitive('Destination', '1.4', host='h')},
            False,
            (),
        ),
        (
            {'requested_destination': primitive('Destination', '1.4', cell=CELL)},
            False,
            ('requested_destination.allow_cross_cell_move',),
        ),
    ],
)
def test_fields_that_a_notification_lacks_are_named(fields, routed, missing_fields):
    """Missing fields are named: a few in versioned notifications, many in legacy
    ones."""
    spec = {**BOOT, **fields}
    _, missing = rebuild_request(
        payloads.versioned_payload(spec), CALLER, routed=routed
    )
    assert missing == missing_fields
    _, missing = rebuild_request(a_legacy(spec), CALLER)
    told_by_nobody = (*SAVED_FIELDS, *UNSAVED_FIELDS)
    assert missing[: len(told_by_nobody)] == told_by_nobody


MOVE = {'requested_destination': primitive('Destination', '1.4', cell=CELL)}


@pytest.mark.parametrize(('fields', 'servers'), [({}, 3), (MOVE, 1)])
def test_a_rebuilt_request_has_a_uuid_for_each_instance(fields, servers):
    """Each instance has its own UUID. A move is for one instance."""
    fields = {'num_instances': 3, **fields}
    found, _ = rebuild_request(payloads.versioned_payload({**BOOT, **fields}), CALLER)
    assert len(set(found.instance_uuids)) == found.count == servers
    assert found.instance_uuids[0] == BOOT['instance_uuid']


@pytest.mark.parametrize('form', FORMS)
def test_missing_fields_come_from_the_saved_request(form):
    """The saved request provides is_bfv, and the fields missing in legacy
    notifications."""
    saved = {
        'is_bfv': True,
        'scheduler_hints': {'same_host': ['x']},
        'force_hosts': ['h'],
    }
    spec = decoded({'spec_obj': primitive('RequestSpec', '1.15', **saved)})['spec_obj']
    found, missing = rebuild_request(FORMS[form][0](BOOT), CALLER, spec)

    assert found.is_bfv

    if form == 'unversioned':
        assert found.scheduler_hints == {'same_host': ('x',)}
        assert found.force_hosts == ('h',)
        assert missing == UNSAVED_FIELDS
    else:
        assert found.scheduler_hints == called(BOOT).scheduler_hints


@pytest.mark.parametrize(
    'payload',
    [
        {},
        {'request_spec': None},
        {'request_spec': {'instance_properties': {}}},
        {DATA: {}},
        {DATA: {'flavor': {'nova_object.name': 'CakePayload', DATA: {}}}},
    ],
)
def test_an_unreadable_payload_raises_bad_request(payload):
    """An unreadable payload raises BadRequest."""
    with pytest.raises(BadRequest):
        rebuild_request(payload, CALLER)


REFUSAL = {
    'failure': json.dumps(
        {'class': 'NoValidHost', 'module': 'nova.exception', 'message': 'no'}
    ),
    'result': None,
}
CRASH = {
    'failure': json.dumps({'class': 'KeyError', 'module': 'builtins'}),
    'result': None,
}
TOKEN = 'a-token-of-a-user'


def envelope(body):
    return {'oslo.version': '2.0', 'oslo.message': json.dumps(body)}


def line(request, reply=None):
    return json.dumps({'request': request, **({'reply': reply} if reply else {})})


@pytest.mark.parametrize('case', CALLS)
def test_every_recorded_call_is_read(case):
    """The request is the same with and without an envelope. The token is not kept."""
    call = {**CALLS[case], '_context_auth_token': TOKEN}
    [plain], [wrapped] = read([line(call)]), read([line(envelope(call))])
    assert isinstance(plain, Recorded)
    assert plain == wrapped
    assert plain.hosts is None
    assert TOKEN not in repr(plain)


@pytest.mark.parametrize('case', REPLIES)
def test_every_recorded_reply_is_read(case):
    """The first selection for each instance is the chosen host."""
    [found] = read([line(CALL, RECORDED[case])])
    names = []
    for chosen, *_ in REPLIES[case]:
        names.append(chosen[DATA]['service_host'])
    assert found.hosts == tuple(names)


DICT = {'result': [{'host': 'a', 'nodename': 'n', 'limits': {}}], 'failure': None}


@pytest.mark.parametrize(
    ('reply', 'hosts'), [(REFUSAL, ()), (CRASH, None), (DICT, ('a',))]
)
def test_refusals_and_dicts_are_answers_and_crashes_are_not(reply, hosts):
    """A refusal is an answer, a crash is not. Releases before Queens reply with
    dicts."""
    [found] = read([line(CALL, reply)])
    assert found.hosts == hosts


def test_an_unreadable_line_is_reported_and_later_lines_are_read():
    """An unreadable line is reported with its number, and later lines are read."""
    no_arguments = line({'method': 'select_destinations'})
    no_reply = line(CALL, {'result': 3})
    for text in ('no json', '[]', '{}', '7', no_arguments, no_reply):
        first, second = read([text, '', line({'method': 'ping'}), line(CALL)])
        assert isinstance(first, Unread)
        assert (first.line, second.line) == (1, 4)


def test_plugins_see_the_roles_of_the_caller_without_the_token():
    """Plugins see the roles of the recorded caller, and not the token."""
    roles = {'_context_auth_token': TOKEN, '_context_roles': ['member']}
    [recorded] = read([line({**CALL, **roles})])

    caller = recorded.request.origin.caller
    assert caller['roles'] == ['member']
    assert caller['auth_token'] is None
