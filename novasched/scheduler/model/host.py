# SPDX-License-Identifier: Apache-2.0
"""A compute node as the scheduler sees it at one moment.

The attributes have the names of nova's HostState: JSON queries, capability extra specs
and out-of-tree filters read attributes by name. A host is immutable: placing an
instance makes another host.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.flavor import NO_PROPERTIES
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import Pools
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import DISK_MB, MEMORY_MB, PCPU, VCPU

AVAILABILITY_ZONE = 'availability_zone'
UP = 'up'
DOWN = 'down'
DISABLED = 'disabled'


@dataclass(frozen=True, slots=True)
class Service:
    """The nova-compute service of a host; ``up`` is the state when it was read."""

    host: str
    up: bool = True
    disabled: bool = False
    disabled_reason: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A host aggregate with its metadata (text to text)."""

    id: int
    uuid: str | None
    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        # The metadata cannot be hashed.
        return self.id


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance on a host, with the fields that filters and weighers read."""

    uuid: str
    project_id: str | None = None
    instance_type_id: int | None = None
    image_properties: Mapping[str, Any] = field(default_factory=lambda: NO_PROPERTIES)


@dataclass(frozen=True, slots=True)
class Host:
    """A compute node: memory and used disk in MiB, total disk in GiB.

    :ivar instances: at least the instances that the request needs
        (``needed_instances`` of filters and weighers).
    :ivar numa: parses the NUMA topology when called, since few requests read the
        topology.
    :ivar pci: parses the PCI device pools when called.
    """

    host: str
    nodename: str
    uuid: str
    cell_uuid: str
    service: Service
    total_usable_ram_mb: int = 0
    free_ram_mb: int = 0
    total_usable_disk_gb: int = 0
    free_disk_mb: int = 0
    disk_mb_used: int = 0
    vcpus_total: int = 0
    vcpus_used: int = 0
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    num_instances: int = 0
    num_io_ops: int = 0
    failed_builds: int = 0
    host_ip: str | None = None
    hypervisor_type: str | None = None
    hypervisor_version: int | None = None
    hypervisor_hostname: str | None = None
    cpu_info: Any = None
    supported_instances: tuple[tuple[str, ...], ...] = ()
    stats: Mapping[str, str | None] = field(default_factory=dict)
    metrics: tuple[Mapping[str, Any], ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    instances: Mapping[str, Instance] = field(default_factory=dict)
    numa: Callable[[], HostTopology | None] = lambda: None
    pci: Callable[[], Pools] = lambda: ()

    @property
    def numa_topology(self) -> HostTopology | None:
        """The NUMA topology; None if not reported or not readable."""
        return self.numa()

    @property
    def pci_stats(self) -> Pools:
        """The free PCI devices; empty if not readable."""
        return self.pci()

    @property
    def floating_vcpus(self) -> tuple[float, int]:
        """The floating vCPUs that fit, overcommit included, and those in use. CPUs for
        pinned vCPUs alone, and the vCPUs pinned there, do not count."""
        dedicated = pinned = 0
        topology = self.numa()
        if topology is not None:
            dedicated, pinned = topology.dedicated_cpus
        total = (self.vcpus_total - dedicated) * self.cpu_allocation_ratio
        return total, self.vcpus_used - pinned

    @property
    def key(self) -> tuple[str, str]:
        """Host and node name: a nova-compute service may manage many nodes (Ironic)."""
        return self.host, self.nodename

    def metadata(self, name: str) -> frozenset[str]:
        """Return all values of a metadata key in the aggregates of the host."""
        values = set()
        for aggregate in self.aggregates:
            if name in aggregate.metadata:
                values.add(aggregate.metadata[name])
        return frozenset(values)

    def zone(self, default: str | None) -> str | None:
        """Return the availability zone of the host, or the default zone.

        nova allows at most one zone per host. If aggregates nevertheless name several
        zones, the alphabetically first zone is taken.
        """
        lists = self.metadata(AVAILABILITY_ZONE)
        if not lists:
            return default
        return min(map(str.strip, ','.join(lists).split(',')))

    def with_instance(self, request: Request) -> 'Host':
        """Return the host after the current instance of the request was placed.

        NUMA cells and PCI devices stay as they are; see
        :mod:`novasched.scheduler.fitting`.
        """
        flavor = request.flavor
        instances = dict(self.instances)
        # A request without UUIDs adds no instance: its instances have no identity.
        if request.instance_uuids and request.instance_uuid:
            uuid = request.instance_uuid
            instances[uuid] = Instance(uuid, request.project_id, flavor.id)

        # As in nova's HostState: swap is part of Placement's DISK_GB but not of the
        # free disk, and a build or a move counts as one I/O operation.
        disk_mb = (flavor.root_gb + flavor.ephemeral_gb) * 1024
        return replace(
            self,
            free_ram_mb=self.free_ram_mb - flavor.memory_mb,
            free_disk_mb=self.free_disk_mb - disk_mb,
            vcpus_used=self.vcpus_used + flavor.vcpus,
            num_instances=self.num_instances + 1,
            num_io_ops=self.num_io_ops + 1,
            instances=instances,
        )

    def without_instance(self, request: Request) -> 'Host':
        """Return the host after the current instance of the request has left: the
        inverse of :meth:`with_instance`."""
        flavor = request.flavor
        instances = dict(self.instances)
        instances.pop(request.instance_uuid or '', None)
        disk_mb = (flavor.root_gb + flavor.ephemeral_gb) * 1024
        return replace(
            self,
            free_ram_mb=self.free_ram_mb + flavor.memory_mb,
            free_disk_mb=self.free_disk_mb + disk_mb,
            vcpus_used=self.vcpus_used - flavor.vcpus,
            num_instances=self.num_instances - 1,
            num_io_ops=self.num_io_ops - 1,
            instances=instances,
        )

    def __str__(self) -> str:
        # The text of a HostState in the logs of nova.
        return (
            f'({self.host}, {self.nodename}) ram: {self.free_ram_mb}MB '
            f'disk: {self.free_disk_mb}MB io_ops: {self.num_io_ops} '
            f'instances: {self.num_instances}'
        )

    __repr__ = __str__


def state(host: Host) -> str:
    """Return the state of a host: down, disabled or up; down wins over disabled."""
    if not host.service.up:
        return DOWN
    if host.service.disabled:
        return DISABLED
    return UP


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HostView:
    """Hosts by UUID of the compute node, and the log of their changes from view to
    view. A host is the same object as long as the host does not change."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    changes: ChangeLog = UNVERSIONED

    @property
    def version(self) -> int:
        """The version of ``hosts``, which no other view with other hosts has; 0 if the
        hosts have no version."""
        return self.changes.version

    @property
    def is_shared(self) -> bool:
        """True if later views know the changes since this view: the view has a version,
        and is not for a single request."""
        return bool(self.changes.version) and not self.changes.is_branch


NO_HOSTS = HostView()


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """The hosts that were read for a request. Moments are monotonic seconds.

    :ivar view: the requested hosts.
    :ivar read_at: when reading began.
    :ivar total: number of all hosts, also of hosts outside ``hosts``; 0 if unknown.
    :ivar freed: the end of the reading that last saw a host with more free resources,
        as a new host, or with a changed service, by UUID of the compute node.
    :ivar aggregates_settled: an answer of Placement to a later query has the hosts in
        the same aggregates as the snapshot.
    :ivar minimum_version: the lowest version that a nova-compute service of any cell
        reports; 0 without services.
    :ivar located: the hosts of located instances (``Data.MEMBERS``) by UUID of the
        instance.
    :ivar everywhere: hosts of all enabled cells, if ``view`` has a subset.
    """

    view: HostView = NO_HOSTS
    read_at: float = -math.inf
    total: int = 0
    freed: Mapping[str, float] = field(default_factory=dict)
    aggregates_settled: float = -math.inf
    minimum_version: int = 0
    located: Mapping[str, Host] = field(default_factory=dict)
    everywhere: Mapping[str, Host] = field(default_factory=dict)

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The requested hosts by UUID of the compute node."""
        return self.view.hosts


@dataclass(frozen=True, slots=True)
class Selection:
    """A chosen host or an alternate, as the caller gets it.

    :ivar candidate: None if Placement was not queried: for a rebuild in place, or for
        a caller that claims by itself.
    :ivar limits: go to nova-compute unchanged.
    """

    compute_node_uuid: str
    service_host: str
    nodename: str
    cell_uuid: str
    availability_zone: str | None = None
    candidate: Candidate | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        host: Host,
        candidate: Candidate | None,
        default_zone: str | None,
        limits: Mapping[str, Any],
    ) -> 'Selection':
        """Make the selection of a host."""
        return cls(
            compute_node_uuid=host.uuid,
            service_host=host.host,
            nodename=host.nodename,
            cell_uuid=host.cell_uuid,
            availability_zone=host.zone(default_zone),
            candidate=candidate,
            limits=limits,
        )


ATTRIBUTES = frozenset(attribute.name for attribute in fields(Host)) - {'numa', 'pci'}
"""The attributes that JSON queries and extra specs may name."""

uuid_of: Callable[[Host], str] = attrgetter('uuid')
"""The UUID of a compute node."""


def capacity_of(hosts: Iterable[Host]) -> Mapping[Hashable, float]:
    """The capacity of hosts, overcommit included, in the names and units of
    :class:`novasched.scheduler.model.usual_guests.UsualGuests`."""
    capacity: defaultdict[Hashable, float] = defaultdict(float)
    for host in hosts:
        capacity[VCPU] += host.floating_vcpus[0]
        capacity[MEMORY_MB] += host.total_usable_ram_mb * host.ram_allocation_ratio
        disk_mb = host.total_usable_disk_gb * 1024
        capacity[DISK_MB] += disk_mb * host.disk_allocation_ratio
        topology = host.numa_topology
        for cell in topology.cells if topology else ():
            capacity[PCPU] += len(cell.pcpuset)
            for pages in cell.mempages:
                capacity[pages.size_kb] += pages.total - pages.reserved
    return dict(capacity)
