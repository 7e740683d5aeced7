# SPDX-License-Identifier: Apache-2.0
"""A plan as a value, and as JSON in a file."""

import json
from collections.abc import Sequence

import msgspec

from novasched.conf.redaction import printable
from novasched.tools.plan.board import Move
from novasched.tools.plan.goals import Reached, Staying
from novasched.tools.plan.planner import copied_mb
from novasched.tools.plan.servers import Kind
from novasched.tools.plan.steps import steps_of
from novasched.tools.simulate.sources import Unusable, read_json

VERSION = 1
"""The version of the JSON."""


class PlannedMove(msgspec.Struct, frozen=True):
    """A move of a plan.

    :ivar server: the UUID of the server.
    :ivar source: the name of the present host.
    :ivar host: the name of the new host.
    :ivar node: the name of the new compute node.
    :ivar copied_mb: the memory and the local disks to copy, in MiB. Nothing is copied
        where hosts share the storage of disks.
    :ivar why: what the move is good for.
    """

    server: str
    name: str
    flavor: str
    kind: Kind
    source: str
    host: str
    node: str
    copied_mb: int
    is_pinned: bool
    why: str


class StayingServer(msgspec.Struct, frozen=True):
    """A server that should move and stays.

    :ivar is_proven: True if no plan could move the server.
    """

    server: str
    name: str
    host: str
    why: str
    is_proven: bool


class Plan(msgspec.Struct, frozen=True):
    """Moves in steps. The moves of a step may run at once.

    :ivar goal: the goal in words.
    :ivar reached: what the plan reaches, in a sentence.
    :ivar further: what more moves would bring; empty if unknown.
    """

    goal: str
    reached: str
    further: str
    steps: Sequence[Sequence[PlannedMove]]
    staying: Sequence[StayingServer]
    version: int = VERSION

    @property
    def moves(self) -> list[PlannedMove]:
        """The moves in order."""
        return [move for step in self.steps for move in step]

    @property
    def copied_mb(self) -> int:
        """The memory and the local disks to copy, in MiB."""
        return sum(move.copied_mb for move in self.moves)


def plan_of(goal: str, moves: Sequence[Move], reached: Reached) -> Plan:
    """The plan of moves that are possible one after the other."""
    steps = []
    for step in steps_of(moves):
        steps.append([*map(_planned, step)])
    return Plan(
        goal,
        reached.summary,
        reached.further,
        steps,
        [*map(_staying, reached.staying)],
    )


def _planned(move: Move) -> PlannedMove:
    server = move.server
    return PlannedMove(
        server.uuid,
        printable(server.name),
        printable(server.request.flavor.name),
        move.kind,
        server.host,
        move.host,
        move.node,
        copied_mb(server, move.kind),
        server.is_pinned,
        move.purpose,
    )


def _staying(staying: Staying) -> StayingServer:
    server = staying.server
    return StayingServer(
        server.uuid,
        printable(server.name),
        server.host,
        staying.why,
        staying.is_proven,
    )


def to_json(plan: Plan) -> str:
    """The JSON of a plan."""
    return json.dumps(msgspec.to_builtins(plan), indent=2)


def read_plan(path: str) -> Plan:
    """The plan in a file.

    :raises Unusable: the file cannot be read, or is no plan of this version.
    """
    plan = read_json(path, Plan)
    if plan.version != VERSION:
        why = f'a plan of version {plan.version}, and this release reads {VERSION}'
        raise Unusable(f'{path}: {why}')
    return plan
