# SPDX-License-Identifier: Apache-2.0
"""Makes room for a request by moves of other servers.

A search begins with the hosts that need the fewest moves. A server whose room is needed
moves to a host that fits; if there is none, a further search makes room for the server
itself. The number of moves limits both.
"""

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import combinations, islice

from novasched.scheduler.model.host import Host, Selection
from novasched.scheduler.model.request import Request
from novasched.tools.plan.board import (
    Board,
    Mark,
    Move,
    Preference,
    demand_of,
    directed,
)
from novasched.tools.plan.servers import Kind, PlacedServer, kind_of_move

AFFINITY = 'affinity'
MAX_MOVES = 6
"""Moves that make room for a request."""
MAX_EFFORT = 2_000
"""The effort of a search: the sets of servers that it tries to move, and a part of the
hosts that it looks at for each choice of sets."""
HOSTS_PER_TRY = 50
"""The hosts that a search looks at in the time in which it tries to move a set."""
MAX_HOSTS = 500
"""Hosts on which a search looks for several servers to move: those that lack least."""
MAX_SPARE = 2
"""Moves that make room for the servers of a set, beyond the moves of these servers."""
MAX_SETS = 50
"""Sets of servers of a host that a search tries, the cheapest first."""
MAX_LOOKED_AT = 500
"""Sets of servers of a host that a search looks at."""
MAX_SERVERS = 24
"""Servers of a host that a search combines to sets."""
PINNED_FACTOR = 2
"""The price of a server with pinned CPUs: its move disturbs guests that were promised
an even speed."""


def nothing_is_exempt(server: PlacedServer) -> str:
    """No server is exempt from moves."""
    return ''


def copied_mb(server: PlacedServer, kind: Kind) -> int:
    """The memory and the local disks that a move copies, in MiB. A stopped server has
    no memory, and an evacuation copies nothing from the lost host."""
    if kind is Kind.EVACUATION:
        return 0
    disk_mb = server.local_disk_gb * 1024
    if kind is Kind.COLD:
        return disk_mb
    return server.request.flavor.memory_mb + disk_mb


def price_of(server: PlacedServer, kind: Kind) -> int:
    """The price of a move."""
    price = copied_mb(server, kind)
    if server.is_pinned:
        price *= PINNED_FACTOR
    return price


@dataclass(frozen=True, slots=True)
class _Option:
    """Servers that could leave a host for a request.

    :ivar price: the price of their moves.
    """

    price: int
    host: Host
    servers: Sequence[PlacedServer]


class Planner:
    """Moves servers on a board.

    :param exempt: returns why the operator does not want a server to be moved; empty if
        it may be moved.
    :param max_effort: see :data:`MAX_EFFORT`.
    """

    def __init__(
        self,
        board: Board,
        exempt: Callable[[PlacedServer], str] = nothing_is_exempt,
        max_effort: int = MAX_EFFORT,
    ) -> None:
        self.board = board
        self._max_effort = max_effort
        self._exempt = exempt
        self._effort = 0
        self._accepting: dict[Hashable, frozenset[str]] = {}
        self._obstacles: dict[str, str] = {}

    def obstacle(self, server: PlacedServer) -> str:
        """Why a server must stay where it is; empty if it may move."""
        if server.uuid not in self._obstacles:
            why = self._exempt(server) or self.board.obstacle(server)
            self._obstacles[server.uuid] = why
        return self._obstacles[server.uuid]

    def movable_on(self, node_uuid: str) -> Sequence[PlacedServer]:
        """The servers on a compute node that may move, the cheapest first."""
        servers = []
        for server in self.board.on(node_uuid):
            if not self.obstacle(server):
                servers.append(server)
        servers.sort(key=self.order)
        return servers

    def order(self, server: PlacedServer) -> tuple[int, str, str]:
        """The sort key of servers by the price of their moves."""
        return self.price(server), server.name, server.uuid

    def price(self, server: PlacedServer) -> int:
        """The price of a move of a server."""
        host = self.board.hosts[server.node_uuid]
        return price_of(server, kind_of_move(server, host) or Kind.LIVE)

    def move(
        self,
        server: PlacedServer,
        purpose: str,
        most: int,
        avoid: Sequence[str] = (),
        closed: Sequence[str] = (),
        preference: Preference = Preference.FULLEST,
    ) -> Move | None:
        """Move a server, and make room for the server if no host fits; None if no way
        is found, and nothing has changed.

        :param purpose: what the move is good for.
        :param most: the maximum number of moves, with the move of the server.
        :param avoid: names of hosts to which no server must move.
        :param closed: names of further hosts to which this server must not move.
        """
        if most < 1:
            return None
        own_avoid = (*closed, *avoid)
        made = self.board.move(server, purpose, own_avoid, preference)
        if made is not None or most == 1:
            return made

        mark = self.board.mark()
        host = self.make_room(
            lambda: self.board.request_of(server, own_avoid),
            server.name,
            most - 1,
            avoid,
        )
        if host is None:
            return None
        if self.board.servers[server.uuid] is not server:
            # The server itself was in the way of another one, and has moved.
            self.board.undo(mark)
            return None
        made = self.board.move(server, purpose, own_avoid, to=host)
        assert made is not None, 'the room is gone'
        return made

    def make_room(
        self,
        wanted: Callable[[], Request],
        name: str,
        most: int,
        avoid: Sequence[str] = (),
    ) -> Host | None:
        """Move servers so that a host fits a request; None if no way is found, and
        nothing has changed.

        :param wanted: returns the request as of now: the hosts of a server group change
            while members move.
        :param name: the name of the instance that gets the room.
        :param most: the maximum number of moves.
        :param avoid: names of hosts to which no server must move.
        """
        if not self.could_accept(wanted()):
            return None
        for number in range(1, min(most, MAX_MOVES) + 1):
            for size in range(max(1, number - MAX_SPARE), number + 1):
                for option in self._options(wanted(), size, avoid):
                    self._effort += 1
                    if self._effort > self._max_effort:
                        return None
                    # Moves beyond the size of the set make room for its servers.
                    if self._clear(option, wanted, name, number, avoid):
                        return self.board.hosts[option.host.uuid]
        return None

    def straighten(self, start: Mark) -> None:
        """Replace the moves of a server that moves several times by a single move,
        where that is possible.

        :param start: the state before the first move.
        """
        moves = self.board.moves[start.moves :]
        number_of = Counter(move.server.uuid for move in moves)
        for uuid, number in number_of.items():
            if number == 1:
                continue
            for straight in _straightened(moves, uuid):
                if self._replay(start, straight):
                    moves = self.board.moves[start.moves :]
                    break

    def _replay(self, start: Mark, moves: Sequence[Move]) -> bool:
        """Make moves from a state on, and place the new instances afterwards. If that
        is impossible, the board stays as it is."""
        board = self.board
        before = board.moves[start.moves :]
        added = board.added[start.added :]
        for attempt in (moves, before):
            board.undo(start)
            if _repeated(board, attempt, added):
                return attempt is moves
        raise AssertionError('the moves cannot be repeated')

    def repeat(self, start: Mark, moves: Sequence[Move]) -> None:
        """Make moves from a state on once more."""
        self.board.undo(start)
        is_made = _repeated(self.board, moves, ())
        assert is_made, 'the moves cannot be repeated'

    def begin_search(self) -> None:
        """Begin a search with an effort of its own."""
        self._effort = 0

    def could_accept(self, request: Request) -> frozenset[str]:
        """The UUIDs of the compute nodes that would fit a request if all servers that
        may move had gone. Without any, no plan makes room."""
        key = _needs_of(request)
        if key in self._accepting:
            return self._accepting[key]

        board = self.board
        mark = board.mark()
        board.take_off(
            server for server in board.servers.values() if not self.obstacle(server)
        )
        group = request.instance_group
        if group is not None and group.policy != AFFINITY:
            # Members may move away, unlike those of an affinity group, who only move
            # to each other.
            group = replace(group, hosts=frozenset())
        anywhere = replace(request, instance_group=group, ignore_hosts=())
        self._accepting[key] = frozenset(board.accepting(anywhere))
        board.undo(mark)
        return self._accepting[key]

    def _clear(
        self,
        option: _Option,
        wanted: Callable[[], Request],
        name: str,
        most: int,
        avoid: Sequence[str],
    ) -> bool:
        """Move the servers of an option so that their host fits a request. If that
        fails, nothing has changed."""
        board = self.board
        mark = board.mark()
        board.take_off(option.servers)
        fits = self._fits(wanted(), option.host)
        board.undo(mark)
        if not fits:
            return False

        closed = (option.host.host,)
        purpose = f'makes room for {name} on {option.host.host}'
        left = most
        for number, server in enumerate(option.servers, 1):
            if board.servers[server.uuid] is not server:
                continue  # it has made room for a server before
            before = len(board.moves)
            # One move is kept for each of the other servers.
            spare = left - (len(option.servers) - number)
            if self.move(server, purpose, spare, avoid, closed) is None:
                board.undo(mark)
                return False
            left -= len(board.moves) - before

        if not self._fits(wanted(), option.host):
            board.undo(mark)
            return False
        return True

    def _fits(self, request: Request, host: Host) -> bool:
        """True if a host fits a request at present."""
        return self.board.choice(directed(request, host)) is not None

    def _options(
        self, request: Request, number: int, avoid: Sequence[str]
    ) -> Sequence[_Option]:
        """Sets of servers that could leave a host for a request, the cheapest first.

        :param number: the number of servers in a set.
        """
        self._effort += len(self.board.hosts) // HOSTS_PER_TRY
        could_accept = self.could_accept(request)
        closed = {*avoid, *request.ignore_hosts}
        demand = demand_of(request)
        short = []
        for uuid, host in self.board.hosts.items():
            if uuid not in could_accept or host.host in closed:
                continue
            free = self.board.free(uuid)
            lacking = {}
            for name, amount in demand.items():
                if name in free and free[name] < amount:
                    lacking[name] = amount - free[name]
            short.append((_share(lacking, demand), host, lacking))

        if number > 1:
            short.sort(key=lambda entry: (entry[0], entry[1].host))
            del short[MAX_HOSTS:]
        options = []
        mates = _affine_members(request)
        for _, host, lacking in short:
            for servers in self._sets(host, lacking, number, mates):
                options.append(_Option(sum(map(self.price, servers)), host, servers))
        options.sort(key=lambda option: (option.price, option.host.host))
        return options

    def _sets(
        self,
        host: Host,
        lacking: Mapping[str, int],
        number: int,
        without: Collection[str],
    ) -> Iterator[Sequence[PlacedServer]]:
        """Sets of servers of a host that have the lacking amounts together, the
        cheapest first. Of interchangeable servers, as many as a set may have.

        :param without: the UUIDs of servers that must stay.
        """
        of_kind: Counter[Hashable] = Counter()
        servers = []
        for server in self.movable_on(host.uuid):
            if server.uuid in without:
                continue
            kind = _kind(server)
            of_kind[kind] += 1
            if of_kind[kind] <= number:
                servers.append(server)

        for name, amount in lacking.items():
            held = [
                server.amounts.get(host.uuid, {}).get(name, 0) for server in servers
            ]
            if sum(nlargest(number, held)) < amount:
                return

        found = 0
        sets = combinations(servers[:MAX_SERVERS], number)
        for chosen in islice(sets, MAX_LOOKED_AT):
            if not _have(chosen, host, lacking):
                continue
            yield chosen
            found += 1
            if found == MAX_SETS:
                return


def _straightened(moves: Sequence[Move], uuid: str) -> Iterator[Sequence[Move]]:
    """The moves with a single move of a server to its last host: at the time of its
    last move, or of an earlier one."""
    of_server = [move for move in moves if move.server.uuid == uuid]
    last = replace(of_server[-1], server=of_server[0].server)
    for place in reversed(of_server):
        straight = []
        for move in moves:
            if move is place:
                straight.append(last)
            elif move.server.uuid != uuid:
                straight.append(move)
        yield straight


def _repeated(
    board: Board, moves: Sequence[Move], added: Sequence[tuple[Request, Selection]]
) -> bool:
    """Make moves, and place new instances on their hosts. False if a host does not fit
    any more; then some changes were made."""
    host_of = {host.nodename: host for host in board.hosts.values()}
    for move in moves:
        server = board.servers[move.server.uuid]
        made = board.move(server, move.purpose, to=board.hosts[host_of[move.node].uuid])
        if made is None:
            return False
    for request, chosen in added:
        host = board.hosts[chosen.compute_node_uuid]
        again = board.choice(directed(request, host))
        if again is None:
            return False
        board.add(request, again)
    return True


def _affine_members(request: Request) -> Collection[str]:
    """The UUIDs of the members of the affinity group of a request. None of them leaves
    a host to make room for another one."""
    group = request.instance_group
    if group is None or group.policy != AFFINITY:
        return ()
    return group.members


def _share(lacking: Mapping[str, int], demand: Mapping[str, int]) -> float:
    """The sum of the shares of a demand that a host lacks."""
    return sum(amount / demand[name] for name, amount in lacking.items())


def _have(
    servers: Sequence[PlacedServer], host: Host, lacking: Mapping[str, int]
) -> bool:
    """True if servers have at least the lacking amounts on a host."""
    held: Counter[str] = Counter()
    for server in servers:
        held.update(server.amounts.get(host.uuid, {}))
    return all(held[name] >= amount for name, amount in lacking.items())


def _needs_of(request: Request) -> Hashable:
    """Equal for requests that the same hosts would fit if no server were there. Equal
    flavors of a board are a single object, and so are equal images."""
    group_uuid = None
    if request.instance_group is not None:
        group_uuid = request.instance_group.uuid
    cell_uuid = None
    if request.requested_destination is not None:
        cell_uuid = request.requested_destination.cell_uuid
    return (
        id(request.flavor),
        id(request.image),
        request.is_bfv,
        request.project_id,
        request.availability_zone,
        group_uuid,
        cell_uuid,
        tuple(sorted(request.scheduler_hints.items())),
    )


def _kind(server: PlacedServer) -> Hashable:
    """Equal for interchangeable servers."""
    return _needs_of(server.request), server.state, server.fit
