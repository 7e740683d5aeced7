# SPDX-License-Identifier: Apache-2.0
"""Messages for tests.

``messages/recorded.jsonl`` has bodies of AMQP messages between the services of nova
34.0.0, with a message for each kind of operation. ``messages/made.jsonl`` has arguments
of calls that the classes of the same release made, for cases without a recorded message.
A line is an object with the name of its case in ``case``.
"""

import json
from pathlib import Path

from oslo_context.context import RequestContext

from novasched.rpc.server import Serializer

MESSAGES = Path(__file__).parent / 'messages'


def _load(name):
    """The objects of a file by the names of their cases."""
    objects = {}
    for line in (MESSAGES / name).read_text().splitlines():
        row = json.loads(line)
        objects[row.pop('case')] = row
    return objects


RECORDED = {}
CALLS = {}
REPLIES = {}
CASTS = {}
MADE = _load('made.jsonl')
for case, row in _load('recorded.jsonl').items():
    body = row['body']
    RECORDED[case] = body
    if body.get('method') == 'select_destinations':
        CALLS[case] = body
    if 'result' in body:
        REPLIES[case] = body['result']
    if case == body.get('method'):
        CASTS[case] = body

CONTEXT = RequestContext(user_id='caller', project_id='callers', overwrite=False)


def context_of(body):
    """The context of a call in the body of a message."""
    prefix = '_context_'
    context = {}
    for key, value in body.items():
        if key.startswith(prefix):
            context[key.removeprefix(prefix)] = value
    return context


def decoded(arguments):
    """The arguments of a call as the daemon decodes arguments."""
    decode = Serializer().deserialize_entity
    return {name: decode(CONTEXT, value) for name, value in arguments.items()}


def primitive(name, version, **data):
    """A versioned object as it is sent.

    :param data: the fields of the object.
    """
    return {
        'nova_object.name': name,
        'nova_object.namespace': 'nova',
        'nova_object.version': version,
        'nova_object.data': data,
    }


FLAVOR = primitive(
    'Flavor',
    '1.2',
    vcpus=2,
    memory_mb=512,
    root_gb=1,
    ephemeral_gb=0,
    swap=0,
    extra_specs={},
)


def a_spec(version='1.15', **data):
    """A RequestSpec with a flavor.

    :param data: other fields.
    """
    return primitive('RequestSpec', version, **{'flavor': FLAVOR, **data})


def without_order(value):
    """A primitive whose lists of changed fields are sorted. nova makes the lists from
    sets."""
    if isinstance(value, list):
        return [without_order(item) for item in value]
    if not isinstance(value, dict):
        return value

    ordered = {}
    for key, item in value.items():
        if key == 'nova_object.changes':
            ordered[key] = sorted(item)
        else:
            ordered[key] = without_order(item)
    return ordered
