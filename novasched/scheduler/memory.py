# SPDX-License-Identifier: Apache-2.0
"""Hosts and a Placement in memory, for the ports of ``ports.py``. The caching driver,
simulations and tests of plugins use this module."""

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
from novasched.scheduler.model.host import Host, HostSnapshot, HostView, Selection
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS, UsualGuests
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import NEEDS_NOTHING, Hosts, Needs, Placement
from novasched.scheduler.requirements import flavor_sizes

ANY_HOST = Request(flavor=Flavor())
"""A request that excludes no host."""

Amounts = Mapping[str, Mapping[str, int]]
"""Amounts by provider UUID and resource class."""


class MemoryHosts:
    """Implements :class:`novasched.scheduler.ports.Hosts` with given hosts.

    :ivar hosts: hosts by compute node UUID. Entries may be replaced.
    :ivar aggregates_settled: see
        :class:`novasched.scheduler.model.host.HostSnapshot`.
    """

    aggregates_settled = -math.inf
    compute_version = 0
    """The version that every nova-compute is taken to have."""
    usual = NO_USUAL_GUESTS
    """The usual guests of the cloud."""

    def __init__(
        self, hosts: Iterable[Host] = (), settings: Settings | None = None
    ) -> None:
        self.hosts = {host.uuid: host for host in hosts}
        self._settings = settings or Settings()
        # Guards the hosts against the threads of requests and of the periodic task.
        self._lock = threading.Lock()

    def prefetch(self, moment: float) -> None:
        """Do nothing: hosts in memory need no reading."""

    def minimum_version(self, since: float) -> int:
        return self.compute_version

    def usual_guests(self) -> UsualGuests:
        return self.usual

    def with_requested_destination(self, request: Request) -> Request:
        if not request.force_hosts:
            return request
        names = {host.host for host in self.hosts.values()}
        for name in request.force_hosts:
            if name not in names:
                raise NoValidHost(f'No such host - host: {name} node: None ')
        return request

    def is_on_forced_host(self, request: Request) -> bool:
        """True if the request forces a host: hosts in memory may lack instances."""
        return bool(request.force_hosts or request.force_nodes)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NEEDS_NOTHING,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """Read hosts with all instances if the request needs any instance: a later
        request may need others."""
        of_instances = {Data.INSTANCES, Data.FLAVORS} & needs.data
        needs_instances = bool(of_instances or needs.named or needs.located)
        located = needs.located
        hosts = self.all(needs_instances, Data.IMAGES in needs.data)
        with self._lock:
            if uuids is None or len(uuids) >= len(hosts):
                selected = dict(hosts)
            else:
                selected = {uuid: hosts[uuid] for uuid in uuids if uuid in hosts}

        destination = request.requested_destination
        # As in nova, a move without allow_cross_cell_move stays in the cell.
        cell = None
        if destination is not None and not destination.allow_cross_cell_move:
            cell = destination.cell_uuid
        if cell:
            for uuid in [*selected]:
                if selected[uuid].cell_uuid != cell:
                    del selected[uuid]

        host_of_instance = {}
        if located:
            members = frozenset(located)
            for host in hosts.values():
                for uuid in host.instances.keys() & members:
                    host_of_instance[uuid] = host
        return HostSnapshot(
            HostView(selected),
            total=len(hosts),
            aggregates_settled=self.aggregates_settled,
            located=host_of_instance,
            everywhere=hosts,
        )

    def all(self, instances: bool = False, images: bool = False) -> Mapping[str, Host]:
        """All hosts by compute node UUID.

        :param instances: read the instances on hosts.
        :param images: read the image properties of instances.
        :raises DatabaseUnavailable: a database does not answer.
        """
        return self.hosts

    def place(self, request: Request, selection: Selection) -> Fit | None:
        """Put the current instance of a request on the chosen host.

        :returns: the NUMA cells and CPUs of the instance; None without a topology.
        """
        with self._lock:
            host = self.hosts.get(selection.compute_node_uuid)
            if host is None:
                return None
            claimed = host, request, selection.candidate
            fit = fitting.claimed_fit(*claimed, selection.limits, self._settings)
            self.hosts[host.uuid] = self._with_instance(*claimed, fit)
        return fit

    def _with_instance(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        fit: Fit | None,
    ) -> Host:
        return fitting.with_instance_claimed(host, request, candidate, fit)


class HostCache(MemoryHosts):
    """Keeps the hosts of a source.

    Hosts are read at the first request, at a :meth:`refresh`, and at the first request
    with a need for instances or images. A read forgets instances that were placed
    before, unless the source has them.
    """

    def __init__(self, source: Hosts, settings: Settings, basis: Basis = FRESH) -> None:
        """Begin without hosts.

        :param basis: how fresh the hosts must be when they are read.
        """
        super().__init__((), settings)
        self._source = source
        self._basis = basis
        # Whether instances, and their images, were read; None before the first read.
        self._detail: tuple[bool, bool] | None = None

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, with instances and images as far as this request or earlier
        requests need.

        :raises DatabaseUnavailable: a database does not answer. The hosts stay
            unchanged.
        """
        before = self._detail or (False, False)
        detail = (before[0] or instances, before[1] or images)
        data = []
        if detail[0]:
            data.append(Data.INSTANCES)
        if detail[1]:
            data.append(Data.IMAGES)
        needs = Needs(frozenset(data))
        snapshot = self._source.read(None, ANY_HOST, needs, self._basis)

        hosts = dict(snapshot.hosts)
        self.hosts = hosts
        self._detail = detail
        self.aggregates_settled = snapshot.aggregates_settled
        return hosts

    def minimum_version(self, since: float) -> int:
        return self._source.minimum_version(since)

    def usual_guests(self) -> UsualGuests:
        return self._source.usual_guests()

    def is_on_forced_host(self, request: Request) -> bool:
        return self._source.is_on_forced_host(request)

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
    """The unused capacity of providers.

    :ivar by_provider: amounts by provider UUID and resource class.
    :ivar changes: the providers of all allocations and releases, in order.
    """

    by_provider: dict[str, dict[str, int]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def lacking(self, amounts: Amounts) -> frozenset[str]:
        """The resource classes without enough capacity on a provider."""
        lacking = set()
        for provider, resources in amounts.items():
            free = self.by_provider.get(provider, {})
            for name, amount in resources.items():
                if amount > free.get(name, 0):
                    lacking.add(name)
        return frozenset(lacking)

    def take(self, amounts: Sequence[Amounts]) -> bool:
        """Allocate amounts to several instances. False if a provider has too little
        left; then nothing is allocated."""
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for instance_amounts in amounts:
            for provider, resources in instance_amounts.items():
                sums[provider].update(resources)
        if self.lacking(sums):
            return False

        for instance_amounts in amounts:
            self.change(instance_amounts, -1)
        return True

    def change(self, amounts: Amounts, sign: int) -> None:
        """Give amounts back, or take amounts even beyond the capacity.

        :param sign: 1 to give back, -1 to take.
        """
        for provider, resources in amounts.items():
            free = self.by_provider[provider]
            for name, amount in resources.items():
                free[name] += sign * amount
            self.changes.append(provider)


def flavor_resources(flavor: Flavor) -> Mapping[str, int]:
    """VCPU, MEMORY_MB and DISK_GB of a flavor with local disks. Extra specs do not
    count."""
    return {name: amount for name, amount in flavor_sizes(flavor).items() if amount}


def _flavor_resources_of(request: Request) -> Mapping[str, int]:
    return flavor_resources(request.flavor)


class MemoryPlacement:
    """Implements :class:`novasched.scheduler.ports.Placement`: a candidate for each
    provider with enough capacity left.

    :ivar free: the unused capacity.
    :ivar allocations: the amounts of instances, by instance UUID.
    """

    def __init__(
        self,
        free: Amounts | None = None,
        source: Placement | None = None,
        resources: Callable[[Request], Mapping[str, int]] | None = None,
        stale: Collection[str] = (),
    ) -> None:
        """:param free: the unused capacity of providers; None for no limit.
        :param source: gives the candidates in place of ``free``.
        :param resources: returns the amounts of an instance; the amounts of the flavor
            by default.
        :param stale: providers to offer even if full, as after a faster scheduler.
        """
        self.free = FreeResources()
        self.allocations: dict[str, Amounts] = {}
        self._is_limited = free is not None
        self._source = source
        self._resources = resources or _flavor_resources_of
        self._stale = stale
        for provider, amounts in (free or {}).items():
            self.free.by_provider[provider] = dict(amounts)

    def announce_arrival(self, basis: Basis) -> None:
        """Do nothing: no request waits for another one."""

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
        """Claims are instance UUIDs."""
        amounts = {}
        for request, candidate in wanted:
            amounts[str(request.instance_uuid)] = candidate.resources()
        if self._is_limited and not self.free.take([*amounts.values()]):
            return None
        self.allocations |= amounts
        return [*amounts]

    def delete_allocations(self, claim: str) -> None:
        amounts = self.allocations.pop(claim)
        if self._is_limited:
            self.free.change(amounts, 1)


def candidate_of(provider: str, resources: Mapping[str, int]) -> Candidate:
    """Make a candidate with amounts of a single provider."""
    return Candidate(
        {provider: msgspec.Raw(json.dumps({'resources': resources}).encode())},
        msgspec.Raw(json.dumps({'': [provider]}).encode()),
    )
