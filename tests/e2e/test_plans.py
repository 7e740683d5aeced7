# SPDX-License-Identifier: Apache-2.0
"""nova accepts and makes the moves of plans, and the goals of the plans are reached."""

import json

import pytest

from novasched.cmd import novaschedctl
from novasched.tools.plan.servers import Kind
from tests.lab.proxy import Proxy

from .compute_api import IDENTITY
from .small_cloud import hosts_of


class Authenticated(Proxy):
    """nova's API behind the headers that Keystone's middleware would set."""

    def reply(self, method, path, headers, body):
        return super().reply(method, path, dict(headers.items()) | IDENTITY, body)


class Tool:
    """``novaschedctl plan`` for the small cloud.

    :ivar api: nova's API for ``plan run``.
    """

    def __init__(self, cloud, api, capsys, file):
        self.api = api
        self._cloud = cloud
        self._capsys = capsys
        self._file = file
        self._config = cloud.databases.config('plan', cloud.config)

    def plan(self, *arguments, status=0):
        """The moves of a plan, which changes nothing and is saved."""
        before = self._cloud.allocations()
        said = self._said(*arguments, '--format', 'json', status=status)
        assert self._cloud.allocations() == before
        self._file.write_text(said)
        return json.loads(said)

    def check(self, status=0):
        """The states of the moves of the saved plan."""
        said = self._said('check', str(self._file), '--format', 'json', status=status)
        return [move['state'] for move in json.loads(said)['moves']]

    def run(self, *options, status=0):
        """Carry out the saved plan; the output."""
        return self._said('run', str(self._file), '--yes', *options, status=status)

    def _said(self, *arguments, status):
        self._capsys.readouterr()
        options = ['--config-file', str(self._config)]
        ended = novaschedctl.main(['plan', *arguments, *options])
        said = self._capsys.readouterr()
        assert ended == status, said
        return said.out


@pytest.fixture
def tool(cloud, capsys, monkeypatch, tmp_path):
    with Authenticated(cloud.api.url) as api:
        monkeypatch.setenv('OS_AUTH_TYPE', 'none')
        monkeypatch.setenv('OS_ENDPOINT', f'{api.url}/v2.1/')
        yield Tool(cloud, api, capsys, tmp_path / 'plan.json')


def moves_of(plan):
    return [move for step in plan['steps'] for move in step]


def run(cloud, tool, plan):
    """Carry out the saved plan: nova makes all moves."""
    number = len(moves_of(plan))
    word = 'move' if number == 1 else 'moves'
    last = tool.run().splitlines()[-1]
    assert last == f'Of {number} {word}: {number} done, 0 failed, 0 open.'
    for move in moves_of(plan):
        assert cloud.api.server(move['server']).host == move['host']


def on(host):
    return {'availability_zone': f'nova:{host}'}


def test_a_host_is_emptied_by_the_moves_of_a_plan(cloud, tool):
    """Running servers move live, a stopped server moves cold, and the members of a
    group stay apart. A check holds before the moves, and finds them done afterwards. A
    second run and a second plan have nothing to do."""
    with cloud.group('anti-affinity') as apart:
        first, *_ = cloud.boot_many(3, apart)
        lost = first.host
        running = cloud.boot(**on(lost))
        stopped = cloud.boot(**on(lost))
        cloud.api.act(stopped.uuid, 'os-stop')
        cloud.api.settled(stopped.uuid, 'SHUTOFF')

        plan = tool.plan('empty', f'host={lost}')
        kinds = {move['server']: move['kind'] for move in moves_of(plan)}
        assert kinds == {
            first.uuid: Kind.LIVE,
            running.uuid: Kind.LIVE,
            stopped.uuid: Kind.COLD,
        }
        assert tool.check() == ['holds'] * 3
        run(cloud, tool, plan)
        assert tool.check() == ['done'] * 3
        assert cloud.api.server(stopped.uuid).status == 'SHUTOFF'
        assert lost not in hosts_of(cloud.api.servers())

        before = [*tool.api.asked]
        run(cloud, tool, plan)
        later = tool.api.asked[len(before) :]
        assert not [request for request in later if request.startswith('POST')]
        assert tool.plan('empty', f'host={lost}')['steps'] == []


def test_the_servers_of_a_dead_host_are_evacuated_by_a_plan(cloud, tool):
    server = cloud.boot(**on('compute-1'))
    with cloud.dead('compute-1'):
        plan = tool.plan('empty', 'host=compute-1')
        [move] = moves_of(plan)
        assert (move['server'], move['kind']) == (server.uuid, Kind.EVACUATION)
        run(cloud, tool, plan)


def test_a_plan_whose_server_has_moved_is_void(cloud, tool):
    server = cloud.boot(**on('compute-1'))
    plan = tool.plan('empty', 'host=compute-1')
    elsewhere = other_than(moves_of(plan)[0])
    migrate(cloud, server.uuid, elsewhere)
    assert tool.check(status=3) == ['void']
    assert tool.run(status=3).endswith('Nothing is moved. Plan again.\n')
    assert cloud.api.server(server.uuid).host == elsewhere


def test_a_run_stops_at_a_move_that_becomes_void(cloud, tool):
    """The second server moves elsewhere while the first move begins. The first move
    comes to its end."""
    cloud.boot(**on('compute-1'))
    cloud.boot(**on('compute-1'))
    first, second = moves_of(tool.plan('empty', 'host=compute-1'))
    elsewhere = other_than(second)

    def interfere(method, path, body):
        if method == 'POST' and first['server'] in path:
            migrate(cloud, second['server'], elsewhere)

    tool.api.faults = interfere
    said = tool.run('--at-once', '1', status=3)
    why = f'the move to {second["host"]} is void: the server is on {elsewhere}'
    assert f'e2e: {why}' in said
    assert 'Of 2 moves: 1 done, 1 failed, 0 open.' in said
    assert cloud.api.server(first['server']).host == first['host']
    assert cloud.api.server(second['server']).host == elsewhere


def other_than(move):
    """A compute that is neither the old nor the new host of a move."""
    [elsewhere, *_] = sorted({'compute-2', 'compute-3', 'compute-4'} - {move['host']})
    return elsewhere


def migrate(cloud, uuid, host):
    """Migrate a server by nova's API alone."""
    arguments = {'host': host, 'block_migration': 'auto'}
    cloud.api.act(uuid, 'os-migrateLive', arguments)
    cloud.api.migrated(uuid)


def test_servers_are_packed_on_few_hosts_by_a_plan(cloud, tool):
    cloud.boot(**on('compute-1'))
    cloud.boot(**on('compute-1'))
    cloud.boot(**on('compute-2'))
    plan = tool.plan('pack')
    [move] = moves_of(plan)
    run(cloud, tool, plan)
    assert hosts_of(cloud.api.servers()) == {'compute-1'}

    plan = tool.plan('empty', 'host=compute-1', '--rest', '3600', status=3)
    [staying] = plan['staying']
    assert staying['server'] == move['server']
    assert staying['why'].endswith(' seconds ago (--rest)')


def test_a_full_host_gives_servers_away_by_a_plan(cloud, tool):
    """Two servers of three eighths of a host each are on one host."""
    cloud.boot(flavorRef='middle', **on('compute-1'))
    cloud.boot(flavorRef='middle', **on('compute-1'))
    plan = tool.plan('spread', '--threshold', '0.5')
    assert len(moves_of(plan)) == 1
    run(cloud, tool, plan)
    assert len(hosts_of(cloud.api.servers())) == 2
    assert tool.plan('spread', '--threshold', '0.5')['steps'] == []


def test_a_misplaced_server_is_mended_by_a_plan(cloud, tool):
    """The aggregate of the host of a server has changed since it was created."""
    with (
        cloud.aggregate('compute-1', fast='true'),
        cloud.aggregate('compute-3', fast='true'),
    ):
        server = cloud.boot(flavorRef='fast', **on('compute-1'))
        for aggregate in cloud.api.call('GET', '/os-aggregates')['aggregates']:
            if aggregate['hosts'] == ['compute-1']:
                path = f'/os-aggregates/{aggregate["id"]}/action'
                change = {'set_metadata': {'metadata': {'fast': 'false'}}}
                cloud.api.call('POST', path, change)

        plan = tool.plan('mend')
        [move] = moves_of(plan)
        assert (move['server'], move['host']) == (server.uuid, 'compute-3')
        assert move['why'].startswith('AggregateInstanceExtraSpecsFilter: ')
        run(cloud, tool, plan)


def test_a_plan_makes_room_for_a_large_server(cloud, tool):
    """Each host has a server of three eighths of its memory. A server of five eighths
    fits after a move."""
    for number in range(1, 5):
        cloud.boot(flavorRef='middle', **on(f'compute-{number}'))
    assert cloud.fault(flavorRef='large')
    plan = tool.plan('make-room', '--flavor', 'large')
    assert len(moves_of(plan)) == 1
    run(cloud, tool, plan)
    cloud.boot(flavorRef='large')


def test_room_that_is_there_needs_no_move(cloud, tool):
    cloud.boot()
    plan = tool.plan('make-room', '--flavor', 'small', '--count', '4')
    assert plan['steps'] == []
    assert plan['reached'] == 'room for 4 of 4 more small, 4 of them without a move'


def test_no_room_is_found_for_a_server_larger_than_any_host(cloud, tool):
    plan = tool.plan('make-room', '--flavor', 'impossible', status=3)
    assert plan['further'].startswith('no host takes impossible')
