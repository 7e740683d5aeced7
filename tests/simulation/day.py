# SPDX-License-Identifier: Apache-2.0
"""A day of a simulated cloud.

A day begins with new schedulers. For some minutes, the actions of a script happen. Then
the faults end, and the work in progress comes to its end.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.simulation import script
from tests.simulation.conductor import Conductor
from tests.simulation.faults import REPORT_S, Faults
from tests.simulation.loop import WORLD
from tests.simulation.moves import Moves
from tests.simulation.script import Action
from tests.simulation.users import Users
from tests.simulation.world import World

STARTUP_S = 10.0
"""Seconds in which the schedulers start."""
CALM_S = 600.0
"""Seconds at the end of a day: more than a request for few servers may wait, and a
deletion may take. A day goes on until nova-conductor waits for no answer."""


def live(world: World, actions: Sequence[Action]) -> None:
    """Let a day with the actions of a script pass."""
    loop = world.loop
    conductor = Conductor(world)
    users = Users(world, conductor)
    moves = Moves(world, conductor)
    faults = Faults(world)
    acts: Mapping[str, Callable[[Random], None]] = {
        script.BOOT: users.boot,
        script.BOOT_IN_GROUP: users.boot_in_group,
        script.BOOT_IN_ZONE: users.boot_in_zone,
        script.BOOT_MANY: users.boot_many,
        script.BOOT_PINNED: users.boot_pinned,
        script.DELETE: users.delete,
        script.EVACUATE: moves.evacuate,
        script.RESIZE: moves.resize,
        script.MIGRATE_LIVE: moves.migrate_live,
        script.SHELVE: moves.shelve,
        script.BAD_WEATHER: faults.bad_weather,
        script.PLACEMENT_STOPS: faults.placement_stops,
        script.BROKER_STOPS: faults.broker_stops,
        script.CONNECTIONS_BREAK: faults.connections_break,
        script.KILL: faults.kill,
        script.RESTART: faults.restart,
        script.RELOAD: faults.reload,
        script.MESSAGES_GET_LOST: faults.messages_get_lost,
        script.DATABASE_FAILS: faults.database_fails,
        script.DATABASES_LAG: faults.databases_lag,
        script.CLOCK_JUMPS: faults.clock_jumps,
        script.COMPUTE_IS_SILENT: faults.compute_is_silent,
        script.HOST_IS_DISABLED: faults.host_is_disabled,
        script.HOSTS_CHANGE_ZONE: faults.hosts_change_zone,
        script.MESSAGES_ARE_FORGED: faults.messages_are_forged,
    }

    def begin(action: Action) -> None:
        loop.spawn(lambda: acts[action.kind](Random(action.seed)), WORLD)

    for _ in range(world.schedulers):
        world.start_process()
    loop.spawn(lambda: _report(world), WORLD)
    loop.run_until(loop.now + STARTUP_S)

    morning = loop.now
    for action in actions:
        loop.run_until(morning + action.at)
        begin(action)
    loop.run_until(morning + script.BUSY_S)
    faults.end()
    loop.run_until(loop.now + CALM_S)
    # Beside a slow filter, a call for many servers may take longer.
    while any(call.is_open for call in world.calls):
        loop.run_until(loop.now + CALM_S)


def _report(world: World) -> None:
    """Let the nova-computes report, for ever."""
    while True:
        world.computes.report()
        world.loop.sleep(REPORT_S)
