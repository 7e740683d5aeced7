# SPDX-License-Identifier: Apache-2.0
"""The cycle's two ports, kept in memory: a Placement that counts, and cells that stand still."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from novasched.errors import NoValidHost
from novasched.model.candidate import Candidate
from novasched.model.host import Host
from novasched.model.request import Request
from tests.builders import a_candidate


@dataclass
class CountingPlacement:
    """Gives a host so many claims as ``slots`` says, all of one size."""

    slots: dict[str, int]
    stale: frozenset[str] = frozenset()
    """Providers that are offered though they are full: somebody was faster."""
    allocations: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

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

    def give_back(self, claim: str) -> None:
        self.slots[self.allocations.pop(claim)] += 1


class StillHosts:
    """Hosts that nobody else changes."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self.hosts = {host.uuid: host for host in hosts}

    def aimed(self, request: Request) -> Request:
        for name in request.force_hosts:
            if name not in {host.host for host in self.hosts.values()}:
                raise NoValidHost(f'No such host - host: {name} node: None ')
        return request

    def read(
        self, uuids: Collection[str] | None, request: Request, instances: bool
    ) -> Mapping[str, Host]:
        return {uuid: host for uuid, host in self.hosts.items() if uuids is None or uuid in uuids}
