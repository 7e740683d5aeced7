# SPDX-License-Identifier: Apache-2.0
"""The goals of plans, but for ``mend`` (``mending.py``).

Each goal moves servers on a board, at most a number of times, and tells what it has
reached.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from novasched.scheduler.model.host import UP, Host, state
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.values import first_names
from novasched.tools.plan.board import Mark, Preference, directed, share_in_use
from novasched.tools.plan.planner import AFFINITY, Planner
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.simulate.evacuations import progress

UNLIMITED = 1_000_000
"""The limit of moves of a plan without a limit."""
MAX_TOGETHER = 1_000
"""The number of moves up to which hosts are emptied together, too. Each attempt takes
as long as the moves before."""
FURTHER_MOVES = 3
"""The number of further moves that are tried to tell what they would bring."""


@dataclass(frozen=True, slots=True)
class Staying:
    """A server that stays, although the goal wants it to move.

    :ivar is_proven: True if no plan could move the server.
    """

    server: PlacedServer
    why: str
    is_proven: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """What a plan reaches.

    :ivar summary: a sentence.
    :ivar staying: the servers that should move and stay.
    :ivar further: a sentence about what more moves would bring; empty if unknown.
    :ivar is_whole: True if the goal is reached.
    """

    summary: str
    staying: Sequence[Staying] = ()
    further: str = ''
    is_whole: bool = True


def make_room(
    planner: Planner, requests: Sequence[Request], most: int = UNLIMITED
) -> Reached:
    """Make room for further servers of a flavor.

    :param requests: a request for each further server.
    """
    board = planner.board
    start = board.mark()
    placed = 0
    at_once = 0
    for request in progress(requests, 'servers have room'):
        planner.begin_search()
        chosen = board.choice(request, Preference.FULLEST)
        if chosen is None:
            budget = most - len(board.moves)
            if not _room_for(planner, request, budget):
                break
        else:
            board.add(request, chosen)
            at_once += len(board.moves) == 0
        placed += 1
    planner.straighten(start)

    wanted = len(requests)
    name = requests[0].flavor.name or 'server'
    summary = f'room for {placed:,} of {wanted:,} more {name}'
    if at_once:
        summary += f', {at_once:,} of them without a move'
    if placed == wanted:
        return Reached(summary)

    request = requests[placed]
    if not planner.could_accept(request):
        further = f'no host takes {name}, not even without the servers that may move'
    else:
        further = _further(planner, request, most)
    return Reached(summary, further=further, is_whole=False)


def _room_for(planner: Planner, request: Request, most: int) -> bool:
    """Make room for a request, and place its instance there."""
    board = planner.board
    name = f'another {request.flavor.name or "server"}'
    host = planner.make_room(lambda: request, name, most)
    if host is None:
        return False
    chosen = board.choice(directed(request, host))
    assert chosen is not None, 'the room is gone'
    board.add(request, chosen)
    return True


def _further(planner: Planner, request: Request, most: int) -> str:
    """What a few more moves would bring."""
    board = planner.board
    used = len(board.moves)
    spare = most - used
    mark = board.mark()
    planner.begin_search()
    found = _room_for(planner, request, spare + FURTHER_MOVES)
    moves = len(board.moves) - used
    board.undo(mark)
    if not found:
        return f'no way was found with up to {FURTHER_MOVES} more moves'
    return f'{moves - spare} more would make room for another'


def empty(planner: Planner, closed: Collection[str], most: int = UNLIMITED) -> Reached:
    """Move all servers away from hosts.

    The servers go where the scheduler of nova.conf sends them. If a server finds no
    place then, all go to the fullest hosts that fit, which leaves more room for large
    servers.

    :param closed: the names of the hosts.
    """
    board = planner.board
    avoid = tuple(sorted(closed))
    servers: list[PlacedServer] = []
    for uuid, host in board.hosts.items():
        if host.host in closed:
            servers += board.on(uuid)
    movable = [server for server in servers if not planner.obstacle(server)]
    # The largest first: small servers find a place in the gaps.
    movable.sort(key=_largest_first)

    start = board.mark()
    refused = _move_all(planner, movable, avoid, most, Preference.NOVA_CONF)
    if refused:
        board.undo(start)
        refused = _move_all(planner, movable, avoid, most, Preference.FULLEST)
    planner.straighten(start)

    staying = []
    for server in servers:
        if why := planner.obstacle(server):
            staying.append(Staying(server, why, is_proven=True))
    for server in refused:
        staying.append(_refused(planner, server, avoid, most))

    gone = len(servers) - len(staying)
    summary = f'{gone:,} of {len(servers):,} servers leave {_hosts(len(closed))}'
    return Reached(summary, staying, is_whole=not staying)


def _refused(
    planner: Planner, server: PlacedServer, avoid: Sequence[str], most: int
) -> Staying:
    """Why a server stays that may move."""
    board = planner.board
    request = board.request_of(server, avoid)
    could_accept = planner.could_accept(request)
    names = {board.hosts[uuid].host for uuid in could_accept}
    is_proven = names <= {*request.ignore_hosts}
    if others := _others_to_be_with(planner, server):
        return Staying(server, f'is in an affinity group with {others}', is_proven)
    if len(board.moves) >= most:
        return Staying(server, 'no more moves are allowed', is_proven)
    return Staying(server, board.why_nowhere(request), is_proven)


def _others_to_be_with(planner: Planner, server: PlacedServer) -> str:
    """The names of the other members of an affinity group on the host of a server;
    empty without such members."""
    group = server.request.instance_group
    if group is None or group.policy != AFFINITY:
        return ''
    names = []
    for other in planner.board.on(server.node_uuid):
        if other.uuid in group.members and other.uuid != server.uuid:
            names.append(other.name or other.uuid)
    return first_names(sorted(names))


def _move_all(
    planner: Planner,
    servers: Sequence[PlacedServer],
    avoid: Sequence[str],
    most: int,
    preference: Preference,
) -> list[PlacedServer]:
    """Move servers. The servers that stay.

    First all servers for which a host fits, and then the servers for which room must be
    made.
    """
    board = planner.board
    staying = []
    for server in progress(servers, 'servers tried'):
        purpose = f'{server.host} is emptied'
        is_allowed = len(board.moves) < most
        if not is_allowed or board.move(server, purpose, avoid, preference) is None:
            staying.append(server)

    # A move may make room for a server that was refused before.
    before = None
    while staying and len(staying) != before:
        before = len(staying)
        refused, staying = staying, []
        for server in progress(refused, 'servers tried once more'):
            planner.begin_search()
            budget = min(most - len(board.moves), 1 + FURTHER_MOVES)
            purpose = f'{server.host} is emptied'
            if planner.move(server, purpose, budget, avoid) is None:
                staying.append(server)
    return staying


def pack(planner: Planner, most: int = UNLIMITED) -> Reached:
    """Empty as many hosts as possible, those with the fewest servers first. The servers
    go to the fullest hosts that stay in use.

    Hosts are emptied one after the other. Where that takes few moves, as many hosts or
    one more are emptied together as well, which finds a place for the large servers of
    all these hosts before any small server.
    """
    board = planner.board
    start = board.mark()
    leaving = [board.on(node) for node in _emptiable(planner)]
    before = len(_unused(planner))
    is_better = True
    while is_better:
        _pack_each(planner, most)
        planner.straighten(start)
        found = len(_unused(planner)) - before
        is_better = False
        for number in (found + 1, found):
            if not is_better and len(board.moves) - start.moves <= MAX_TOGETHER:
                is_better = _pack_together(planner, start, leaving[:number], most)

    found = len(_unused(planner)) - before
    return Reached(f'{_hosts(found)} more empty, beside {before:,} empty now')


def _unused(planner: Planner) -> list[str]:
    """The names of the hosts without servers."""
    board = planner.board
    names = []
    for uuid, host in board.hosts.items():
        if not board.on(uuid) and host.num_instances <= 0:
            names.append(host.host)
    return names


def _emptiable(planner: Planner) -> list[str]:
    """The UUIDs of the compute nodes in use whose servers may all move, those with the
    fewest servers first."""
    board = planner.board
    counts = {}
    for uuid, host in board.hosts.items():
        servers = board.on(uuid)
        if servers and state(host) == UP and not any(map(planner.obstacle, servers)):
            price = sum(map(planner.price, servers))
            counts[uuid] = (len(servers), price, host.host)
    return sorted(counts, key=counts.__getitem__)


def _pack_together(
    planner: Planner, start: Mark, leaving: Sequence[Sequence[PlacedServer]], most: int
) -> bool:
    """Empty hosts together in place of all moves so far, if that empties more hosts or
    takes fewer moves. Otherwise False, and all moves so far stay.

    :param start: the state before the moves so far.
    :param leaving: the servers of each host.
    """
    board = planner.board
    moves = board.moves[start.moves :]
    servers = [server for of_host in leaving for server in of_host]
    emptied = {move.server.node_uuid for move in moves}
    is_better = len(leaving) > len(emptied) or len(servers) < len(moves)
    if not is_better or start.moves + len(servers) > most:
        return False

    board.undo(start)
    avoid = [*_unused(planner), *{server.host for server in servers}]
    largest_first = sorted(servers, key=_largest_first)
    for server in progress(largest_first, 'servers tried together'):
        purpose = f'{server.host} becomes empty'
        if board.move(server, purpose, avoid, Preference.FULLEST) is None:
            planner.repeat(start, moves)
            return False
    return True


def _pack_each(planner: Planner, most: int) -> None:
    """Empty hosts one after the other, as long as a further host can be emptied."""
    before = -1
    while before < len(_unused(planner)):
        before = len(_unused(planner))
        _pack_once(planner, most)


def _pack_once(planner: Planner, most: int) -> None:
    """Empty hosts, except those that get servers of others."""
    board = planner.board
    unused = _unused(planner)
    got: set[str] = set()
    for uuid in progress(_emptiable(planner), 'hosts tried'):
        host = board.hosts[uuid]
        servers = sorted(board.on(uuid), key=_largest_first)
        if host.host in got or len(board.moves) + len(servers) > most:
            continue

        mark = board.mark()
        for server in servers:
            purpose = f'{host.host} becomes empty'
            made = board.move(server, purpose, unused, Preference.FULLEST)
            if made is None:
                board.undo(mark)
                break
        else:
            got.update(move.host for move in board.moves[mark.moves :])
            unused.append(host.host)


def spread(
    planner: Planner,
    threshold: float,
    margin: float,
    most: int = UNLIMITED,
) -> Reached:
    """Move servers from hosts above a share in use to hosts far below.

    :param threshold: the share that no host should exceed.
    :param margin: the new host of a server stays below the former use of the old host
        by at least this share; otherwise servers would go back and forth.
    """
    board = planner.board
    start = board.mark()
    before = None
    # A move may make room for a server that was refused before.
    while len(board.moves) != before:
        before = len(board.moves)
        _spread_once(planner, threshold, margin, most)
    planner.straighten(start)
    above = [host for host in board.hosts.values() if share_in_use(host) > threshold]
    summary = f'{_hosts(len(above))} above {threshold:.0%} then'
    further = ''
    if above and len(board.moves) < most:
        further = 'no server there may go to a host that is far enough below'
    return Reached(summary, further=further, is_whole=not above)


def _spread_once(planner: Planner, threshold: float, margin: float, most: int) -> None:
    """Move servers from the fullest host, again and again, until no server of any host
    above the threshold may move."""
    board = planner.board
    stuck: set[str] = set()
    while len(board.moves) < most:
        above = []
        for host in board.hosts.values():
            if share_in_use(host) > threshold and host.uuid not in stuck:
                above.append(host)
        if not above:
            return
        fullest = max(above, key=lambda host: (share_in_use(host), host.host))
        if not _relieve(planner, fullest, threshold, margin):
            stuck.add(fullest.uuid)


def _relieve(planner: Planner, host: Host, threshold: float, margin: float) -> bool:
    """Move a server from a host to the emptiest host that fits."""
    board = planner.board
    before = share_in_use(host)
    for server in planner.movable_on(host.uuid):
        mark = board.mark()
        purpose = f'{before:.0%} of {host.host} is in use'
        made = board.move(server, purpose, (), Preference.EMPTIEST)
        if made is not None:
            after = share_in_use(board.hosts[board.servers[server.uuid].node_uuid])
            if after < before and after <= min(before - margin, threshold):
                return True
        board.undo(mark)
    return False


def _largest_first(server: PlacedServer) -> tuple[int, int, str, str]:
    """The sort key of servers, the largest first."""
    flavor = server.request.flavor
    return -flavor.memory_mb, -flavor.vcpus, server.name, server.uuid


def _hosts(number: int) -> str:
    if number == 1:
        return '1 host'
    return f'{number:,} hosts'
