# SPDX-License-Identifier: Apache-2.0
"""The history of a cloud as a trace: its instances, from creation to deletion.

nova keeps the rows of deleted instances until ``nova-manage db archive_deleted_rows``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import os_traits
import sqlalchemy as sa

from novasched.cells.database import Database
from novasched.cells.flavors import flavors_of
from novasched.cells.mappings import Cell
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import UP, Host, state
from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from novasched.tools.simulate.described_cloud import DescribedCloud, Provider
from novasched.tools.simulate.trace import TraceEntry

MAX_INSTANCES = 200_000
"""Instances of a cell in a history, the newest."""
COLUMNS = (
    'uuid',
    'host',
    'node',
    'project_id',
    'instance_type_id',
    'vcpus',
    'memory_mb',
    'root_gb',
    'ephemeral_gb',
    'created_at',
    'deleted_at',
    'launched_at',
)
BEYOND_HOSTS = ('resources', 'trait', 'accel:', 'pci_passthrough:')
"""Prefixes of extra specs that ask for more than the databases tell of hosts."""


@dataclass(frozen=True, slots=True)
class PastInstance:
    """An instance that nova has built.

    :ivar key: host and node.
    :ivar disk_gb: local disks in GiB.
    :ivar ended: when the instance was deleted; None if the instance exists.
    """

    key: tuple[str, str]
    project: str | None
    flavor_id: int | None
    vcpus: int
    memory_mb: int
    disk_gb: int
    began: datetime
    ended: datetime | None


def past_instances(cells: Iterable[Cell], since: datetime) -> Sequence[PastInstance]:
    """The instances of cells that existed at a moment or came later, the oldest first.

    :raises DatabaseUnavailable: a cell does not answer.
    """
    found: list[PastInstance] = []
    for cell in cells:
        found += _read(cell.database, since)
    return sorted(found, key=lambda instance: instance.began)


def _read(database: Database, since: datetime) -> list[PastInstance]:
    def work(connection: sa.Connection) -> Sequence[sa.Row[tuple[object, ...]]]:
        columns = database.table('instances').c
        statement = (
            sa.select(*(columns[name] for name in COLUMNS))
            .where(columns.launched_at.is_not(None), columns.host.is_not(None))
            .where(sa.or_(columns.deleted_at.is_(None), columns.deleted_at >= since))
            .order_by(columns.created_at.desc())
            .limit(MAX_INSTANCES)
        )
        return connection.execute(statement).all()

    found = []
    for row in database.read(work):
        found.append(
            PastInstance(
                (row.host, row.node or row.host),
                row.project_id,
                row.instance_type_id,
                row.vcpus or 0,
                row.memory_mb or 0,
                (row.root_gb or 0) + (row.ephemeral_gb or 0),
                row.created_at or row.launched_at,
                row.deleted_at,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class History:
    """A history as a trace.

    :ivar flavors: the flavors of the trace, by the label in its entries.
    :ivar left_out: the number of instances whose flavors ask for devices or traits.
    """

    entries: Sequence[TraceEntry]
    flavors: Mapping[str, Flavor]
    left_out: int


def history_of(
    instances: Sequence[PastInstance], known: Mapping[int, Flavor], since: datetime
) -> History:
    """The history of instances. Instances from before ``since`` come at the beginning,
    in their order.

    :param known: the flavors that still exist, by id.
    """
    entries = []
    flavors: dict[str, Flavor] = {}
    left_out = 0
    for instance in instances:
        flavor = replace(
            known.get(instance.flavor_id or 0, Flavor()),
            vcpus=instance.vcpus,
            memory_mb=instance.memory_mb,
            root_gb=instance.disk_gb,
        )
        if any(key.startswith(BEYOND_HOSTS) for key in flavor.extra_specs):
            left_out += 1
            continue

        # A flavor may have had other sizes before, under the same name.
        label = flavor.label
        if flavors.setdefault(label, flavor) != flavor:
            label = replace(flavor, name='').label
            flavors[label] = flavor
        begin = max(instance.began, since)
        lifetime = None
        if instance.ended is not None:
            lifetime = max(instance.ended - begin, timedelta()).total_seconds()
        entry = TraceEntry(
            at=(begin - since).total_seconds(),
            flavor=label,
            lifetime=lifetime,
            project=instance.project,
        )
        entries.append(entry)
    return History(entries, flavors, left_out)


def flavors_in(
    instances: Iterable[PastInstance], api: Database
) -> Mapping[int, Flavor]:
    """The flavors of instances by id, as far as they still exist.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    ids = {instance.flavor_id for instance in instances}
    return flavors_of(api, sorted(number for number in ids if number is not None))


def emptied_cloud(
    hosts: Iterable[Host],
    instances: Iterable[PastInstance],
    flavors: Mapping[str, Flavor],
    aggregates: AggregateList,
) -> DescribedCloud:
    """The hosts that are up and enabled, without their instances.

    :param instances: the instances of the history. Memory and disks in use beside these
        stay in use.
    :param flavors: the flavors of the cloud by name.
    :param aggregates: the aggregates of the cloud.
    """
    on_host: dict[tuple[str, str], list[PastInstance]] = {}
    for instance in instances:
        if instance.ended is None:
            on_host.setdefault(instance.key, []).append(instance)

    empty = []
    providers = {}
    for host in hosts:
        if state(host) != UP:
            continue
        emptied = _emptied(host, on_host.get(host.key, ()))
        empty.append(emptied)
        providers[host.uuid] = [_compute_node(emptied)]
    return DescribedCloud(empty, aggregates, flavors, providers)


def _emptied(host: Host, instances: Collection[PastInstance]) -> Host:
    memory_mb = sum(instance.memory_mb for instance in instances)
    disk_mb = 1024 * sum(instance.disk_gb for instance in instances)
    topology = host.numa_topology
    if topology is not None:
        topology = HostTopology(tuple(map(_emptied_cell, topology.cells)))
    return replace(
        host,
        free_ram_mb=min(host.free_ram_mb + memory_mb, host.total_usable_ram_mb),
        free_disk_mb=host.free_disk_mb + disk_mb,
        disk_mb_used=host.disk_mb_used - disk_mb,
        vcpus_used=0,
        num_instances=0,
        num_io_ops=0,
        instances={},
        numa=lambda: topology,
    )


def _emptied_cell(cell: HostCell) -> HostCell:
    mempages = []
    for pages in cell.mempages:
        mempages.append(Pages(pages.size_kb, pages.total, 0, pages.reserved))
    return replace(
        cell,
        cpu_usage=0,
        memory_usage=0,
        pinned_cpus=frozenset(),
        mempages=tuple(mempages),
    )


def _compute_node(host: Host) -> Provider:
    """The provider of an empty host."""
    dedicated = 0
    topology = host.numa_topology
    if topology is not None:
        dedicated, _ = topology.dedicated_cpus
    capacities = {
        'VCPU': int(host.floating_vcpus[0]),
        'PCPU': dedicated,
        'MEMORY_MB': int(host.free_ram_mb * host.ram_allocation_ratio),
        'DISK_GB': int(host.free_disk_mb / 1024 * host.disk_allocation_ratio),
    }
    capacities = {name: amount for name, amount in capacities.items() if amount > 0}
    return Provider(host.uuid, host.uuid, capacities, [os_traits.OWNER_NOVA])
