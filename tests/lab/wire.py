# SPDX-License-Identifier: Apache-2.0
"""Messages for tests.

``messages/recorded.jsonl`` are bodies of AMQP messages between the services of nova
34.0.0, one for each kind of operation; ``messages/made.jsonl`` are arguments of calls
that the same release's classes made, for what no recorded message holds. Each line is
an object whose ``case`` names it.
"""

import json
from pathlib import Path

from oslo_context.context import RequestContext

from novasched.rpc.server import Serializer

MESSAGES = Path(__file__).parent / 'messages'


def _load(name):
    lines = (MESSAGES / name).read_text().splitlines()
    return {row.pop('case'): row for row in map(json.loads, lines)}


RECORDED = {case: row['body'] for case, row in _load('recorded.jsonl').items()}
CALLS = {
    case: body
    for case, body in RECORDED.items()
    if body.get('method') == 'select_destinations'
}
REPLIES = {case: body['result'] for case, body in RECORDED.items() if 'result' in body}
CASTS = {case: body for case, body in RECORDED.items() if case == body.get('method')}
MADE = _load('made.jsonl')

CONTEXT = RequestContext(user_id='caller', project_id='callers', overwrite=False)


def context_of(body):
    prefix = '_context_'
    return {
        key.removeprefix(prefix): value
        for key, value in body.items()
        if key.startswith(prefix)
    }


def decoded(arguments):
    return {
        name: Serializer().deserialize_entity(CONTEXT, value)
        for name, value in arguments.items()
    }


def primitive(name, version, **data):
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
    """A RequestSpec with a flavor, and with what is said."""
    return primitive('RequestSpec', version, **{'flavor': FLAVOR, **data})


def without_order(value):
    """A primitive with its lists of changed fields, which are sets, sorted."""
    if isinstance(value, dict):
        return {
            key: sorted(each) if key == 'nova_object.changes' else without_order(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [without_order(each) for each in value]
    return value
