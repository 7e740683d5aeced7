# SPDX-License-Identifier: Apache-2.0
"""Plans in random clouds with NUMA cells, huge pages, devices, groups, zones and
tenants: each move is one that the scheduler would choose, and a second plan finds
nothing to do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.tools.plan import goals, mending
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.steps import steps_of
from novasched.tools.simulate.sources import Unusable
from tests.lab.described_plan import board_of

KINDS = (
    {'name': 'plain', 'vcpus': 8, 'memory_mb': 8192, 'zone': 'az1'},
    {'name': 'far', 'vcpus': 6, 'memory_mb': 12288, 'zone': 'az2'},
    {'name': 'theirs', 'vcpus': 8, 'memory_mb': 8192, 'aggregates': ['tenants']},
    {
        'name': 'numa',
        'cells': [
            {'cpus': 2, 'dedicated_cpus': 4, 'memory_mb': 4096},
            {'cpus': 2, 'dedicated_cpus': 4, 'memory_mb': 4096},
        ],
        'traits': ['CUSTOM_FAST'],
    },
    {
        'name': 'pages',
        'cells': [
            {'cpus': 4, 'memory_mb': 4096, 'pages': {2048: 1024}},
            {'cpus': 4, 'memory_mb': 4096, 'pages': {2048: 512}},
        ],
    },
    {
        'name': 'gpu',
        'vcpus': 8,
        'memory_mb': 8192,
        'devices': [{'resource_class': 'CUSTOM_GPU', 'number': 2}],
    },
)
FLAVORS = {
    'small': {'vcpus': 1, 'memory_mb': 1024},
    'large': {'vcpus': 4, 'memory_mb': 4096},
    'huge': {'vcpus': 6, 'memory_mb': 7168},
    'fast': {
        'vcpus': 1,
        'memory_mb': 1024,
        'extra_specs': {'trait:CUSTOM_FAST': 'required'},
    },
    'pinned': {
        'vcpus': 2,
        'memory_mb': 1024,
        'extra_specs': {'hw:cpu_policy': 'dedicated'},
    },
    'paged': {
        'vcpus': 1,
        'memory_mb': 1024,
        'extra_specs': {'hw:mem_page_size': '2048'},
    },
    'graphic': {
        'vcpus': 1,
        'memory_mb': 1024,
        'extra_specs': {'resources:CUSTOM_GPU': '1'},
    },
}
GROUPS = {
    'apart': {'policy': 'anti-affinity'},
    'two': {'policy': 'anti-affinity', 'max_server_per_host': 2},
    'together': {'policy': 'affinity'},
    'perhaps': {'policy': 'soft-anti-affinity'},
}
OPTIONS = (
    ('filter_scheduler', 'enabled_filters', [
        'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
        'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
        'AggregateMultiTenancyIsolation', 'NUMATopologyFilter',
    ]),
)  # fmt: skip
COMMON = {'number': 2, 'cpu_allocation_ratio': 1.0, 'reserved_memory_mb': 0}


@st.composite
def clouds(draw):
    """Descriptions of clouds; servers may stand where the rules forbid it."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique_by=id))
    hosts = [{**COMMON, **kind} for kind in kinds]
    names = [f'{kind["name"]}-{number:05}' for kind in kinds for number in range(2)]
    servers = []
    for number in range(draw(st.integers(1, 8))):
        flavor = draw(st.sampled_from(['small', 'small', 'large', 'fast']))
        host = draw(st.sampled_from(names))
        if host.startswith('numa'):
            flavor = draw(st.sampled_from(['small', 'fast', 'pinned']))
        if host.startswith('pages'):
            flavor = draw(st.sampled_from(['small', 'paged']))
        if host.startswith('gpu'):
            flavor = draw(st.sampled_from(['small', 'graphic']))
        server = {'name': f's{number}', 'flavor': flavor, 'host': host}
        if group := draw(st.sampled_from([None, None, None, *GROUPS])):
            server['group'] = group
        if zone := draw(st.sampled_from([None, None, 'az1', 'az2'])):
            server['zone'] = zone
        if project := draw(st.sampled_from([None, 'p1', 'p2'])):
            server['project'] = project
        servers.append(server)
    return {
        'hosts': hosts,
        'flavors': FLAVORS,
        'aggregates': {'tenants': {'filter_tenant_id': 'p1'}},
        'groups': GROUPS,
        'servers': servers,
    }


def reach(goal, planner, requests):
    if goal == 'make room':
        return goals.make_room(planner, requests)
    if goal == 'empty':
        first = min(host.host for host in planner.board.hosts.values())
        return goals.empty(planner, {first})
    if goal == 'spread':
        return goals.spread(planner, 0.5, 0.1)
    return {'pack': goals.pack, 'mend': mending.mend}[goal](planner)


def carry_out(description, moves):
    """Make the moves of a plan step by step on another board. All servers of a step are
    on both hosts at once, before they leave their old hosts."""
    board, _ = board_of(description, options=OPTIONS)
    for step in steps_of(moves):
        pairs = []
        for move in step:
            server = board.servers[move.server.uuid]
            assert server.host == move.server.host
            [host] = [host for host in board.hosts.values() if host.host == move.host]
            pairs.append((server, host))

        mark = board.mark()
        for server, host in pairs:
            now = board.hosts[host.uuid]
            chosen = board.choice(board.request_of(server, to=now))
            assert chosen is not None
            board.add(server.request, chosen)
        board.undo(mark)
        for server, host in pairs:
            assert board.move(server, '', to=board.hosts[host.uuid]) is not None
    return board


@pytest.mark.parametrize('goal', ['make room', 'empty', 'pack', 'spread', 'mend'])
@settings(max_examples=40)
@given(description=clouds())
def test_a_plan_obeys_the_rules_and_is_not_followed_by_another(goal, description):
    try:
        board, requests = board_of(description, 'huge', 1, OPTIONS)
    except Unusable:
        # Too many servers with cells or devices of one host.
        return
    reach(goal, Planner(board), requests)

    carried_out = carry_out(description, board.moves)
    places = {uuid: server.host for uuid, server in carried_out.servers.items()}
    assert places == {uuid: server.host for uuid, server in board.servers.items()}

    afterwards = {**description, 'servers': moved(description['servers'], board)}
    again, requests = board_of(afterwards, 'huge', 1, OPTIONS)
    reach(goal, Planner(again), requests)
    assert again.moves == []


def moved(servers, board):
    """Described servers on the hosts of a board."""
    host_of = {server.name: server.host for server in board.servers.values()}
    return [{**server, 'host': host_of[server['name']]} for server in servers]
