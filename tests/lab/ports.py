# SPDX-License-Identifier: Apache-2.0
"""Ports kept in memory: a Placement that counts, drivers over it, and what prefilters look up."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler.drivers import Driver, Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.memory import MemoryHosts, MemoryPlacement
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaim
from novasched.scheduler.prefilters import Port, Sources
from tests.lab.builders import a_request


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

    def claim_together(self, wanted: Sequence[tuple[Request, Candidate]]) -> Sequence[str] | None:
        for request, _ in wanted:
            assert request.instance_uuid
            assert request.instance_uuid not in self.allocations
        return super().claim_together(wanted)


def a_driver(
    hosts: Iterable[Host] | MemoryHosts,
    *plugins: Any,
    placement: MemoryPlacement | None = None,
    slots: int = 10,
    weighers: Sequence[Any] = (),
    notifier: Any = None,
    kind: Callable[[Parts], Any] = FilterScheduler,
    **settings: Any,
) -> Any:
    """A driver over hosts that Placement has so many slots on; filters and weighers are classes,
    or are made already."""
    values = Settings(**settings)
    source = hosts if isinstance(hosts, MemoryHosts) else MemoryHosts(hosts)
    made = [[x(values) if isinstance(x, type) else x for x in row] for row in (plugins, weighers)]
    counting = placement or CountingPlacement(dict.fromkeys(source.hosts, slots))
    return kind(Parts(values, [], counting, source, *made, notifier=notifier))


def ask(driver: Driver, **fields: Any) -> list[list[str]]:
    """The host of each instance of a request, with its alternates behind it."""
    rows = driver.select_destinations(a_request(**fields))
    return [[selection.service_host for selection in row] for row in rows]


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


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

    def all(self, since: float) -> Sequence[Aggregate]:
        return self.rows


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
        if uuid not in self.aggregates:
            raise NetworkUnavailable(f'what is {uuid}?')
        return frozenset(self.aggregates[uuid])

    subnet_aggregates = network_aggregates


def sources(
    *aggregates: Aggregate, version: int = 0, network: StillNetwork | None = None
) -> Sources:
    """What prefilters look up; each argument is all that there is of its kind."""
    return Sources(StillAggregates(aggregates), lambda since: version, network)
