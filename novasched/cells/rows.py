# SPDX-License-Identifier: Apache-2.0
"""Hosts and services, built from rows of compute_nodes and services."""

import json
import logging
import math
import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from novasched.conf.settings import Settings
from novasched.scheduler.model.host import Host, Service
from novasched.scheduler.model.image_properties import SUPPORTED_TRIPLE, canonical
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import Pools
from novasched.scheduler.model.values import amount
from novasched.scheduler.numa.parse import host_topology
from novasched.scheduler.pci.parse import pools

LOG = logging.getLogger('nova.scheduler.host_manager')

Value = TypeVar('Value')
COMPUTE_NODE_COLUMNS = (
    'uuid',
    'host',
    'hypervisor_hostname',
    'vcpus',
    'vcpus_used',
    'memory_mb',
    'free_ram_mb',
    'local_gb',
    'local_gb_used',
    'free_disk_gb',
    'disk_available_least',
    'hypervisor_type',
    'hypervisor_version',
    'cpu_info',
    'host_ip',
    'supported_instances',
    'metrics',
    'stats',
    'cpu_allocation_ratio',
    'ram_allocation_ratio',
    'disk_allocation_ratio',
    'numa_topology',
    'pci_stats',
)
SERVICE_COLUMNS = ('host', 'disabled', 'disabled_reason', 'forced_down', 'version')
INSTANCE_COLUMNS = ('uuid', 'host', 'project_id', 'instance_type_id')
PENDING_INSTANCE_COLUMNS = ('uuid', 'host', 'node', 'vm_state', 'task_state', 'deleted')
SYSTEM_METADATA_COLUMNS = ('instance_uuid', 'key', 'value')


class LazyColumn(Generic[Value]):
    """A long column of compute_nodes that few requests look at, parsed on demand and
    once for all hosts with the same text, which share the value for as long as one of
    them is in memory. A text that cannot be parsed counts as absent, and the log names
    the first host with it.
    """

    def __init__(
        self, column: str, parse: Callable[[str], Value], absent: Value
    ) -> None:
        self.column = column
        self.parse = parse
        self.absent = absent
        # By length and hash, which Python salts: the texts would take most of the
        # memory.
        self._values: WeakValueDictionary[tuple[int, int], _LazyValue[Value]]
        self._values = WeakValueDictionary()

    def of(self, row: Any) -> Callable[[], Value]:
        text = getattr(row, self.column)
        if text is None:
            return lambda: self.absent
        key = len(text), hash(text)
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = _LazyValue(self, text, row.hypervisor_hostname)
        return value


class _LazyValue(Generic[Value]):
    """A text until the first call, its value from then on."""

    __slots__ = ('__weakref__', '_column', '_node', '_text', '_value')

    def __init__(self, column: LazyColumn[Value], text: str, node: str) -> None:
        self._column = column
        self._text: str | None = text
        self._node = node
        self._value = column.absent

    def __call__(self) -> Value:
        text = self._text
        if text is not None:
            try:
                self._value = self._column.parse(text)
            except (ValueError, RecursionError) as error:
                name = self._column.column
                node = self._node
                LOG.warning(
                    'Column %s of compute node %s cannot be read: %s', name, node, error
                )
            self._text = None
        return self._value


NUMA_TOPOLOGY = LazyColumn[HostTopology | None]('numa_topology', host_topology, None)
PCI_STATS = LazyColumn[Pools]('pci_stats', pools, ())

Triples = tuple[tuple[str, ...], ...]
MAX_CACHED_TRIPLES = 1000
_triples_by_text: dict[str | None, Triples] = {}


def service(row: Any, up: bool) -> Service:
    """A service; ``up`` says that it has reported in time."""
    return Service(
        host=row.host,
        up=up and not row.forced_down,
        disabled=bool(row.disabled),
        disabled_reason=row.disabled_reason,
        version=row.version or 0,
    )


def host(row: Any, cell_uuid: str, service: Service, settings: Settings) -> Host | None:
    """A host without its aggregates and instances; None while its nova-compute has not
    reported any resources yet.

    :raises ValueError: a column holds no valid value.
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
        hypervisor_version=(
            None if row.hypervisor_version is None else number('hypervisor_version')
        ),
        hypervisor_hostname=row.hypervisor_hostname,
        cpu_info=row.cpu_info and sys.intern(row.cpu_info),
        supported_instances=_supported(row),
        stats=stats,
        metrics=tuple(m for m in _decoded(row, 'metrics', list) if isinstance(m, dict)),
        numa=NUMA_TOPOLOGY.of(row),
        pci=PCI_STATS.of(row),
    )


def _free_disk_gb(row: Any) -> int:
    """Disk that is free even if sparse images grow to their full size."""
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
    """Triples (architecture, hypervisor type, VM mode); one object for hosts with the
    same."""
    text = row.supported_instances
    if text not in _triples_by_text:
        if len(_triples_by_text) >= MAX_CACHED_TRIPLES:
            _triples_by_text.clear()
        triples = _decoded(row, 'supported_instances', list)
        _triples_by_text[text] = tuple(
            tuple(map(canonical, SUPPORTED_TRIPLE, map(str, triple)))
            for triple in triples
            if isinstance(triple, list)
        )
    return _triples_by_text[text]


def _texts(stats: Mapping[str, Any]) -> dict[str, str | None]:
    """Statistics as texts, as nova has them, whatever nova-compute counts in them."""
    return {
        sys.intern(name): None if value is None else str(value)
        for name, value in stats.items()
    }


def _ratio(row: Any, name: str, settings: Settings) -> float:
    """The host's ratio; 0.0 and null stand for our options, with and without
    ``initial_``."""
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
    LOG.warning(
        'Column %s of compute node %s cannot be read', column, row.hypervisor_hostname
    )
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
