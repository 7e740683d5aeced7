# SPDX-License-Identifier: Apache-2.0
"""Rows of compute_nodes and services, made into hosts."""

from __future__ import annotations

import json
import logging
import math
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from novasched.cells.reports import Report
from novasched.model.amounts import amount
from novasched.model.host import Host, Service
from novasched.model.image_properties import KINDS_OF_SERVER, canonical
from novasched.model.numa import HostTopology
from novasched.model.pci import Pools
from novasched.model.settings import Settings
from novasched.numa.parse import host_topology
from novasched.pci.parse import pools

LOG = logging.getLogger('nova.scheduler.host_manager')

COMPUTE_NODE = (
    'id', 'uuid', 'host', 'hypervisor_hostname', 'vcpus', 'vcpus_used', 'memory_mb',
    'free_ram_mb', 'local_gb', 'local_gb_used', 'free_disk_gb', 'disk_available_least',
    'hypervisor_type', 'hypervisor_version', 'cpu_info', 'host_ip', 'supported_instances',
    'metrics', 'stats', 'cpu_allocation_ratio', 'ram_allocation_ratio', 'disk_allocation_ratio',
    'numa_topology', 'pci_stats',
)  # fmt: skip
SERVICE = ('host', 'disabled', 'disabled_reason', 'forced_down', 'version')
INSTANCE = ('uuid', 'host', 'project_id', 'instance_type_id')
NUMA = Report[HostTopology | None]('numa_topology', host_topology, None)
PCI = Report[Pools]('pci_stats', pools, ())
Triples = tuple[tuple[str, ...], ...]
KINDS_OF_HOST = 1000
TEXTS = 4096
_TRIPLES: dict[str | None, Triples] = {}
SYSTEM_METADATA = ('instance_uuid', 'key', 'value')


def service(row: Any, up: bool) -> Service:
    """A service; ``up`` says that it is heard of."""
    return Service(
        host=row.host,
        up=up and not row.forced_down,
        disabled=bool(row.disabled),
        disabled_reason=row.disabled_reason,
        version=row.version or 0,
    )


def has_arrived(row: Any) -> bool:
    """Whether a server is past the moment at which nova-compute takes it off what its host
    has left: before, its host is not known, or nothing is being done to it yet. One that is
    gone, or that no host could take, is not on its way either."""
    if row.deleted or (row.host is None and row.vm_state == 'error'):
        return True
    waiting = row.vm_state == 'building' and row.task_state in (None, 'scheduling')
    return row.host is not None and not waiting


def place(row: Any) -> str | None:
    """The host that a server is on; None if it is gone."""
    host: str | None = row.host
    return None if row.deleted else host


def host(row: Any, cell_uuid: str, service: Service, settings: Settings) -> Host | None:
    """A host without its aggregates and servers; None while its nova-compute has not
    reported any resources yet.

    :raises ValueError: a column holds what makes no host.
    """
    if row.free_disk_gb is None or row.uuid is None:
        return None
    stats = _texts(_decoded(row, 'stats', dict))

    def number(column: str) -> int:
        return amount(column, getattr(row, column))

    return Host(
        host=_named(row, 'host'),
        nodename=_named(row, 'hypervisor_hostname'),
        uuid=_named(row, 'uuid'),
        cell_uuid=cell_uuid,
        service=service,
        total_usable_ram_mb=number('memory_mb'),
        free_ram_mb=number('free_ram_mb'),
        total_usable_disk_gb=number('local_gb'),
        free_disk_mb=_free_disk_gb(row) * 1024,
        disk_mb_used=number('local_gb_used') * 1024,
        vcpus_total=number('vcpus'),
        vcpus_used=number('vcpus_used'),
        cpu_allocation_ratio=_ratio(row, 'cpu', settings),
        ram_allocation_ratio=_ratio(row, 'ram', settings),
        disk_allocation_ratio=_ratio(row, 'disk', settings),
        num_instances=_number(stats, 'num_instances'),
        num_io_ops=_number(stats, 'io_workload'),
        failed_builds=_number(stats, 'failed_builds'),
        host_ip=str(row.host_ip) if row.host_ip else None,
        hypervisor_type=row.hypervisor_type,
        hypervisor_version=None if row.hypervisor_version is None else number('hypervisor_version'),
        hypervisor_hostname=row.hypervisor_hostname,
        cpu_info=_shared(row.cpu_info),
        supported_instances=_supported(row),
        stats=stats,
        metrics=tuple(m for m in _decoded(row, 'metrics', list) if isinstance(m, dict)),
        numa=NUMA.of(row),
        pci=PCI.of(row),
    )


def _free_disk_gb(row: Any) -> int:
    """What is free even if sparse images grow to their full size."""
    free = amount('free_disk_gb', row.free_disk_gb)
    if row.disk_available_least is None:
        return free
    least = amount('disk_available_least', row.disk_available_least)
    if least > free:
        LOG.warning(
            'Host %s has more disk space than database expected (%s GB > %s GB)',
            row.hypervisor_hostname,
            least,
            free,
        )
    return min(free, least)


def _supported(row: Any) -> Triples:
    """Architecture, hypervisor type and VM mode of each kind of server that can run; the same
    object for hosts that report the same."""
    text = row.supported_instances
    if text not in _TRIPLES:
        if len(_TRIPLES) >= KINDS_OF_HOST:
            _TRIPLES.clear()
        _TRIPLES[text] = _triples(_decoded(row, 'supported_instances', list))
    return _TRIPLES[text]


def _triples(supported: list[Any]) -> Triples:
    return tuple(
        tuple(canonical(kind, str(name)) for kind, name in zip(KINDS_OF_SERVER, each, strict=False))
        for each in supported
        if isinstance(each, list)
    )


@lru_cache(TEXTS)
def _shared(text: str) -> str:
    """The same text, one for all the hosts that say it."""
    return text


def _texts(stats: Mapping[str, Any]) -> dict[str, str | None]:
    """Statistics are texts, whatever nova-compute counts in them."""
    return {_shared(name): None if value is None else str(value) for name, value in stats.items()}


def _ratio(row: Any, name: str, settings: Settings) -> float:
    """The host's allocation ratio; 0.0 and null leave it to our own options."""
    option = f'{name}_allocation_ratio'
    value = getattr(row, option) or getattr(settings, option)
    ratio = float(value or getattr(settings, f'initial_{option}'))
    if not math.isfinite(ratio):
        raise ValueError(f'{option} is {ratio}')
    return ratio


def _decoded(row: Any, column: str, kind: type) -> Any:
    """A JSON column; one that is broken counts as empty, with a warning."""
    text = getattr(row, column)
    if not text:
        return kind()
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        value = None
    if isinstance(value, kind):
        return value
    LOG.warning('Column %s of compute node %s cannot be read', column, row.hypervisor_hostname)
    return kind()


def _number(stats: Mapping[str, str | None], name: str) -> int:
    try:
        return amount(name, int(stats.get(name) or 0))
    except ValueError:
        return 0


def _named(row: Any, column: str) -> str:
    name = getattr(row, column)
    if not isinstance(name, str):
        raise ValueError(f'{column} is {reprlib.repr(name)}')
    return name
