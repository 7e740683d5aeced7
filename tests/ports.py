# SPDX-License-Identifier: Apache-2.0
"""Ports kept in memory: a Placement that counts, cells that stand still, and what
prefilters look up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from novasched.errors import NetworkUnavailable, NoValidHost
from novasched.inflight import Flight
from novasched.model.candidate import Candidate
from novasched.model.host import Aggregate, Fleet, Host
from novasched.model.request import Request
from novasched.prefilters import Port, Sources
from tests.builders import a_candidate


@dataclass
class CountingPlacement:
    """Gives a host so many claims as ``slots`` says, all of one size."""

    slots: dict[str, int]
    stale: frozenset[str] = frozenset()
    """Providers that are offered though they are full: somebody was faster."""
    allocations: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def expect(self, moment: float) -> None:
        """Nobody waits."""

    def candidates(self, request: Request) -> Mapping[str, list[Candidate]]:
        offered = [rp for rp, left in self.slots.items() if left > 0 or rp in self.stale]
        return {rp: [a_candidate(rp)] for rp in offered}

    def claim(self, request: Request, candidate: Candidate) -> str | None:
        (provider,) = candidate.allocations
        if self.slots[provider] <= 0:
            self.refused.append(provider)
            return None
        assert request.instance_uuid
        assert request.instance_uuid not in self.allocations
        self.slots[provider] -= 1
        self.allocations[request.instance_uuid] = provider
        return request.instance_uuid

    def claim_together(self, wanted: Sequence[tuple[Request, Candidate]]) -> list[str] | None:
        taken: list[str] = []
        for request, candidate in wanted:
            claim = self.claim(request, candidate)
            if claim is None:
                for each in taken:
                    self.give_back(each)
                return None
            taken.append(claim)
        return taken

    def give_back(self, claim: str) -> None:
        self.slots[self.allocations.pop(claim)] += 1


class StillHosts:
    """Hosts that nobody else changes."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self.hosts = {host.uuid: host for host in hosts}

    def prepare(self, moment: float) -> None:
        """Nothing changes."""

    def aimed(self, request: Request) -> Request:
        for name in request.force_hosts:
            if name not in {host.host for host in self.hosts.values()}:
                raise NoValidHost(f'No such host - host: {name} node: None ')
        return request

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Fleet:
        return Fleet(self.hosts, total=len(self.hosts))


@dataclass
class Audience:
    """Remembers what it is told: the phase, the server in hand, and the hosts chosen."""

    heard: list[tuple[str, str | None, list[str]]] = field(default_factory=list)

    def started(self, request: Request) -> None:
        self.heard.append(('start', request.instance_uuid, []))

    def ended(self, request: Request, flights: Sequence[Flight]) -> None:
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
