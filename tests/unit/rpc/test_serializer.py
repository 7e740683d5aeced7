# SPDX-License-Identifier: Apache-2.0
"""Objects and contexts, in and out."""

import pytest

from novasched.rpc import wire
from novasched.rpc.server import Serializer
from tests.lab.wire import CONTEXT, FLAVOR, RECORDED, context_of

SERIALIZER = Serializer()


def test_objects_anywhere():
    """Objects are decoded wherever they lie, and encoded again; all else passes unchanged."""
    plain = [None, 3, 'x', [], {}, {'a': [1, {'b': None}]}, [[1], [2, 'x']]]
    sent = {'a': [FLAVOR, {'b': FLAVOR}], 'plain': plain}
    thing = SERIALIZER.deserialize_entity(CONTEXT, sent)
    assert [type(thing['a'][0]), type(thing['a'][1]['b'])] == [wire.Flavor, wire.Flavor]
    assert thing['plain'] == plain
    assert SERIALIZER.serialize_entity(CONTEXT, thing) == sent


@pytest.mark.parametrize(
    'sent',
    [
        {'user_id': 'u', 'project_id': 'p'},
        {'user': 'u', 'tenant': 'p'},
        {'user': 'u', 'project_id': 'p', 'zeal': [1], 'roles': None},
    ],
    ids=['now', 'once', 'unknown keys'],
)
def test_context(sent):
    """A context of any release names the user, the project and the request."""
    context = SERIALIZER.deserialize_context({'request_id': 'req-1', **sent})
    assert (context.user_id, context.project_id, context.request_id) == ('u', 'p', 'req-1')


def test_recorded_context():
    """A recorded context is what the log shows, keeps no token, and is sent on as the same; a
    message without one gets a request id of its own."""
    body = RECORDED['boot']
    context = SERIALIZER.deserialize_context(context_of(body))
    values = context.get_logging_values()
    assert values['request_id'] == body['_context_request_id']
    assert values['user_identity'] == 'e2e-user e2e-project - - -'
    assert body['_context_auth_token']
    assert values['auth_token'] is None
    again = SERIALIZER.deserialize_context(SERIALIZER.serialize_context(context))
    assert again.get_logging_values() == values
    assert SERIALIZER.deserialize_context({}).request_id.startswith('req-')
