# SPDX-License-Identifier: Apache-2.0
"""The requests of a plan to nova's API, and what the answers mean."""

import json

import pytest

from novasched.tools.plan.compute_api import ApiError, ComputeApi, Phase
from novasched.tools.plan.plan_file import PlannedMove
from novasched.tools.plan.servers import Kind
from tests.lab.proxy import JSON, HttpStub

VERSION = {'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96', 'min_version': '2.1'}
SERVER = {
    'id': 'web',
    'status': 'ACTIVE',
    'OS-EXT-STS:task_state': None,
    'OS-EXT-SRV-ATTR:host': 'new',
    'flavor': {'original_name': 'small'},
}
ACTION = {'action': 'live-migration', 'request_id': 'req-1'}
ACTIONS = '/servers/web/os-instance-actions'


class Nova(HttpStub):
    """An API with one server.

    :ivar answers: status and content by path.
    :ivar actions: the versions and bodies of the actions.
    """

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.actions = []

    def reply(self, method, path, headers, body):
        path = path.partition('?')[0].removeprefix('/v2.1')
        if path in ('', '/'):
            links = [{'rel': 'self', 'href': f'http://{self.address}/v2.1'}]
            version = {'version': {**VERSION, 'links': links}}
            return 200, JSON, json.dumps(version).encode()
        if method == 'POST':
            self.actions.append((headers['OpenStack-API-Version'], json.loads(body)))
        status, content = self.answers.get(path, (404, {}))
        return status, JSON, json.dumps(content).encode()


@pytest.fixture
def nova(monkeypatch):
    with Nova() as stub:
        monkeypatch.setenv('OS_AUTH_TYPE', 'none')
        monkeypatch.setenv('OS_ENDPOINT', f'http://{stub.address}/v2.1')
        yield stub


@pytest.fixture
def api(nova):
    return ComputeApi.of_cloud(None)


def move(kind=Kind.LIVE):
    return PlannedMove('web', 'web', 'small', kind, 'old', 'new', 'new', 0, False, '')


@pytest.mark.parametrize(
    ('kind', 'version', 'action'),
    [
        (
            Kind.LIVE,
            '2.30',
            {'os-migrateLive': {'block_migration': 'auto', 'host': 'new'}},
        ),
        (Kind.COLD, '2.56', {'migrate': {'host': 'new'}}),
        (Kind.EVACUATION, '2.29', {'evacuate': {'host': 'new'}}),
    ],
)
def test_each_kind_of_moves_is_an_action_that_the_scheduler_checks(
    nova, api, kind, version, action
):
    nova.answers['/servers/web/action'] = 202, {}
    api.begin(move(kind))
    assert nova.actions == [(f'compute {version}', action)]


def test_a_cold_migration_is_confirmed(nova, api):
    nova.answers['/servers/web/action'] = 204, {}
    api.confirm(move(Kind.COLD))
    assert nova.actions == [('compute 2.56', {'confirmResize': None})]


@pytest.mark.parametrize(
    ('change', 'phase'),
    [
        ({}, Phase.DONE),
        ({'OS-EXT-STS:task_state': 'migrating'}, Phase.UNDER_WAY),
        ({'OS-EXT-SRV-ATTR:host': 'old'}, Phase.FAILED),
        ({'OS-EXT-SRV-ATTR:host': None}, Phase.FAILED),
        ({'status': 'ERROR'}, Phase.FAILED),
        ({'status': 'VERIFY_RESIZE'}, Phase.TO_CONFIRM),
        (
            {'status': 'VERIFY_RESIZE', 'flavor': {'original_name': 'large'}},
            Phase.DONE,
        ),
        ({'status': 'SHUTOFF'}, Phase.DONE),
    ],
)
def test_the_state_of_a_server_tells_how_far_a_move_is(nova, api, change, phase):
    nova.answers['/servers/web'] = 200, {'server': SERVER | change}
    assert api.phase(move()) is phase


def test_the_move_of_a_server_that_is_gone_has_failed(api):
    assert api.phase(move()) is Phase.FAILED


def test_a_refusal_is_told_in_the_words_of_nova(nova, api):
    refusal = {'conflictingRequest': {'code': 409, 'message': 'The server is\nlocked'}}
    nova.answers['/servers/web/action'] = 409, refusal
    with pytest.raises(ApiError, match=r'nova-api: .*The server is\\nlocked'):
        api.begin(move())


def test_a_failed_move_is_told_by_the_latest_action(nova, api):
    events = [
        {
            'event': 'conductor_live_migrate_instance',
            'result': 'Error',
            'details': 'full',
        }
    ]
    nova.answers[ACTIONS] = 200, {'instanceActions': [ACTION]}
    nova.answers[f'{ACTIONS}/req-1'] = (
        200,
        {'instanceAction': {**ACTION, 'events': events}},
    )
    assert api.why_failed(move()) == 'full'


@pytest.mark.parametrize('answer', [(200, {'instanceActions': []}), (404, {})])
def test_a_failed_move_without_details_is_told_by_a_command(nova, api, answer):
    nova.answers[ACTIONS] = answer
    assert api.why_failed(move()) == 'see "openstack server event list web"'


def test_an_unknown_cloud_is_an_error_in_a_line():
    with pytest.raises(ApiError, match='nova-api: Cloud nowhere was not found'):
        ComputeApi.of_cloud('nowhere')
