# SPDX-License-Identifier: Apache-2.0
"""A scheduler that has just started remembers nothing, and looks at everything.

The other schedulers remember hosts, verdicts and weights, and answers of Placement less
the claims since. With all this, they have to rank hosts as the newcomer does.
"""

from collections.abc import Sequence
from random import Random

from novasched.rpc import wire
from tests.simulation.conductor import Conductor, request_for
from tests.simulation.flavors import DEVICES_OF, FLAVORS
from tests.simulation.process import SchedulerProcess, Weights
from tests.simulation.world import ANSWERS_LAST_S, ZONE, Call, Server, World, new_uuid

STARTUP_S = 30.0
"""Seconds in which the newcomer starts."""
RANK_S = 1.0
"""Seconds in which the schedulers mostly rank hosts for all requests."""
CLAIM_S = 2.0
"""Seconds in which the servers are claimed. With three rankings, less than the time
until schedulers ask Placement anew."""
SERVERS = 3
"""The number of servers that are claimed."""


def differences(world: World) -> list[str]:
    """The weights that the schedulers of a quiet cloud give to hosts, as far as they
    differ from the weights that a newcomer gives."""
    veterans = [*world.processes]
    newcomer = world.start_process()
    world.loop.run_until(world.loop.now + STARTUP_S)

    random = world.loop.random
    specs = []
    for flavor in FLAVORS:
        # Few hosts have devices, and these are looked at most closely.
        zones = (None,) if flavor.name in DEVICES_OF else (None, ZONE)
        for zone in zones:
            specs.append(request_for([new_uuid(random)], flavor, None, zone))
    # The second ranking makes the answers of Placement serve further requests.
    for _ in range(2):
        _rankings(world, veterans, specs)
    _claim(world, veterans, random)
    # Where Placement was asked while a claim was made, the claim may count twice.
    found = _compared(world, newcomer, veterans, specs, may_lack=True)
    world.loop.run_until(world.loop.now + ANSWERS_LAST_S)
    return found + _compared(world, newcomer, veterans, specs, may_lack=False)


def _compared(
    world: World,
    newcomer: SchedulerProcess,
    veterans: Sequence[SchedulerProcess],
    specs: Sequence[wire.RequestSpec],
    may_lack: bool,
) -> list[str]:
    """The differences for some requests.

    :param may_lack: claims were made since Placement has answered. Hosts may be missing,
        so that other hosts have other weights.
    """
    [expected, *others] = _rankings(world, [newcomer, *veterans], specs)
    found = []
    for process, rankings in zip(veterans, others, strict=True):
        for spec, weights, fresh in zip(specs, rankings, expected, strict=True):
            if may_lack and weights.keys() < fresh.keys():
                continue
            # A ranking claims nothing, and so does not know devices that were claimed
            # since Placement answered.
            if may_lack and spec.flavor.name in DEVICES_OF:
                continue
            for host in sorted(weights.keys() | fresh.keys()):
                given, due = weights.get(host), fresh.get(host)
                if given != due:
                    found.append(
                        f'{process.name} gives {host} the weight {given} for a'
                        f' {spec.flavor.name}, and should give {due}'
                    )
    return found


def _rankings(
    world: World,
    processes: Sequence[SchedulerProcess],
    specs: Sequence[wire.RequestSpec],
) -> list[list[Weights]]:
    """The weights of the hosts for each request, by each process."""
    rankings: dict[str, list[Weights]] = {}
    for process in processes:
        process.rank(
            specs, lambda given, name=process.name: rankings.update({name: given})
        )
    while len(rankings) < len(processes):
        world.loop.run_until(world.loop.now + RANK_S)
    return [rankings[process.name] for process in processes]


def _claim(world: World, processes: Sequence[SchedulerProcess], random: Random) -> None:
    """Let schedulers claim hosts for servers, one after the other. The servers are not
    built."""
    conductor = Conductor(world)

    def work() -> None:
        for _ in range(SERVERS):
            uuids = [new_uuid(random)]
            flavor = random.choice(FLAVORS)
            process = random.choice(processes)
            call = Call(uuids, flavor, process, world.loop.now)
            world.servers[uuids[0]] = Server(uuids[0], flavor, call)
            conductor.call(call, request_for(uuids, flavor, None, None))

    world.loop.spawn(work)
    world.loop.run_until(world.loop.now + CLAIM_S)
