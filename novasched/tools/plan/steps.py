# SPDX-License-Identifier: Apache-2.0
"""The order of the moves of a plan: steps of moves that do not wait for each other."""

from collections import defaultdict
from collections.abc import Sequence

from novasched.tools.plan.board import Move


def steps_of(moves: Sequence[Move]) -> list[list[Move]]:
    """The steps of moves that are possible one after the other. The moves of a step may
    run at once, when all earlier steps have ended.

    A move waits for earlier moves away from its new host, which may have to make room,
    and for earlier moves of the same server or of its server group. No move is ahead of
    an earlier move to the same host, whose room it might take.
    """
    steps: defaultdict[int, list[Move]] = defaultdict(list)
    last_to: dict[str, int] = {}
    last_from: dict[str, int] = {}
    last_of: dict[str, int] = {}
    for move in moves:
        server = move.server
        waits_for = [server.uuid]
        if server.group_uuid is not None:
            waits_for.append(server.group_uuid)

        step = last_to.get(move.host, 0)
        step = max(step, last_from.get(move.host, -1) + 1)
        for name in waits_for:
            step = max(step, last_of.get(name, -1) + 1)

        steps[step].append(move)
        last_to[move.host] = step
        last_from[server.host] = max(step, last_from.get(server.host, -1))
        for name in waits_for:
            last_of[name] = step
    return [steps[number] for number in sorted(steps)]
