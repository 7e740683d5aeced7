# SPDX-License-Identifier: Apache-2.0
"""The servers that ``make-room`` makes room for, and whether moves would make room for
a refused request."""

from collections.abc import Sequence
from dataclasses import replace

from oslo_config import cfg

from novasched.scheduler.model.request import Request
from novasched.tools.plan import goals
from novasched.tools.plan.live_servers import NO_DETAILS, live_board
from novasched.tools.plan.planner import MAX_MOVES, Planner
from novasched.tools.plan.reports import counted
from novasched.tools.simulate.simulation import Simulation
from novasched.tools.simulate.sources import Unusable


def several(simulation: Simulation, request: Request, count: int) -> Sequence[Request]:
    """A number of requests for a server each."""
    single = replace(request, instance_uuids=None, instance_uuid=None, num_instances=1)
    return [simulation.simulator.anew(single) for _ in range(count)]


def again(
    simulation: Simulation, request: Request, count: int | None = None
) -> Sequence[Request]:
    """The requests for the servers of a recorded request.

    :param count: the number of servers; None for the number in the request.
    :raises Unusable: room for other servers does not help the request.
    """
    count = count or request.count
    if request.is_rebuild:
        raise Unusable('a rebuild stays on its host: there is no room to make')
    if request.instance_group is not None and count > 1:
        why = 'room is made for one server of a server group at a time: add --count 1'
        raise Unusable(why)
    return several(simulation, request, count)


def offer(conf: cfg.ConfigOpts, decision: str, path: str | None) -> str:
    """Whether moves of other servers would make room for a refused request, in a
    sentence.

    :param decision: the UUID of a server, or the id of a request or a decision.
    :param path: the file of decisions; None for the file of nova.conf.
    :raises NovaschedError: a database or Placement does not answer, the decision is not
        known, or room for other servers does not help.
    """
    with live_board(conf, 0, NO_DETAILS) as (simulation, board):
        recorded = simulation.remembered(decision, path)
        requests = again(simulation, recorded)
        most = MAX_MOVES * len(requests)
        reached = goals.make_room(Planner(board), requests, most)
    if not reached.is_whole:
        return f'Moves of other servers do not make room: {reached.further}.'

    number = len(board.moves)
    if not number:
        return 'There is room by now.'
    verb = 'makes' if number == 1 else 'make'
    command = f'novaschedctl plan make-room --decision {decision}'
    return f'{counted(number, "move")} of other servers {verb} room: {command}'
