# SPDX-License-Identifier: Apache-2.0
"""What the other scheduler has claimed: Placement tells which hosts it has chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from novasched.errors import NovaschedError
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.placement import query
from novasched.ports import Hosts

Held = Mapping[str, Mapping[str, int]]
"""Provider UUID to resource class to amount."""
Allocations = Callable[[str], Held]
"""What a server has."""
CPUS = {'PCPU': 'VCPU'}
"""Hosts that do not know the former get asked for the latter."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Names of the hosts from which a server has something, by provider UUID, and all that
    it has."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)

    def host(self, before: Claim) -> str | None:
        """The host that was chosen; None if that cannot be told.

        A server that is evacuated keeps what it has on its old host, so that a new one
        counts. Without a new one it was there before us.
        """
        new = {host for provider, host in self.hosts.items() if provider not in before.hosts}
        found = new or set(self.hosts.values())
        return found.pop() if len(found) == 1 else None


def claim_of(server: str, request: Request, allocations: Allocations, hosts: Hosts) -> Claim:
    """What a server of a request has now.

    :raises PlacementUnavailable: Placement does not answer.
    :raises DatabaseUnavailable: the API database does not.
    """
    held = allocations(server)
    if not held:
        return Claim()
    known = hosts.read(list(held), request, instances=False).hosts
    amounts = Counter[str]()
    for each in held.values():
        amounts.update(each)
    names = {provider: known[provider].host for provider in held if provider in known}
    return Claim(names, _comparable(amounts))


def asked(request: Request, settings: Settings) -> Mapping[str, int] | None:
    """What a server of the request would have; None if that cannot be asked for."""
    try:
        parameters = parse_qsl(query.build(request, settings).string)
    except NovaschedError:
        return None
    amounts = Counter[str]()
    for name, value in parameters:
        if name.startswith('resources'):
            pairs = (each.split(':') for each in value.split(','))
            amounts.update({resource: int(amount) for resource, amount in pairs})
    return _comparable(amounts)


def _comparable(amounts: Mapping[str, int]) -> Mapping[str, int]:
    found = Counter[str]()
    for name, amount in amounts.items():
        found[CPUS.get(name, name)] += amount
    return dict(found)
