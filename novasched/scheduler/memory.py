# SPDX-License-Identifier: Apache-2.0
"""Hosts and a Placement in memory, which implement the ports of ``ports.py``: for the
caching driver, for simulations, and for the tests of plugins."""

import json
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import (
    Candidate,
    CandidateIndex,
    Candidates,
)
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host, HostSnapshot, Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import NO_INSTANCES, Hosts, Needs, Placement
from novasched.scheduler.requirements import flavor_sizes

ANY_HOST = Request(flavor=Flavor())
"""A request that leaves no host out."""

Amounts = Mapping[str, Mapping[str, int]]
"""Provider UUID to resource class to amount."""


class MemoryHosts:
    """Implements :class:`novasched.scheduler.ports.Hosts` with the given hosts.
    ``hosts`` maps compute node UUIDs to hosts; entries may be replaced. For
    ``aggregates_settled`` see :class:`novasched.scheduler.model.host.HostSnapshot`."""

    aggregates_settled = -math.inf
    compute_version = 0
    """The version that every nova-compute is taken to have."""

    def __init__(
        self, hosts: Iterable[Host] = (), settings: Settings | None = None
    ) -> None:
        self.hosts = {host.uuid: host for host in hosts}
        self._settings = settings or Settings()
        self._lock = threading.Lock()

    def prefetch(self, moment: float) -> None:
        """There is nothing to read ahead."""

    def minimum_version(self, since: float) -> int:
        return self.compute_version

    def with_requested_destination(self, request: Request) -> Request:
        names = {host.host for host in self.hosts.values()}
        for name in request.force_hosts:
            if name not in names:
                raise NoValidHost(f'No such host - host: {name} node: None ')
        return request

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NO_INSTANCES,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """Hosts have all their instances, if any, since later requests may name any of
        them."""
        needs_instances = bool(
            needs.instances or needs.flavors or needs.named or needs.located
        )
        located = needs.located
        hosts = self.all(needs_instances, needs.images)
        destination = request.requested_destination
        one_cell = destination and not destination.allow_cross_cell_move
        cell = destination.cell_uuid if destination and one_cell else None
        with self._lock:
            if uuids is None or len(uuids) >= len(hosts):
                found = dict(hosts)
            else:
                found = {uuid: hosts[uuid] for uuid in uuids if uuid in hosts}
        if cell:
            found = {
                uuid: host for uuid, host in found.items() if host.cell_uuid == cell
            }
        looked_at = hosts.values() if located else ()
        on = {x: host for host in looked_at for x in host.instances.keys() & {*located}}
        return HostSnapshot(
            found,
            total=len(hosts),
            aggregates_settled=self.aggregates_settled,
            located=on,
            everywhere=hosts,
        )

    def all(self, instances: bool = False, images: bool = False) -> Mapping[str, Host]:
        """All hosts, by compute node UUID, perhaps with their instances and the images
        of these.

        :raises DatabaseUnavailable: they cannot be read.
        """
        return self.hosts

    def place(self, request: Request, selection: Selection) -> None:
        """Put the current instance of a request on the host that was chosen for it."""
        with self._lock:
            if host := self.hosts.get(selection.compute_node_uuid):
                self.hosts[host.uuid] = self._with_instance(host, request, selection)

    def _with_instance(
        self, host: Host, request: Request, selection: Selection
    ) -> Host:
        claimed = host, request, selection.candidate
        place = fitting.claimed_fit(*claimed, selection.limits, self._settings)
        return fitting.after(*claimed, place)


class HostCache(MemoryHosts):
    """Hosts of another port, read when they are first needed, at each :meth:`refresh`,
    and when a request needs more of them than was read. What was placed is gone after
    that."""

    def __init__(self, source: Hosts, settings: Settings, basis: Basis = FRESH) -> None:
        """Begin without hosts.

        :param basis: how fresh the hosts must be when they are read.
        """
        super().__init__((), settings)
        self._source = source
        self._basis = basis
        self._detail: tuple[bool, bool] | None = None

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, with their instances and images if these are or were needed.

        :raises DatabaseUnavailable: they cannot be read; they stay as they were.
        """
        before = self._detail or (False, False)
        detail = (before[0] or instances, before[1] or images)
        needs = Needs(instances=detail[0], images=detail[1])
        snapshot = self._source.read(None, ANY_HOST, needs, self._basis)
        hosts = dict(snapshot.hosts)
        self.hosts = hosts
        self._detail = detail
        self.aggregates_settled = snapshot.aggregates_settled
        return hosts

    def minimum_version(self, since: float) -> int:
        return self._source.minimum_version(since)

    def with_requested_destination(self, request: Request) -> Request:
        return self._source.with_requested_destination(request)

    def all(self, instances: bool = False, images: bool = False) -> Mapping[str, Host]:
        hosts = self.hosts
        detail = self._detail
        if detail is None or instances > detail[0] or images > detail[1]:
            return self.refresh(instances, images)
        return hosts


@dataclass(slots=True)
class FreeResources:
    """The amount of each resource class that each provider has left. ``changes`` lists
    the providers that something was taken from or given back to, in order."""

    by_provider: dict[str, dict[str, int]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def lacking(self, amounts: Amounts) -> frozenset[str]:
        """The resource classes of which some provider has too little left."""
        return frozenset(
            name
            for provider, resources in amounts.items()
            for name, amount in resources.items()
            if amount > self.by_provider.get(provider, {}).get(name, 0)
        )

    def take(self, amounts: Sequence[Amounts]) -> bool:
        """Allocate to several instances, or to none of them if that is too much."""
        together: dict[str, Counter[str]] = defaultdict(Counter)
        for of_instance in amounts:
            for provider, resources in of_instance.items():
                together[provider].update(resources)
        if self.lacking(together):
            return False
        for of_instance in amounts:
            self._change(of_instance, -1)
        return True

    def release(self, amounts: Amounts) -> None:
        """Undo the allocation of one instance."""
        self._change(amounts, 1)

    def _change(self, amounts: Amounts, sign: int) -> None:
        for provider, resources in amounts.items():
            free = self.by_provider[provider]
            for name, amount in resources.items():
                free[name] += sign * amount
            self.changes.append(provider)


def flavor_resources(flavor: Flavor) -> Mapping[str, int]:
    """VCPU, MEMORY_MB and DISK_GB of a flavor without extra specs whose disks are
    local."""
    return {name: amount for name, amount in flavor_sizes(flavor).items() if amount}


class MemoryPlacement:
    """Implements :class:`novasched.scheduler.ports.Placement`: one candidate for each
    provider that has enough left.

    :param free: provider UUID to resource class to amount; None for no limits at all.
    :param source: asked for the candidates, in place of those that follow from
        ``free``.
    :param resources: the amounts that an instance of a request takes from its provider;
        those of its flavor by default.
    :param stale: providers that are offered though they are full, as when another
        scheduler was faster.
    :ivar allocations: the amounts that each instance has, by its UUID.
    """

    def __init__(
        self,
        free: Amounts | None = None,
        source: Placement | None = None,
        resources: Callable[[Request], Mapping[str, int]] | None = None,
        stale: Collection[str] = (),
    ) -> None:
        self.free = FreeResources(
            {rp: dict(amounts) for rp, amounts in (free or {}).items()}
        )
        self.allocations: dict[str, Amounts] = {}
        self._is_limited = free is not None
        self._source = source
        self._resources = resources or (
            lambda request: flavor_resources(request.flavor)
        )
        self._stale = stale

    def announce_arrival(self, moment: float) -> None:
        """No request waits for another."""

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        if self._source is not None:
            return self._source.candidates(request, basis)
        resources = self._resources(request)
        candidates = []
        for provider in self.free.by_provider:
            lacking = self.free.lacking({provider: resources})
            if not lacking or provider in self._stale:
                candidates.append(candidate_of(provider, resources))
        return CandidateIndex(candidates)

    def claim(
        self, request: Request, candidate: Candidate, basis: Basis = FRESH
    ) -> str | None:
        claims = self.claim_together([(request, candidate)], basis)
        if claims:
            return claims[0]
        return None

    def claim_together(
        self, wanted: Sequence[tuple[Request, Candidate]], basis: Basis = FRESH
    ) -> Sequence[str] | None:
        """A claim is the instance's UUID."""
        amounts = {
            str(request.instance_uuid): candidate.resources()
            for request, candidate in wanted
        }
        if self._is_limited and not self.free.take([*amounts.values()]):
            return None
        self.allocations |= amounts
        return [*amounts]

    def delete_allocations(self, claim: str) -> None:
        amounts = self.allocations.pop(claim)
        if self._is_limited:
            self.free.release(amounts)


def candidate_of(provider: str, resources: Mapping[str, int]) -> Candidate:
    """An allocation candidate with these amounts of one provider."""
    return Candidate(
        {provider: msgspec.Raw(json.dumps({'resources': resources}).encode())},
        msgspec.Raw(json.dumps({'': [provider]}).encode()),
    )
