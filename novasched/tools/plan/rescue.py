# SPDX-License-Identifier: Apache-2.0
"""Makes room for refused requests of a trace by moves of other instances."""

from collections.abc import Sequence
from dataclasses import replace

from novasched.scheduler.memory import Amounts
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.tools.plan.board import Board, Mark, Preference, directed
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.simulate.simulator import Simulator

EFFORT = 100
"""The effort of a search. A full cloud refuses many requests."""


class Rescuer:
    """Moves the instances of a simulation.

    :param most: the maximum number of moves for an instance.
    :ivar moves: the number of moves so far.
    :ivar rescued: the number of instances that got room by moves.
    """

    def __init__(self, simulator: Simulator, most: int) -> None:
        self.moves = 0
        self.rescued = 0
        self._simulator = simulator
        self._most = most
        self._board = Board(simulator)
        self._planner = Planner(self._board, max_effort=EFFORT)

    def placed(self, request: Request, selections: Sequence[Selection]) -> None:
        """Note the instances of a request, which the simulator has placed."""
        uuids = request.instance_uuids or ()
        for uuid, chosen in zip(uuids, selections, strict=True):
            node_uuid = chosen.compute_node_uuid
            amounts: Amounts = {}
            if chosen.candidate is not None:
                amounts = chosen.candidate.resources()
            server = PlacedServer(
                uuid,
                uuid,
                chosen.service_host,
                node_uuid,
                _single(request, uuid),
                amounts,
                self._simulator.simulated_hosts.fit_of(uuid, node_uuid),
            )
            self._board.enter(server)

    def rescue(self, request: Request) -> Sequence[PlacedServer]:
        """Make room for all instances of a refused request, and place the instances;
        empty without room."""
        board = self._board
        placed = []
        for uuid in request.instance_uuids or ():
            server = self._placed_by_moves(_single(request, uuid))
            if server is None:
                board.undo(Mark(0, 0, 0))
                return ()
            placed.append(server)

        for server in placed:
            board.enter(server)
        for server in (*placed, *(move.server for move in board.moves)):
            now = board.servers[server.uuid]
            self._simulator.note_member(now.group_uuid, now.uuid, now.host)
        self.moves += len(board.moves)
        self.rescued += len(placed)
        board.settle()
        return placed

    def delete(self, instance_uuid: str, node_uuid: str) -> None:
        """Delete an instance, which may have moved since it was placed.

        :param node_uuid: the compute node on which the instance was placed.
        """
        group_uuid = self._board.servers[instance_uuid].group_uuid
        self._board.delete(instance_uuid)
        self._simulator.forget(instance_uuid, node_uuid, group_uuid)

    def _placed_by_moves(self, request: Request) -> PlacedServer | None:
        """Place an instance, with moves of others if need be; None without room."""
        board = self._board
        request = board.with_present_members(request)
        chosen = board.choice(request, Preference.FULLEST)
        if chosen is None:
            self._planner.begin_search()
            host = self._planner.make_room(
                lambda: request, request.flavor.name, self._most
            )
            if host is None:
                return None
            chosen = board.choice(directed(request, host))
            assert chosen is not None, 'the room is gone'
        return board.add(request, chosen)


def _single(request: Request, uuid: str) -> Request:
    """The request for one of its instances. All instances are members of its group."""
    group = request.instance_group
    if group is not None:
        members = group.members.union(request.instance_uuids or ())
        group = replace(group, members=members)
    return replace(
        request,
        instance_uuids=(uuid,),
        instance_uuid=uuid,
        num_instances=1,
        instance_group=group,
    )
