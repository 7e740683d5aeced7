# SPDX-License-Identifier: Apache-2.0
"""The steps of moves: what may run at once, and what waits."""

from dataclasses import replace

import pytest

from novasched.tools.plan.board import Move
from novasched.tools.plan.servers import Kind, PlacedServer
from novasched.tools.plan.steps import steps_of
from tests.lab.builders import a_group, a_request


def a_move(text):
    """A move from ``SERVER[@GROUP] SOURCE>TARGET``."""
    server, _, route = text.partition(' ')
    name, _, group = server.partition('@')
    source, _, target = route.partition('>')
    request = a_request()
    if group:
        server_group = replace(a_group('affinity'), uuid=group)
        request = replace(request, instance_group=server_group)
    server = PlacedServer(name, name, source, source, request, {})
    return Move(server, target, target, Kind.LIVE, '')


@pytest.mark.parametrize(
    ('moves', 'steps'),
    [
        pytest.param([], [], id='none'),
        pytest.param(['a 1>2', 'b 1>3', 'c 4>2'], ['abc'], id='independent'),
        pytest.param(['a 1>2', 'b 3>1'], ['a', 'b'], id='room of an earlier move'),
        pytest.param(['a 1>2', 'b 2>3'], ['ab'], id='room of a later move'),
        pytest.param(['a 1>2', 'b 3>1', 'c 4>1'], ['a', 'bc'], id='in the order'),
        pytest.param(
            ['a 1>2', 'b 3>1', 'c 5>3', 'd 6>3'], ['a', 'b', 'cd'], id='a chain'
        ),
        pytest.param(['a 1>2', 'a 2>3'], ['a', 'a'], id='a server moves twice'),
        pytest.param(['a@g 1>2', 'b@g 3>4'], ['a', 'b'], id='members of a group'),
        pytest.param(['a@g 1>2', 'b@h 3>4'], ['ab'], id='members of two groups'),
    ],
)
def test_a_move_waits_for_the_moves_that_it_needs(moves, steps):
    found = steps_of([*map(a_move, moves)])
    assert [''.join(move.server.name for move in step) for step in found] == steps
