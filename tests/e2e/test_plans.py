# SPDX-License-Identifier: Apache-2.0
"""nova accepts the moves of a plan, and the goal of the plan is reached."""

import json

from novasched.cmd import novaschedctl
from novasched.tools.plan.servers import Kind

ACTIONS = {
    Kind.LIVE: 'os-migrateLive',
    Kind.COLD: 'migrate',
    Kind.EVACUATION: 'evacuate',
}


def planned(cloud, capsys, *arguments, status=0):
    """The plan of ``novaschedctl plan`` for the cloud. To plan changes nothing."""
    before = cloud.allocations()
    config = cloud.databases.config('plan', cloud.config)
    capsys.readouterr()
    options = ['--config-file', str(config), '--format', 'json']
    assert novaschedctl.main(['plan', *arguments, *options]) == status
    assert cloud.allocations() == before
    return json.loads(capsys.readouterr().out)


def carry_out(cloud, plan):
    """Make all moves of a plan, step by step. nova refuses none."""
    for step in plan['steps']:
        for move in step:
            arguments = {'host': move['host']}
            if move['kind'] == Kind.LIVE:
                arguments['block_migration'] = 'auto'
            cloud.api.act(move['server'], ACTIONS[move['kind']], arguments)
        for move in step:
            if move['kind'] == Kind.COLD:
                moved = cloud.api.settled(move['server'], 'VERIFY_RESIZE')
                cloud.api.act(move['server'], 'confirmResize')
                cloud.api.settled(move['server'], 'SHUTOFF')
            else:
                moved = cloud.api.migrated(move['server'])
            assert moved.host == move['host']


def on(host):
    return {'availability_zone': f'nova:{host}'}


def check(cloud, capsys, path):
    """The states of the moves of a saved plan, and the exit status."""
    config = cloud.databases.config('plan', cloud.config)
    capsys.readouterr()
    options = ['--config-file', str(config), '--format', 'json']
    status = novaschedctl.main(['plan', 'check', str(path), *options])
    found = json.loads(capsys.readouterr().out)['moves']
    return [move['state'] for move in found], status


def test_a_host_is_emptied_by_the_moves_of_a_plan(cloud, capsys, tmp_path):
    """Running servers move live, a stopped server moves cold, and the members of a
    group stay apart. A check holds before the moves, and finds them done afterwards. A
    second plan has nothing to do."""
    with cloud.group('anti-affinity') as apart:
        first, *_ = cloud.boot_many(3, apart)
        lost = first.host
        running = cloud.boot(**on(lost))
        stopped = cloud.boot(**on(lost))
        cloud.api.act(stopped.uuid, 'os-stop')
        cloud.api.settled(stopped.uuid, 'SHUTOFF')

        plan = planned(cloud, capsys, 'empty', f'host={lost}')
        moves = [move for step in plan['steps'] for move in step]
        kinds = {move['server']: move['kind'] for move in moves}
        assert kinds == {
            first.uuid: Kind.LIVE,
            running.uuid: Kind.LIVE,
            stopped.uuid: Kind.COLD,
        }
        saved = tmp_path / 'plan.json'
        saved.write_text(json.dumps(plan))
        assert check(cloud, capsys, saved) == (['holds'] * 3, 0)
        carry_out(cloud, plan)
        assert check(cloud, capsys, saved) == (['done'] * 3, 0)

        assert lost not in {server.host for server in cloud.api.servers()}
        assert planned(cloud, capsys, 'empty', f'host={lost}')['steps'] == []


def test_the_servers_of_a_dead_host_are_evacuated_by_a_plan(cloud, capsys):
    server = cloud.boot(**on('compute-1'))
    with cloud.dead('compute-1'):
        plan = planned(cloud, capsys, 'empty', 'host=compute-1')
        [[move]] = plan['steps']
        assert (move['server'], move['kind']) == (server.uuid, Kind.EVACUATION)
        carry_out(cloud, plan)


def test_a_plan_is_void_once_its_server_has_moved(cloud, capsys, tmp_path):
    server = cloud.boot(**on('compute-1'))
    plan = planned(cloud, capsys, 'empty', 'host=compute-1')
    saved = tmp_path / 'plan.json'
    saved.write_text(json.dumps(plan))
    [[move]] = plan['steps']
    [elsewhere, *_] = {'compute-2', 'compute-3', 'compute-4'} - {move['host']}
    arguments = {'host': elsewhere, 'block_migration': 'auto'}
    cloud.api.act(server.uuid, 'os-migrateLive', arguments)
    cloud.api.migrated(server.uuid)
    assert check(cloud, capsys, saved) == (['void'], 3)


def test_servers_are_packed_on_few_hosts_by_a_plan(cloud, capsys):
    cloud.boot(**on('compute-1'))
    cloud.boot(**on('compute-1'))
    cloud.boot(**on('compute-2'))
    plan = planned(cloud, capsys, 'pack')
    assert sum(map(len, plan['steps'])) == 1
    carry_out(cloud, plan)
    assert {server.host for server in cloud.api.servers()} == {'compute-1'}


def test_a_misplaced_server_is_mended_by_a_plan(cloud, capsys):
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

        plan = planned(cloud, capsys, 'mend')
        [[move]] = plan['steps']
        assert (move['server'], move['host']) == (server.uuid, 'compute-3')
        assert move['why'].startswith('AggregateInstanceExtraSpecsFilter: ')
        carry_out(cloud, plan)


def test_room_that_is_there_needs_no_move(cloud, capsys):
    cloud.boot()
    plan = planned(cloud, capsys, 'make-room', '--flavor', 'small', '--count', '4')
    assert plan['steps'] == []
    assert plan['reached'] == 'room for 4 of 4 more small, 4 of them without a move'


def test_no_room_is_found_for_a_server_larger_than_any_host(cloud, capsys):
    arguments = ('make-room', '--flavor', 'impossible')
    plan = planned(cloud, capsys, *arguments, status=3)
    assert plan['further'].startswith('no host takes impossible')
