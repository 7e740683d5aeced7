# SPDX-License-Identifier: Apache-2.0
"""The plans of goals in a small cloud: who moves where, in which step, and who stays."""

import pytest

from novasched.tools.plan import goals, mending
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.steps import steps_of
from tests.lab.described_plan import a_cloud, board_of

HOST = (8, 8192)
SIZES = {'small': (1, 1024), 'large': (4, 4096), 'huge': (8, 8192)}


def servers(*texts):
    """Servers from ``NAME FLAVOR HOST [FIELD=VALUE...]``."""
    found = []
    for text in texts:
        name, flavor, host, *fields = text.split()
        server = {'name': name, 'flavor': flavor, 'host': f'a-0000{host}'}
        for field in fields:
            key, _, value = field.partition('=')
            server[key] = value == 'yes' if key == 'locked' else value
        found.append(server)
    return found


def planned(goal, texts, hosts=3, flavor=None, count=1, most=goals.UNLIMITED, **more):
    """The moves of a goal, step by step, and what is reached."""
    description = a_cloud(hosts, HOST, SIZES, servers(*texts), **more)
    board, requests = board_of(description, flavor, count)
    planner = Planner(board)
    if goal == 'make room':
        reached = goals.make_room(planner, requests, most)
    elif goal.startswith('empty'):
        closed = {f'a-0000{number}' for number in goal.split()[1:]}
        reached = goals.empty(planner, closed, most)
    elif goal == 'spread':
        reached = goals.spread(planner, 0.6, 0.1, most)
    elif goal == 'pack':
        reached = goals.pack(planner, most)
    else:
        reached = mending.mend(planner, most)

    moves = []
    for step in steps_of(board.moves):
        short = []
        for move in step:
            source = move.server.host[-1]
            short.append(f'{move.server.name} {source}>{move.host[-1]}')
        moves.append(sorted(short))
    return moves, reached


@pytest.mark.parametrize(
    ('texts', 'flavor', 'count', 'moves', 'summary', 'further'),
    [
        pytest.param(
            ['a small 0'],
            'huge',
            2,
            [],
            'room for 2 of 2 more huge, 2 of them without a move',
            '',
            id='room is there',
        ),
        pytest.param(
            ['a small 0', 'b large 1', 'c large 2'],
            'huge',
            1,
            [['a 0>1']],
            'room for 1 of 1 more huge',
            '',
            id='the cheapest server moves',
        ),
        pytest.param(
            ['a small 0', 'b small 0', 'c huge 1', 'e large 2 locked=yes'],
            'huge',
            1,
            [['a 0>2', 'b 0>2']],
            'room for 1 of 1 more huge',
            '',
            id='two servers move',
        ),
        pytest.param(
            ['a huge 0', 'b huge 1', 'c huge 2'],
            'huge',
            1,
            [],
            'room for 0 of 1 more huge',
            'no way was found with up to 3 more moves',
            id='full',
        ),
        pytest.param(
            ['a small 0 locked=yes', 'b small 1 locked=yes', 'c small 2 locked=yes'],
            'huge',
            1,
            [],
            'room for 0 of 1 more huge',
            'no host takes huge, not even without the servers that may move',
            id='locked servers stay',
        ),
        pytest.param(
            ['a small 0 group=web', 'b large 1', 'c small 1 group=web', 'd large 2'],
            'huge',
            1,
            [['a 0>2']],
            'room for 1 of 1 more huge',
            '',
            id='members stay apart',
        ),
    ],
)
def test_room_is_made_by_few_moves_of_small_servers(
    texts, flavor, count, moves, summary, further
):
    found, reached = planned('make room', texts, flavor=flavor, count=count)
    assert found == moves
    assert (reached.summary, reached.further) == (summary, further)


def test_a_limit_of_moves_tells_what_more_moves_would_bring():
    texts = ['a small 0', 'b small 0', 'c huge 1', 'e large 2 locked=yes']
    moves, reached = planned('make room', texts, flavor='huge', most=1)
    assert moves == []
    assert reached.further == '1 more would make room for another'
    assert not reached.is_whole


@pytest.mark.parametrize(
    ('goal', 'texts', 'moves', 'staying'),
    [
        pytest.param(
            'empty 0',
            ['a large 0', 'b small 0 state=stopped', 'c small 1'],
            [['a 0>2', 'b 0>1']],
            [],
            id='the emptiest hosts, by nova.conf',
        ),
        pytest.param(
            'empty 0 1',
            ['a large 0', 'b large 1', 'c small 2'],
            [['a 0>2']],
            [('b', '0 of 3 hosts', False)],
            id='no room for all',
        ),
        pytest.param(
            'empty 0',
            ['a small 0 locked=yes', 'b small 0 state=suspended'],
            [],
            [('a', 'is locked', True), ('b', 'is suspended, and its host is up', True)],
            id='nova does not move them',
        ),
        pytest.param(
            'empty 0',
            ['a small 0 group=pair', 'b small 0 group=pair'],
            [],
            [
                ('a', 'is in an affinity group with b', True),
                ('b', 'is in an affinity group with a', True),
            ],
            id='an affinity group',
        ),
        pytest.param(
            'empty 0',
            ['a huge 0', 'b large 1', 'c large 2'],
            [['b 1>2'], ['a 0>1']],
            [],
            id='another server makes room',
        ),
    ],
)
def test_hosts_are_emptied_and_each_staying_server_has_a_reason(
    goal, texts, moves, staying
):
    groups = {'pair': {'policy': 'affinity'}}
    found, reached = planned(goal, texts, groups=groups)
    assert found == moves
    assert len(reached.staying) == len(staying)
    for stays, (name, why, is_proven) in zip(reached.staying, staying, strict=True):
        assert stays.server.name == name
        assert stays.why.startswith(why)
        assert stays.is_proven is is_proven
    assert reached.is_whole is (not staying)


def test_servers_of_a_lost_host_are_evacuated():
    """A server on a host that is down is evacuated, and a stopped one as well."""
    description = a_cloud(2, HOST, SIZES, servers('a small 0', 'b small 0 state=error'))
    [hosts] = description['hosts']
    down = {**hosts, 'name': 'down', 'number': 1, 'state': 'down'}
    description['hosts'].append(down)
    for server in description['servers']:
        server['host'] = 'down-00000'
    board, _ = board_of(description)
    assert goals.empty(Planner(board), {'down-00000'}).is_whole
    assert {move.kind for move in board.moves} == {'evacuation'}


@pytest.mark.parametrize(
    ('texts', 'most', 'moves', 'summary'),
    [
        pytest.param(
            ['a small 0', 'b small 1', 'c large 2'],
            10,
            [['a 0>2', 'b 1>2']],
            '2 hosts more empty, beside 0 empty now',
            id='onto the fullest',
        ),
        pytest.param(
            ['a small 0', 'b small 1', 'c large 2'],
            1,
            [['a 0>2']],
            '1 host more empty, beside 0 empty now',
            id='at most one move',
        ),
        pytest.param(
            ['a small 0', 'b small 0 locked=yes', 'c small 1'],
            10,
            [['c 1>0']],
            '1 host more empty, beside 1 empty now',
            id='a host with a locked server stays',
        ),
        pytest.param(
            ['a large 0', 'b huge 1', 'c large 2', 'd small 2'],
            10,
            [],
            '0 hosts more empty, beside 0 empty now',
            id='no room',
        ),
    ],
)
def test_hosts_with_few_servers_are_packed_on_full_hosts(texts, most, moves, summary):
    found, reached = planned('pack', texts, most=most)
    assert (found, reached.summary) == (moves, summary)


@pytest.mark.parametrize(
    ('texts', 'moves', 'summary'),
    [
        pytest.param(
            ['a large 0', 'b small 0', 'c small 0', 'd small 1'],
            [['b 0>2', 'c 0>1']],
            '0 hosts above 60% then',
            id='small servers first',
        ),
        pytest.param(
            ['a huge 0', 'b small 1'],
            [],
            '1 host above 60% then',
            id='a server that is too large anywhere',
        ),
        pytest.param(
            ['a large 0', 'b large 1'],
            [],
            '0 hosts above 60% then',
            id='no host is above the threshold',
        ),
    ],
)
def test_servers_leave_hosts_above_the_threshold(texts, moves, summary):
    found, reached = planned('spread', texts)
    assert (found, reached.summary) == (moves, summary)


@pytest.mark.parametrize(
    ('texts', 'moves', 'summary'),
    [
        pytest.param(
            ['a small 0 group=web', 'b large 0 group=web', 'c small 1'],
            [['a 0>2']],
            '2 of 2 misplaced servers get a right place',
            id='a broken group',
        ),
        pytest.param(
            ['a huge 0', 'b small 0', 'c large 1'],
            [['b 0>2']],
            '2 of 2 misplaced servers get a right place',
            id='a host over its ratio',
        ),
        pytest.param(
            ['a small 0', 'b large 1'],
            [],
            '0 of 0 misplaced servers get a right place',
            id='nothing to mend',
        ),
    ],
)
def test_misplaced_servers_get_a_right_place(texts, moves, summary):
    found, reached = planned('mend', texts)
    assert (found, reached.summary) == (moves, summary)


def test_a_split_group_is_mended_without_a_move_of_its_other_members():
    """The members are the cheapest servers of their full host, and none of them leaves
    the host to make room for the last member."""
    texts = ['last small 1 group=near', 'a small 0 group=near', 'b small 0 group=near']
    texts += ['c large 0', 'd small 0', 'e small 0']
    near = {'near': {'policy': 'affinity'}}
    moves, reached = planned('mend', texts, hosts=2, groups=near)
    assert moves == [['d 0>1'], ['last 1>0']]
    assert reached.is_whole


def test_the_other_members_follow_a_misplaced_member_of_an_affinity_group():
    """A group is on the host of other projects and on a plain host. One of the members
    there may stay, and follows the member that may not."""
    texts = ['last small 0 group=near', 'theirs small 0 group=near project=p1']
    texts += ['plain small 1 group=near']
    description = a_cloud(2, HOST, SIZES, servers(*texts))
    [kind] = description['hosts']
    description['groups'] = {'near': {'policy': 'affinity'}}
    description['aggregates'] = {'tenants': {'filter_tenant_id': 'p1'}}
    description['hosts'] = [
        {**kind, 'number': 1, 'aggregates': ['tenants']},
        {**kind, 'number': 1, 'name': 'b'},
    ]
    description['servers'][2]['host'] = 'b-00000'
    filters = ['ServerGroupAffinityFilter', 'AggregateMultiTenancyIsolation']
    options = [('filter_scheduler', 'enabled_filters', filters)]
    board, _ = board_of(description, options=options)
    assert mending.mend(Planner(board)).is_whole
    assert {server.host for server in board.servers.values()} == {'b-00000'}


def test_a_server_outside_of_its_zone_gets_a_host_in_the_zone():
    """The zone of a host may have changed since the server was created."""
    description = a_cloud(1, HOST, SIZES, servers('a small 0', 'b small 0'))
    [hosts] = description['hosts']
    near = {**hosts, 'name': 'near', 'zone': 'az1'}
    description['hosts'] = [{**hosts, 'zone': 'az2'}, near]
    description['servers'][0]['zone'] = 'az1'
    board, _ = board_of(description)
    reached = mending.mend(Planner(board))
    assert reached.summary == '1 of 1 misplaced servers get a right place'
    [move] = board.moves
    assert (move.server.name, move.host) == ('a', 'near-00000')
    assert move.purpose == 'a-00000 is in the zone az2, and not in az1'
