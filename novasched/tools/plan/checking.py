# SPDX-License-Identifier: Apache-2.0
"""Compares a plan with the present cloud: which moves still hold."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from novasched.scheduler.model.host import Host
from novasched.tools import explain
from novasched.tools.plan.plan_file import PlannedMove
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.reports import counted


class State(StrEnum):
    """The state of a move of a plan."""

    HOLDS = 'holds'
    DONE = 'done'
    VOID = 'void'


@dataclass(frozen=True, slots=True)
class CheckedMove:
    """A move of a plan, as of now.

    :ivar why: why the move is void; otherwise empty.
    """

    move: PlannedMove
    state: State
    why: str = ''


def checked(planner: Planner, moves: Sequence[PlannedMove]) -> list[CheckedMove]:
    """The moves of a plan in the present cloud. Each move is decided in the state that
    the moves before it leave, as far as these hold."""
    host_of = {}
    for host in planner.board.hosts.values():
        host_of[host.host, host.nodename] = host
    found = []
    for move in moves:
        found.append(_checked(planner, move, host_of.get((move.host, move.node))))
    return found


def _checked(planner: Planner, move: PlannedMove, to: Host | None) -> CheckedMove:
    board = planner.board
    server = board.servers.get(move.server)
    if server is None:
        return CheckedMove(move, State.VOID, 'the server is gone')
    if server.host == move.host:
        return CheckedMove(move, State.DONE)
    if server.host != move.source:
        return CheckedMove(move, State.VOID, f'the server is on {server.host}')
    if why := planner.obstacle(server):
        return CheckedMove(move, State.VOID, f'the server {why}')
    if to is None:
        return CheckedMove(move, State.VOID, f'there is no host {move.host}')

    to = board.hosts[to.uuid]
    if board.move(server, move.why, to=to) is not None:
        return CheckedMove(move, State.HOLDS)
    return CheckedMove(move, State.VOID, board.why_not(board.request_of(server), to))


def as_text(found: Sequence[CheckedMove]) -> str:
    """The number of moves in each state, and a table of the void moves."""
    counts = Counter(each.state for each in found)
    numbers = [f'{counts[state]:,} {state}' for state in State]
    lines = [f'Of {counted(len(found), "move")}: {", ".join(numbers)}.']
    rows = []
    for each in found:
        if each.state is State.VOID:
            move = each.move
            name = move.name or move.server
            rows.append((name, move.source, move.host, each.why))
    if rows:
        names = ('server', 'from', 'to', 'why void')
        lines += ['', explain.table_of(names, rows, reasons='why void')]
    return '\n'.join(lines)


def as_json(found: Sequence[CheckedMove]) -> str:
    """``{"moves": [{"server", "source", "host", "state", "why"}]}``, in order."""
    moves = []
    for each in found:
        moves.append(
            {
                'server': each.move.server,
                'source': each.move.source,
                'host': each.move.host,
                'state': each.state,
                'why': each.why,
            }
        )
    return json.dumps({'moves': moves}, indent=2)
