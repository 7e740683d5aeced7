# SPDX-License-Identifier: Apache-2.0
"""Recorded messages, as they are read from a file."""

import json

import pytest

from novasched.tools.shadow.messages import Recorded, Unread, read
from tests.lab.wire import CALLS, RECORDED, REPLIES

REFUSAL = {
    'failure': json.dumps({'class': 'NoValidHost', 'module': 'nova.exception', 'message': 'no'}),
    'result': None,
}
CRASH = {'failure': json.dumps({'class': 'KeyError', 'module': 'builtins'}), 'result': None}
BOOT = CALLS['boot']
TOKEN = 'a-token-of-a-user'


def envelope(body):
    return {'oslo.version': '2.0', 'oslo.message': json.dumps(body)}


def line(request, reply=None):
    return json.dumps({'request': request, **({'reply': reply} if reply else {})})


@pytest.mark.parametrize('case', CALLS)
def test_every_recorded_call_is_read(case):
    """With an envelope or without, the request is the same, and its user's token is not kept."""
    call = {**CALLS[case], '_context_auth_token': TOKEN}
    [plain], [wrapped] = read([line(call)]), read([line(envelope(call))])
    assert isinstance(plain, Recorded)
    assert plain == wrapped
    assert plain.hosts is None
    assert TOKEN not in repr(plain)


@pytest.mark.parametrize('case', REPLIES)
def test_every_recorded_reply_is_read(case):
    """The first selection for each server counts."""
    [found] = read([line(BOOT, RECORDED[case])])
    chosen = [each[0] for each in REPLIES[case]]
    names = tuple(each['nova_object.data']['service_host'] for each in chosen)
    assert found.hosts == names


@pytest.mark.parametrize(
    ('reply', 'hosts'),
    [
        (REFUSAL, ()),
        (CRASH, None),
        ({'result': [{'host': 'a', 'nodename': 'n', 'limits': {}}], 'failure': None}, ('a',)),
    ],
)
def test_other_replies(reply, hosts):
    """A refusal is an answer, a crash is none; releases before Queens send dicts."""
    assert [each.hosts for each in read([line(BOOT, reply)])] == [hosts]


@pytest.mark.parametrize(
    'text',
    [
        'no json',
        '[]',
        '{}',
        '7',
        line({'method': 'select_destinations'}),
        line(BOOT, {'result': 3}),
    ],
)
def test_what_is_no_recording(text):
    """It is told by its line, and the others are read."""
    first, second = read([text, '', line({'method': 'ping'}), line(BOOT)])
    assert isinstance(first, Unread)
    assert (first.line, second.line) == (1, 4)
