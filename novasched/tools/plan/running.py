# SPDX-License-Identifier: Apache-2.0
"""The goals of ``novaschedctl plan``: each reads nova.conf and a cloud, plans, and
prints the plan. A plan in a file is checked or carried out."""

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from oslo_config import cfg

from novasched.conf.redaction import printable_lines
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS
from novasched.tools import imported
from novasched.tools.plan import checking, goals, mending, reports, wanted
from novasched.tools.plan.board import Board
from novasched.tools.plan.checking import CheckedMove
from novasched.tools.plan.described_servers import described_board
from novasched.tools.plan.goals import Reached
from novasched.tools.plan.live_servers import NO_DETAILS, Details, live_board
from novasched.tools.plan.plan_file import (
    PlannedMove,
    plan_of,
    read_plan,
    to_json,
)
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.reports import counted
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.simulate import losses
from novasched.tools.simulate.described_cloud import read_cloud
from novasched.tools.simulate.running import configuration, drawing, warnings_on_stderr
from novasched.tools.simulate.simulation import (
    RequestOptions,
    Simulation,
    described_simulation,
)

MISSED = 3
"""Exit status of a plan that does not reach its goal, of a check that finds a void
move, or of a run that leaves moves open."""


def run(arguments: argparse.Namespace) -> int:
    """Make the plan of a goal, check a plan, or carry out a plan. Returns the exit
    status."""
    with warnings_on_stderr():
        return COMMANDS.get(arguments.command, _plan)(arguments)


def _plan(arguments: argparse.Namespace) -> int:
    """Make the plan of a goal. The exit status is :data:`MISSED` if the plan does not
    reach the goal."""
    draw = drawing(arguments.plot)
    conf = configuration(arguments)
    with_metadata = any(kind == 'metadata' for kind, _ in arguments.exempt)
    details = Details(with_metadata, moves=arguments.rest > 0)
    with _opened(conf, arguments, details) as (simulation, board):
        exempt = _exceptions(arguments.exempt, arguments.rest, board)
        planner = Planner(board, exempt)
        before = [*board.hosts.values()]
        words, reached = GOALS[arguments.command](simulation, planner, arguments)
        plan = plan_of(words, board.moves, reached)
        after = [*board.hosts.values()]

    print(FORMATS[arguments.format](plan))
    if draw:
        title = f'{words}: {counted(len(plan.moves), "move")}'
        draw(title, {'before': before, 'after': after})
    return 0 if reached.is_whole else MISSED


def _check(arguments: argparse.Namespace) -> int:
    """Check a plan. The exit status is :data:`MISSED` if a move is void."""
    conf = configuration(arguments)
    plan = read_plan(arguments.file)
    with _opened(conf, arguments) as (_, board):
        found = checking.checked(Planner(board), plan.moves)
    if arguments.format == 'json':
        print(checking.as_json(found))
    else:
        print(printable_lines(checking.as_text(found)))
    is_void = any(each.state is checking.State.VOID for each in found)
    return MISSED if is_void else 0


def _carry_out(arguments: argparse.Namespace) -> int:
    """Carry out a plan. The exit status is :data:`MISSED` if a move is open."""
    conf = configuration(arguments)
    # Imported late, since openstacksdk and rich are optional.
    execution = imported('novasched.tools.plan.execution', 'plan')
    plan = read_plan(arguments.file)

    def check(moves: Sequence[PlannedMove]) -> Sequence[CheckedMove]:
        with _opened(conf, arguments) as (_, board):
            return checking.checked(Planner(board), moves)

    is_whole = execution.carry_out(
        plan, check, arguments.os_cloud, arguments.at_once, arguments.yes
    )
    return 0 if is_whole else MISSED


@contextmanager
def _opened(
    conf: cfg.ConfigOpts, arguments: argparse.Namespace, details: Details = NO_DETAILS
) -> Iterator[tuple[Simulation, Board]]:
    """The board of the live cloud, or of a described one.

    :param details: what is read of the servers of the live cloud.
    """
    if arguments.cloud is None:
        with live_board(conf, arguments.seed, details) as opened:
            yield opened
        return

    cloud = read_cloud(arguments.cloud)
    simulation = described_simulation(conf, cloud, NO_USUAL_GUESTS, arguments.seed)
    yield simulation, described_board(simulation, cloud)


def _make_room(
    simulation: Simulation, planner: Planner, arguments: argparse.Namespace
) -> tuple[str, Reached]:
    if arguments.decision:
        recorded = simulation.remembered(arguments.decision, arguments.file)
        requests = wanted.again(simulation, recorded, arguments.count)
    else:
        options = RequestOptions(project=arguments.project, zone=arguments.zone)
        flavor = simulation.flavor(arguments.flavor)
        request = simulation.new_request(flavor, options)
        requests = wanted.several(simulation, request, arguments.count or 1)

    words = f'make room for {len(requests):,} {requests[0].flavor.name}'
    if requests[0].availability_zone:
        words += f' in {requests[0].availability_zone}'
    return words, goals.make_room(planner, requests, _most(arguments))


def _empty(
    simulation: Simulation, planner: Planner, arguments: argparse.Namespace
) -> tuple[str, Reached]:
    texts = [f'{kind}={name}' for kind, name in arguments.hosts]
    simulator = simulation.simulator
    zone = simulator.settings.default_availability_zone
    closed = losses.named(texts, simulator.hosts, zone)
    return f'empty {" ".join(texts)}', goals.empty(planner, closed, _most(arguments))


def _pack(
    simulation: Simulation, planner: Planner, arguments: argparse.Namespace
) -> tuple[str, Reached]:
    return 'pack', goals.pack(planner, _most(arguments))


def _spread(
    simulation: Simulation, planner: Planner, arguments: argparse.Namespace
) -> tuple[str, Reached]:
    threshold = arguments.threshold
    margin = arguments.margin
    words = f'spread above {threshold:.0%}, margin {margin:.0%}'
    return words, goals.spread(planner, threshold, margin, _most(arguments))


def _mend(
    simulation: Simulation, planner: Planner, arguments: argparse.Namespace
) -> tuple[str, Reached]:
    return 'mend', mending.mend(planner, _most(arguments))


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    'check': _check,
    'run': _carry_out,
}
"""The commands on a plan in a file."""

GOALS: Mapping[
    str, Callable[[Simulation, Planner, argparse.Namespace], tuple[str, Reached]]
] = {
    'make-room': _make_room,
    'empty': _empty,
    'pack': _pack,
    'spread': _spread,
    'mend': _mend,
}
"""For each goal, a function that moves servers; the goal in words, and what is
reached."""

FORMATS = {'table': reports.as_text, 'json': to_json, 'shell': reports.as_shell}


def _most(arguments: argparse.Namespace) -> int:
    """The maximum number of moves."""
    if arguments.at_most is None:
        return goals.UNLIMITED
    return int(arguments.at_most)


def _exceptions(
    pairs: Sequence[tuple[str, str]], rest_s: int, board: Board
) -> Callable[[PlacedServer], str]:
    """A function for why the operator does not want a server to be moved; empty if the
    server may move.

    :param rest_s: the seconds for which a server stays after a move.
    """

    def why(server: PlacedServer) -> str:
        if server.moved_ago_s is not None and server.moved_ago_s < rest_s:
            return f'moved {server.moved_ago_s:,.0f} seconds ago (--rest)'
        request = server.request
        aggregates = board.hosts[server.node_uuid].aggregates
        names: Mapping[str, Collection[str | None]] = {
            'project': [request.project_id],
            'flavor': [request.flavor.name, request.flavor.flavorid],
            'aggregate': [aggregate.name for aggregate in aggregates],
            'metadata': server.metadata,
        }
        for kind, name in pairs:
            if name in names[kind]:
                return f'is excepted ({kind}={name})'
        return ''

    return why
