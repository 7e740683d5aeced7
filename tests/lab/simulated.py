# SPDX-License-Identifier: Apache-2.0
"""Simulations over hosts and providers in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.conf.settings import Settings
from novasched.placement.client import CandidatesWithSummaries
from novasched.placement.query import Query
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.model.candidate import Inventory, ProviderSummary
from novasched.scheduler.model.host import Host
from novasched.scheduler.weighers.ram import RAMWeigher
from novasched.tools.simulate.simulator import SimulatedPlacement, Simulator
from tests.lab.builders import a_candidate
from tests.lab.ports import a_driver


class Asked:
    """A Placement that offers a MEMORY_MB of each host that has it, and counts questions."""

    def __init__(self, room: Mapping[str, int], amount: int = 512) -> None:
        self.room, self.amount = room, amount
        self.strings: list[str] = []

    def __call__(self, what: Query) -> CandidatesWithSummaries:
        self.strings.append(what.string)
        fit = [rp for rp, left in self.room.items() if left >= self.amount]
        return CandidatesWithSummaries(
            [a_candidate(rp, MEMORY_MB=self.amount) for rp in fit],
            {
                rp: ProviderSummary({'MEMORY_MB': Inventory(left, 0)})
                for rp, left in self.room.items()
            },
        )


def a_simulator(
    hosts: Sequence[Host], ask: Asked | None = None, seed: int = 1, **settings: Any
) -> Simulator:
    """A simulator of the filter scheduler over hosts that have the memory that they say."""
    plugins = [NumInstancesFilter, ServerGroupAntiAffinityFilter]
    real = a_driver(hosts, *plugins, slots=0, weighers=[RAMWeigher], **settings)
    room = ask or Asked({host.uuid: host.free_ram_mb for host in hosts})
    return Simulator(real, SimulatedPlacement(room, Settings(**settings)), seed, moment=0.0)
