# SPDX-License-Identifier: Apache-2.0
"""Simulators of ``novasched-simulate`` over hosts and a Placement in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.conf.settings import Settings
from novasched.placement.client import CandidatesWithSummaries
from novasched.placement.query import Query
from novasched.placement.wire import ProviderSummary, ProviderSummaryResource
from novasched.scheduler.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.model.host import Host
from novasched.scheduler.weighers.ram import RAMWeigher
from novasched.tools.simulate.simulated_placement import SimulatedPlacement
from novasched.tools.simulate.simulator import Simulator
from tests.lab.builders import a_candidate
from tests.lab.memory_schedulers import a_driver


class MemoryCandidates:
    """A Placement that answers every query with an amount of memory of each provider.

    :param free: free MEMORY_MB by provider UUID.
    :param amount: the MEMORY_MB of a candidate.
    :ivar queries: the query strings of all requests.
    """

    def __init__(self, free: Mapping[str, int], amount: int = 512) -> None:
        self.free = free
        self.amount = amount
        self.queries: list[str] = []

    def __call__(self, query: Query) -> CandidatesWithSummaries:
        self.queries.append(query.string)

        candidates = []
        summaries = {}
        for provider, free in self.free.items():
            if free >= self.amount:
                candidates.append(a_candidate(provider, MEMORY_MB=self.amount))
            memory = ProviderSummaryResource(free, 0)
            summaries[provider] = ProviderSummary({'MEMORY_MB': memory})
        return CandidatesWithSummaries(candidates, summaries)


def a_simulator(
    hosts: Sequence[Host],
    placement: MemoryCandidates | None = None,
    seed: int = 1,
    **settings: Any,
) -> Simulator:
    """A simulator of the filter scheduler over hosts.

    :param placement: by default a Placement with the free memory of each host.
    """
    filters = [
        NumInstancesFilter,
        ServerGroupAntiAffinityFilter,
        ServerGroupAffinityFilter,
    ]
    driver = a_driver(hosts, *filters, slots=0, weighers=[RAMWeigher], **settings)
    if placement is None:
        placement = MemoryCandidates({host.uuid: host.free_ram_mb for host in hosts})

    return Simulator(
        driver, SimulatedPlacement(placement, Settings(**settings)), seed, moment=0.0
    )
