# SPDX-License-Identifier: Apache-2.0
"""A compute node as the scheduler sees it at one moment.

Attributes bear the names of nova's HostState, since JSON queries, capability extra
specs and out-of-tree filters read them by name. Placing an instance gives another host.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.flavor import NO_PROPERTIES
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import Pools
from novasched.scheduler.model.request import Request

AVAILABILITY_ZONE = 'availability_zone'
UP = 'up'
DOWN = 'down'
DISABLED = 'disabled'


@dataclass(frozen=True, slots=True)
class Service:
    """The nova-compute service behind a host; ``up`` was judged when it was read."""

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
        return self.id


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance on a host, as far as filters and weighers look at it."""

    uuid: str
    project_id: str | None = None
    instance_type_id: int | None = None
    image_properties: Mapping[str, Any] = field(default_factory=lambda: NO_PROPERTIES)


@dataclass(frozen=True, slots=True)
class Host:
    """A compute node: memory and used disk in MiB, total disk in GiB.

    ``numa`` and ``pci`` give what few requests look at, read when one does.
    ``instances`` are those that the request needs, at least (``needed_instances`` of
    filters and weighers).
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
        """The NUMA cells; None if they are not reported, or cannot be read."""
        return self.numa()

    @property
    def pci_stats(self) -> Pools:
        """The free PCI devices; none if they cannot be read."""
        return self.pci()

    @property
    def key(self) -> tuple[str, str]:
        """The name of the service and of the node: one nova-compute may run many
        nodes."""
        return self.host, self.nodename

    def metadata(self, name: str) -> frozenset[str]:
        """Every value that the host's aggregates give to a metadata key."""
        return frozenset(
            {a.metadata[name] for a in self.aggregates if name in a.metadata}
        )

    def zone(self, default: str | None) -> str | None:
        """The availability zone; a host is in one at the most."""
        lists = self.metadata(AVAILABILITY_ZONE)
        if lists:
            return min(map(str.strip, ','.join(lists).split(',')))
        return default

    def after(self, request: Request) -> 'Host':
        """The host with the request's current instance placed on it, but for NUMA cells
        and PCI devices (``fitting.py``).

        Swap counts towards Placement's DISK_GB but not here, as in nova. A move or a
        build always costs the host one I/O operation. A caller that names no instances
        has none put on the host: nothing could tell them apart.
        """
        flavor = request.flavor
        uuid = request.instance_uuid if request.instance_uuids else None
        placed = {uuid: Instance(uuid, request.project_id, flavor.id)} if uuid else {}
        return replace(
            self,
            free_ram_mb=self.free_ram_mb - flavor.memory_mb,
            free_disk_mb=self.free_disk_mb
            - (flavor.root_gb + flavor.ephemeral_gb) * 1024,
            vcpus_used=self.vcpus_used + flavor.vcpus,
            num_instances=self.num_instances + 1,
            num_io_ops=self.num_io_ops + 1,
            instances={**self.instances, **placed},
        )

    def __str__(self) -> str:
        return (
            f'({self.host}, {self.nodename}) ram: {self.free_ram_mb}MB '
            f'disk: {self.free_disk_mb}MB io_ops: {self.num_io_ops} '
            f'instances: {self.num_instances}'
        )

    __repr__ = __str__


def state(host: Host) -> str:
    """The state of a host: down, disabled or up. A disabled host that is down is
    down."""
    if not host.service.up:
        return DOWN
    if host.service.disabled:
        return DISABLED
    return UP


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Hosts by compute node UUID, and the moment when reading began (monotonic
    seconds). ``total`` counts those too that are left out; 0 where it is not known.
    ``freed`` is when hosts were seen to have more left than before, or to have come, or
    their services to have changed. If Placement is asked after ``aggregates_settled``
    (monotonic seconds), its answer has the hosts in the same aggregates as this
    snapshot. ``minimum_version`` is the least that a nova-compute of any cell reports,
    0 if none does. ``located`` are the hosts of the instances that were to be located,
    by the UUIDs of these; ``everywhere`` are hosts of all enabled cells, where
    ``hosts`` are but some."""

    hosts: Mapping[str, Host]
    read_at: float = -math.inf
    total: int = 0
    freed: Mapping[str, float] = field(default_factory=dict)
    aggregates_settled: float = -math.inf
    minimum_version: int = 0
    located: Mapping[str, Host] = field(default_factory=dict)
    everywhere: Mapping[str, Host] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selection:
    """A chosen host, or an alternate to it: the answer to a request.

    ``candidate`` is None where Placement was not asked (a rebuild in place, a caller
    that claims by itself). Limits go to the compute host unchanged.
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
        """The selection that names ``host``."""
        return cls(
            compute_node_uuid=host.uuid,
            service_host=host.host,
            nodename=host.nodename,
            cell_uuid=host.cell_uuid,
            availability_zone=host.zone(default_zone),
            candidate=candidate,
            limits=limits,
        )


ATTRIBUTES = frozenset(each.name for each in fields(Host)) - {'numa', 'pci'}
"""The attributes that requests may look at by name."""

uuid_of: Callable[[Host], str] = attrgetter('uuid')
"""The UUID of a compute node."""
