# SPDX-License-Identifier: Apache-2.0
"""Damaged RPC messages, from the dispatcher through serializer and endpoint to a
decision, and back."""

import copy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from novasched.rpc.wire.base import DATA
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.errors import BadRequest
from tests.fuzz import mutation
from tests.fuzz.clouds import MESSAGES, SETTINGS, a_call, full
from tests.fuzz.mutation import EFFORT, Wrapped, mutated, one_input
from tests.lab.builders import a_uuid
from tests.lab.wire import FLAVOR, a_spec, primitive

CONTEXT = {}
for key, value in MESSAGES['boot'].items():
    if key.startswith('_context_'):
        CONTEXT[key] = value


@pytest.mark.parametrize('case', MESSAGES)
def test_a_recorded_message_is_understood(cloud, case):
    """A recorded message is understood."""
    assert not isinstance(cloud.scheduler.answer(MESSAGES[case]), BadRequest)


@EFFORT
@given(data=st.data())
def test_a_message_with_damaged_arguments_is_answered_or_refused(cloud, data):
    """A message with wrong values is answered or refused."""
    body = copy.deepcopy(MESSAGES[data.draw(st.sampled_from(sorted(MESSAGES)))])
    arguments = data.draw(mutated(body['args']))
    if not isinstance(arguments, dict):
        arguments = {'spec_obj': arguments}
    body['args'] = arguments
    with one_input('messages'):
        cloud.scheduler.answer(body)


@EFFORT
@given(case=st.sampled_from(['boot', 'full', 'unshelve']), context=mutated(CONTEXT))
def test_a_message_with_a_damaged_context_is_answered_or_refused(cloud, case, context):
    """A message with a damaged context is answered or refused."""
    with one_input('messages'):
        cloud.scheduler.answer({**MESSAGES[case], **context})


def asking(version='1.15', **data):
    return a_call({'spec_obj': a_spec(version, **data)})


def of_flavor(**data):
    return asking(flavor={**FLAVOR, DATA: {**FLAVOR[DATA], **data}})


def of_liberty(argument, **values):
    """A call of RPC version 4.0 with other values in one of its two dicts."""
    arguments = copy.deepcopy(MESSAGES['liberty plain']['args'])
    arguments[argument] |= values
    return a_call(arguments, '4.0')


def without(part, name):
    """A full call without a field of a part."""
    arguments = full()
    del arguments['spec_obj'][DATA][part][DATA][name]
    return a_call(arguments)


KEPT = {
    'Lists in lists, deeper than our own calls may be': (
        a_call({'spec_obj': Wrapped(700).made()}),
        BadRequest,
    ),
    'Half a character, which no database and no URL takes': (
        asking(force_hosts=['\ud800']),
        BadRequest,
    ),
    'Half a character in a key': (
        asking(scheduler_hints={'\ud800': ['x']}),
        BadRequest,
    ),
    'A version that goes on after what is looked at': (asking('1.15.x'), BadRequest),
    'So many servers that a list of them fills the memory': (
        asking(num_instances=2**40),
        BadRequest,
    ),
    'No servers': (asking(num_instances=0), BadRequest),
    'Less than no servers': (asking(num_instances=-1), BadRequest),
    'A size that no number with a fraction compares to': (
        of_flavor(vcpus=10**400),
        BadRequest,
    ),
    'A size below nothing': (of_flavor(memory_mb=-1), BadRequest),
    'Traits that are no texts': (
        asking(
            image=primitive(
                'ImageMeta',
                '1.8',
                properties=primitive('ImageMetaProps', '1.44', traits_required=[True]),
            )
        ),
        BadRequest,
    ),
    'A time that is none, for those who are notified': (
        of_flavor(created_at='yesterday'),
        list,
    ),
    'PCI requests that name none': (without('pci_requests', 'requests'), list),
    'NUMA cells that are not named': (without('numa_topology', 'cells'), list),
    'A flavor without a size that notifications tell': (
        without('flavor', 'ephemeral_gb'),
        list,
    ),
    'A rule that is no number': (
        asking(
            instance_group=primitive(
                'InstanceGroup', '1.11', _rules={'max_server_per_host': 'few'}
            )
        ),
        list,
    ),
    'An emoji for a server in a hint': (
        asking(scheduler_hints={'different_host': ['\U0001f600']}),
        list,
    ),
    'Thousands of small hints': (
        asking(scheduler_hints={str(key): [] for key in range(5000)}),
        list,
    ),
    'A versioned object in a hint of RPC version 4.0': (
        of_liberty('filter_properties', scheduler_hints={'query': FLAVOR}),
        BadRequest,
    ),
    'Lists in lists in the text of a topology': (
        of_liberty(
            'request_spec', instance_properties={'numa_topology': '[' * 100_000}
        ),
        BadRequest,
    ),
    'A version that is no number': ({**MESSAGES['boot'], 'version': 'x'}, BadRequest),
    'A version that is no text': ({**MESSAGES['boot'], 'version': 4.5}, BadRequest),
    'A version without a minor': ({**MESSAGES['boot'], 'version': '4'}, BadRequest),
    'No method': ({**MESSAGES['boot'], 'method': None}, BadRequest),
    'Arguments without names': ({**MESSAGES['boot'], 'args': [1]}, BadRequest),
    'A context whose request id is no header': (
        {**MESSAGES['boot'], '_context_request_id': 'req-\n\ud800'},
        list,
    ),
    'A context whose request id is no text': (
        {**MESSAGES['boot'], '_context_global_request_id': [1]},
        list,
    ),
}
"""Messages that once did harm, and the outcome."""


@EFFORT
@given(uuids=st.lists(mutation.text, min_size=2, max_size=2, unique=True))
@example(uuids=['\U0001f600', '\U0001f600' * 36])
@example(uuids=['\x00', a_uuid('one')])
def test_a_request_beside_claims_with_odd_uuids_is_answered(cloud, uuids):
    """Claims for instances of any names are pending while the next request is decided,
    and no query has a text that a database refuses."""
    arguments = full()
    arguments['instance_uuids'] = uuids
    arguments['spec_obj'][DATA]['scheduler_hints']['different_host'] = uuids
    claims = PendingClaims(SETTINGS)
    with one_input('messages'):
        cloud.scheduler.answer(a_call(arguments), claims)
        cloud.scheduler.answer(MESSAGES['full'], claims)


@pytest.mark.parametrize(('body', 'outcome'), KEPT.values(), ids=KEPT)
def test_kept_messages_that_once_did_harm_have_a_proper_outcome(cloud, body, outcome):
    """A message that once did harm has a proper outcome."""
    with one_input('messages'):
        assert isinstance(cloud.scheduler.answer(body), outcome)
