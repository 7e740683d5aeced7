# SPDX-License-Identifier: Apache-2.0
"""FragmentationWeigher: keep capacity usable for the usual guests of the cloud.

The rule itself is in :mod:`novasched.scheduler.weighers.usable_capacity`. This module
tells the demands of guests and the free capacity of hosts in the terms of the rule.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import os_resource_classes as classes

from novasched.scheduler.errors import BadRequest, NoValidHost
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor, RequestGroup
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import (
    KIB_PER_MIB,
    GuestTopology,
    HostTopology,
)
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import (
    DISK_MB,
    MEMORY_MB,
    PCPU,
    VCPU,
    UsualGuests,
)
from novasched.scheduler.numa.plain_fit import CELL_CAPACITY
from novasched.scheduler.requirements import Requirements, numa
from novasched.scheduler.weighers import CandidatesWeigher, Data, Scope
from novasched.scheduler.weighers.usable_capacity import (
    Demand,
    FreeCapacity,
    Numbers,
    PartDemand,
    UsualDemands,
)

CELLS = 'NUMA cells'
"""The kind of the parts of a host that are NUMA cells."""
NO_CELLS = HostTopology(())
NOT_DEVICES = frozenset(
    (classes.VCPU, classes.PCPU, classes.MEMORY_MB, classes.DISK_GB)
)
"""Resource classes that count by the sizes of the flavor and by NUMA cells."""
HOSTS_AT_ONCE = 2048
"""Hosts that are weighed at once. Larger arrays do not fit in the processor's cache."""
WITHOUT_DEVICES = UNVERSIONED.with_step(())
"""The version of all offers for requests whose weights do not depend on devices."""
MAX_READINGS = 4
"""Readings of usual guests whose demands are kept. Requests that began before a reading
use the reading before."""


class FragmentationWeigher(CandidatesWeigher):
    """Weigh a host by the worth of its free capacity after the guest is placed, less
    the worth before. Capacity is worth the usual guests that fit.

    A host weighs 0 if it loses nothing that a usual guest could use, and less the more
    it loses. An option of 0 disables the weigher, regardless of aggregate metadata.
    """

    multiplier = 'fragmentation_weight_multiplier'
    scope = Scope.HOST
    reads = frozenset({Data.USUAL_GUESTS})

    def applies(self, request: Request) -> bool:
        # 0 must not cause a reading of the usual guests.
        return self.default_scale != 0.0

    def request_key(self, request: Request) -> Hashable:
        return demand_of_request(request), request.usual_guests

    def offer_keys(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Sequence[Hashable]:
        keys: list[tuple[Hashable, ...]] = [()] * len(hosts)
        for kind in _kinds_of_devices(request):
            devices = _free_devices(hosts, kind, candidates)
            # Without the zeros of hosts with fewer devices.
            numbers = np.count_nonzero(devices > 0.0, axis=1).tolist()
            for i, amounts in enumerate(devices.tolist()):
                keys[i] = (*keys[i], kind, *amounts[: numbers[i]])
        return keys

    def offer_changes(
        self, request: Request, candidates: Candidates | None
    ) -> ChangeLog:
        if candidates is None or not _kinds_of_devices(request):
            return WITHOUT_DEVICES
        return candidates.device_changes

    def weigh_offered(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> list[float]:
        usual = usual_demands(request.usual_guests)
        demand = usual.part_of(demand_of_request(request))
        weights: list[float] = []
        for begin in range(0, len(hosts), HOSTS_AT_ONCE):
            some = hosts[begin : begin + HOSTS_AT_ONCE]
            free = free_capacity(some, (demand, *usual.demands), candidates)
            # Not the negative: 0 must not become -0.
            weights += (0.0 - usual.loss(free, demand)).tolist()
        return weights


def _kinds_of_devices(request: Request) -> Sequence[Hashable]:
    """The resource classes of devices that usual guests need."""
    kinds = usual_demands(request.usual_guests).kinds_of_parts
    return [kind for kind in kinds if kind != CELLS]


def demand_of_request(request: Request) -> Demand:
    """The demand of the current instance of a request."""
    groups = request.requirements.flavor_groups.groups.values()
    return demand_of(
        request.flavor,
        request.numa_topology,
        (*groups, *request.requested_resources),
        request.is_bfv,
    )


def demand_of(
    flavor: Flavor,
    topology: GuestTopology | None,
    groups: Iterable[RequestGroup],
    is_bfv: bool = False,
) -> Demand:
    """The demand of a guest.

    :param topology: the NUMA cells of the guest; None without cells.
    :param groups: the request groups of the guest, for its devices.
    :param is_bfv: the root disk is a volume.
    """
    disk_gb = flavor.ephemeral_gb
    if not is_bfv:
        disk_gb += flavor.root_gb
    pinned = 0
    if topology is not None:
        pinned = sum(len(cell.pcpuset) for cell in topology.cells if cell.is_pinned)
    sizes = {
        VCPU: flavor.vcpus - pinned,
        MEMORY_MB: flavor.memory_mb,
        DISK_MB: disk_gb * 1024,
    }
    amounts: list[tuple[Hashable, float]] = []
    for name, size in sizes.items():
        if size > 0:
            amounts.append((name, float(size)))
    parts = _demand_of_devices(groups)
    if topology is not None:
        parts += _demand_on_cells(topology)
    return Demand(tuple(amounts), tuple(parts))


def _demand_of_devices(groups: Iterable[RequestGroup]) -> list[PartDemand]:
    """The demand of request groups. Groups with equal amounts take different devices
    each, as with ``group_policy=isolate``."""
    counts = Counter[tuple[str, int]]()
    for group in groups:
        for name, amount in group.resources.items():
            if amount > 0 and name not in NOT_DEVICES:
                counts[name, amount] += 1
    parts = []
    for (name, amount), count in counts.items():
        parts.append(PartDemand(name, count, ((name, float(amount)),)))
    return parts


def _demand_on_cells(topology: GuestTopology) -> list[PartDemand]:
    """The demand of a guest on host cells, which is that of its largest cell on each.

    Dedicated CPUs and pages of a requested size count by host cell. Floating vCPUs and
    further memory count for the host as a whole.
    """
    largest: dict[Hashable, float] = {}
    for cell in topology.cells:
        sizes: dict[Hashable, float] = {}
        if cell.is_pinned:
            sizes[PCPU] = float(len(cell.pcpuset))
        if cell.pagesize is not None and cell.pagesize > 0:
            sizes[cell.pagesize] = cell.memory * KIB_PER_MIB / cell.pagesize
        for name, size in sizes.items():
            largest[name] = max(size, largest.get(name, 0.0))

    amounts = tuple((name, size) for name, size in largest.items() if size > 0)
    if not amounts:
        return []
    return [PartDemand(CELLS, len(topology.cells), amounts)]


def resource_name(name: Hashable) -> str:
    """The text for a resource of demands: the class, or the size of the pages."""
    if isinstance(name, int):
        return f'pages of {name} KiB'
    return str(name)


@lru_cache(MAX_READINGS)
def usual_demands(usual_guests: UsualGuests) -> UsualDemands:
    """The demands of the usual guests. Images are unknown: only flavors count."""
    demands = []
    numbers = []
    for guest in usual_guests.guests:
        try:
            topology = numa.topology(guest.flavor, NO_PROPERTIES)
        except (BadRequest, NoValidHost):
            # The flavor contradicts itself. Its instances had an image, or another
            # flavor of the same id.
            topology = None
        groups = Requirements(guest.flavor).flavor_groups.groups.values()
        demands.append(demand_of(guest.flavor, topology, groups))
        numbers.append(float(guest.number))

    # The capacity of devices is unknown here. Devices count as scarce: as if the usual
    # guests had all of them.
    capacity = dict(usual_guests.capacity)
    for demand, number in zip(demands, numbers, strict=True):
        for part in demand.parts:
            if part.kind == CELLS:
                continue
            for name, amount in part.amounts:
                size = number * part.count * amount
                capacity[name] = capacity.get(name, 0.0) + size
    return UsualDemands.of(demands, numbers, capacity)


def free_capacity(
    hosts: Sequence[Host], demands: Iterable[Demand], candidates: Candidates | None
) -> FreeCapacity:
    """The free capacity of hosts, as far as the demands need it.

    :param candidates: Placement's offer, for the devices. Without an offer, the hosts
        count as hosts without devices.
    """
    amounts: dict[Hashable, Numbers] = {}
    names_of_parts: dict[Hashable, set[Hashable]] = {}
    for demand in demands:
        for name, _ in demand.amounts:
            if name not in amounts:
                amounts[name] = _free_amounts(hosts, name)
        for part in demand.parts:
            names = names_of_parts.setdefault(part.kind, set())
            names.update(name for name, _ in part.amounts)

    parts: dict[Hashable, Mapping[Hashable, Numbers]] = {}
    for kind, names in names_of_parts.items():
        if kind == CELLS:
            parts[kind] = _free_on_cells(hosts, names)
        else:
            parts[kind] = {kind: _free_devices(hosts, kind, candidates)}
    return FreeCapacity(len(hosts), amounts, parts)


def _free_devices(
    hosts: Sequence[Host], kind: Hashable, candidates: Candidates | None
) -> Numbers:
    """The free amounts of the devices of a kind on each host."""
    if candidates is None:
        return np.zeros((len(hosts), 0))
    return candidates.devices_left([host.uuid for host in hosts], str(kind))


def _free_amounts(hosts: Sequence[Host], name: Hashable) -> Numbers:
    """The free amount of a resource on each host, overcommit included."""
    free: list[float] = []
    if name == VCPU:
        for host in hosts:
            total, used = host.floating_vcpus
            free.append(total - used)
    elif name == MEMORY_MB:
        free = [host.free_ram_mb for host in hosts]
    else:
        free = [host.free_disk_mb for host in hosts]
    return np.array(free, np.float64)


def _free_on_cells(
    hosts: Sequence[Host], names: Iterable[Hashable]
) -> Mapping[Hashable, Numbers]:
    """The free amounts of resources on each NUMA cell of each host: dedicated CPUs, or
    pages of a size in KiB."""
    # Hosts with equal cells share a topology.
    topologies: list[HostTopology] = []
    number_of: dict[int, int] = {}
    numbers = []
    for host in hosts:
        topology = host.numa_topology or NO_CELLS
        number = number_of.setdefault(id(topology), len(topologies))
        if number == len(topologies):
            topologies.append(topology)
        numbers.append(number)

    counts = [len(topology.cells) for topology in topologies]
    rows = np.repeat(np.arange(len(topologies)), counts)
    columns = np.fromiter(chain.from_iterable(map(range, counts)), np.intp)
    width = max(counts, default=0)
    free = {}
    for name in names:
        table = np.zeros((len(topologies), width))
        if name == PCPU:
            packed = b''.join([topology.packed_capacities for topology in topologies])
            table[rows, columns] = np.frombuffer(packed, CELL_CAPACITY)['pinnable']
        elif isinstance(name, int):
            table[rows, columns] = _free_pages(topologies, name)
        free[name] = table[np.array(numbers, np.intp)]
    return free


def _free_pages(topologies: Sequence[HostTopology], size_kb: int) -> list[int]:
    """The free pages of a size on each cell of some topologies."""
    free: list[int] = []
    for topology in topologies:
        on_cells = topology.free_pages.get(size_kb)
        if on_cells is None:
            on_cells = (0,) * len(topology.cells)
        free += on_cells
    return free
