# SPDX-License-Identifier: Apache-2.0
"""The goal ``mend``: no server stands where the rules of today forbid it."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from novasched.scheduler.model.host import UP, state
from novasched.tools.plan.board import Board, Preference
from novasched.tools.plan.goals import FURTHER_MOVES, UNLIMITED, Reached, Staying
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.simulate.evacuations import progress


def mend(planner: Planner, most: int = UNLIMITED) -> Reached:
    """Move servers that stand where the rules of today forbid it, the cheapest
    first."""
    board = planner.board
    start = board.mark()
    found = misplaced(planner)
    staying = [Staying(server, why) for server, why in found]
    before = None
    # A move may mend another server as well, or make room for it.
    while staying and len(staying) != before:
        before = len(staying)
        staying = _mend_once(planner, found, most)
    planner.straighten(start)
    mended = len(found) - len(staying)
    summary = f'{mended:,} of {len(found):,} misplaced servers get a right place'
    return Reached(summary, staying, is_whole=not staying)


def _mend_once(
    planner: Planner, found: Sequence[tuple[PlacedServer, str]], most: int
) -> list[Staying]:
    """Move misplaced servers. The servers that stay misplaced.

    :param found: the servers, on their first hosts, with the reasons.
    """
    board = planner.board
    wrong = {server.uuid for server, _ in found}
    staying = []
    for server, why in progress(found, 'misplaced servers tried'):
        present = board.servers[server.uuid]
        if not _why_misplaced(planner, present):
            wrong.discard(server.uuid)
        elif obstacle := planner.obstacle(server):
            staying.append(Staying(server, f'{why}; it {obstacle}', is_proven=True))
        elif mended := _mended(planner, server.uuid, wrong, most):
            wrong -= mended
        else:
            nowhere = board.why_nowhere(board.request_of(present))
            staying.append(Staying(server, f'{why}; {nowhere}'))
    return staying


def _mended(planner: Planner, uuid: str, wrong: Collection[str], most: int) -> set[str]:
    """Move a misplaced server, and then the servers that this leaves misplaced: members
    of its server group, or of the group of a server that made room. If one of them
    finds no place, nothing has changed.

    :param wrong: the UUIDs of the servers that are misplaced so far.
    :returns: the UUIDs of the servers that are in their right places; empty if nothing
        has changed.
    """
    board = planner.board
    start = board.mark()
    planner.begin_search()
    looked_at: set[str] = set()
    waiting = [uuid]
    while waiting:
        server = board.servers[waiting.pop()]
        looked_at.add(server.uuid)
        why = _why_misplaced(planner, server)
        if not why:
            continue

        mark = board.mark()
        budget = min(most - len(board.moves), 1 + FURTHER_MOVES)
        made = None
        if not planner.obstacle(server):
            made = planner.move(server, why, budget, preference=Preference.NOVA_CONF)
        if made is None:
            board.undo(start)
            return set()
        affected = {move.server.uuid for move in board.moves[mark.moves :]}
        affected |= _mates_of(board, affected)
        waiting += sorted(affected - looked_at - {*wrong})

    if any(_why_misplaced(planner, board.servers[each]) for each in looked_at):
        board.undo(start)
        return set()
    return looked_at


def _mates_of(board: Board, uuids: Collection[str]) -> set[str]:
    """The UUIDs of the servers that share a server group with some servers."""
    mates: set[str] = set()
    for uuid in uuids:
        group = board.servers[uuid].request.instance_group
        if group is not None:
            mates |= group.members & board.servers.keys()
    return mates


def misplaced(planner: Planner) -> list[tuple[PlacedServer, str]]:
    """The servers that their hosts would not get today, each with the reason, the
    cheapest first. A server on a host that is disabled or down may stay.

    Few servers are looked at closely: those on a host that would not fit them if it
    were empty, those on a host with more in use than there is, and members of groups.
    """
    board = planner.board
    found = []
    for uuid, host in board.hosts.items():
        if state(host) != UP:
            continue
        is_too_full = any(amount < 0 for amount in board.free(uuid).values())
        for server in board.on(uuid):
            if server.unknown:
                continue
            is_suspect = is_too_full or server.group_uuid is not None
            if not is_suspect and uuid in planner.could_accept(server.request):
                continue
            if why := _why_misplaced(planner, server):
                found.append((server, why))
    found.sort(key=lambda pair: planner.order(pair[0]))
    return found


def _why_misplaced(planner: Planner, server: PlacedServer) -> str:
    """Why the host of a server would not get the server today; empty if it would."""
    board = planner.board
    host = board.hosts[server.node_uuid]
    request = server.request
    group = request.instance_group
    if group is not None:
        others = group.members & board.servers.keys() - {server.uuid}
        hosts = frozenset(board.servers[uuid].host for uuid in others)
        request = replace(request, instance_group=replace(group, hosts=hosts))

    mark = board.mark()
    board.take_off([server])
    why = board.why_not(request, board.hosts[host.uuid])
    board.undo(mark)
    return why
