# SPDX-License-Identifier: Apache-2.0
"""Ports kept in memory: a Placement that counts, and what prefilters look up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaim
from novasched.scheduler.prefilters import Port, Sources


class CountingPlacement(MemoryPlacement):
    """Gives a host so many claims as ``slots`` says, all of one size."""

    def __init__(self, slots: Mapping[str, int], stale: Collection[str] = ()) -> None:
        free = {provider: {'VCPU': number} for provider, number in slots.items()}
        super().__init__(free, resources=lambda request: {'VCPU': 1}, stale=stale)

    @property
    def slots(self) -> dict[str, int]:
        """The claims that each provider has left."""
        return {rp: amounts['VCPU'] for rp, amounts in self.free.by_provider.items()}

    @property
    def hosts(self) -> dict[str, str]:
        return {uuid: next(iter(amounts)) for uuid, amounts in self.allocations.items()}

    def allocate(self, wanted: Sequence[tuple[Request, Candidate]]) -> Sequence[str] | None:
        for request, _ in wanted:
            assert request.instance_uuid
            assert request.instance_uuid not in self.allocations
        return super().allocate(wanted)


@dataclass
class Audience:
    """Remembers what it is told: the phase, the server in hand, and the hosts chosen."""

    heard: list[tuple[str, str | None, list[str]]] = field(default_factory=list)

    def started(self, request: Request) -> None:
        self.heard.append(('start', request.instance_uuid, []))

    def ended(self, request: Request, flights: Sequence[PendingClaim]) -> None:
        self.heard.append(('end', request.instance_uuid, [x.host.host for x in flights]))

    def close(self) -> None:
        """Nobody waits."""


@dataclass
class StillAggregates:
    """Aggregates that nobody changes."""

    rows: Sequence[Aggregate]

    def having(self, key: str, value: str, since: float) -> Sequence[Aggregate]:
        return [row for row in self.rows if row.metadata.get(key) == value]

    def all(self, since: float) -> Sequence[Aggregate]:
        return self.rows


@dataclass
class StillComputes:
    """nova-computes of that version or newer."""

    version: int

    def minimum_version(self, since: float) -> int:
        return self.version


@dataclass
class StillNetwork:
    """Ports by UUID, and the aggregates of networks and subnets; what is not among them
    Neutron fails to answer for."""

    known: Mapping[str, Port]
    aggregates: Mapping[str, Collection[str]] = field(default_factory=dict)
    down: bool = False
    asked: int = 0

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        self.asked += 1
        if self.down:
            raise NetworkUnavailable('down')
        return {uuid: self.known[uuid] for uuid in uuids if uuid in self.known}

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        return self._aggregates(uuid)

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        return self._aggregates(uuid)

    def _aggregates(self, uuid: str) -> frozenset[str]:
        if uuid not in self.aggregates:
            raise NetworkUnavailable(f'what is {uuid}?')
        return frozenset(self.aggregates[uuid])


def sources(
    *aggregates: Aggregate, version: int = 0, network: StillNetwork | None = None
) -> Sources:
    """What prefilters look up; each argument is all that there is of its kind."""
    return Sources(StillAggregates(aggregates), StillComputes(version), network)
