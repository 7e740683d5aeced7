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
PENDING_INSTANCE_COLUMNS = (
    'uuid',
    'host',
    'node',
    'vm_state',
    'task_state',
    'instance_type_id',
    'deleted',
)
SYSTEM_METADATA_COLUMNS = ('instance_uuid', 'key', 'value')


MAX_UUID_CHARACTERS = 36


def may_be_uuid(text: str) -> bool:
    """False for a text that no column of UUIDs holds.

    Messages and scheduler hints name instances by any text, and a database may fail on
    a text instead of finding no row: MariaDB cannot compare an emoji with a column of
    nova's utf8mb3 tables (error 1267), and PostgreSQL refuses a NUL.
    """
    is_short = 0 < len(text) <= MAX_UUID_CHARACTERS
    return is_short and text.isascii() and text.isprintable()


class LazyColumn(Generic[Value]):
    """A long column of compute_nodes, needed by few requests and parsed on demand.

    Hosts with equal texts share a value, as long as a host with the text is in memory.
    An invalid text counts as absent, and the log names the first host with the text.
    """

    def __init__(
        self, column: str, parse: Callable[[str], Value], absent: Value
    ) -> None:
        self.column = column
        self.parse = parse
        self.absent = absent
        # By length and hash of the text: the texts themselves would take most of the
        # memory. Python salts its hashes, so that nobody can prepare a collision.
        self._values: WeakValueDictionary[tuple[int, int], _LazyValue[Value]]
        self._values = WeakValueDictionary()

    def of(self, row: Any) -> Callable[[], Value]:
        """A function for the value of the column in a row."""
        text = getattr(row, self.column)
        if text is None:
            return lambda: self.absent
        if isinstance(text, bytes):
            # Some drivers return a text of a binary character set undecoded.
            text = text.decode(errors='replace')

        key = len(text), hash(text)
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = _LazyValue(self, text, row.hypervisor_hostname)
        return value


class _LazyValue(Generic[Value]):
    """Holds a text until the first call, and the parsed value afterwards."""

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
                LOG.warning(
                    'Column %s of compute node %s cannot be read: %s',
                    self._column.column,
                    self._node,
                    error,
                )
            self._text = None
        return self._value


NUMA_TOPOLOGY = LazyColumn[HostTopology | None]('numa_topology', host_topology, None)
PCI_STATS = LazyColumn[Pools]('pci_stats', pools, ())

Triples = tuple[tuple[str, ...], ...]
MAX_CACHED_TRIPLES = 1000
"""Texts of ``supported_instances`` with their values in memory."""
_triples_by_text: dict[str | None, Triples] = {}


def service(row: Any, up: bool) -> Service:
    """The service of a row.

    :param up: the service has reported in time.
    """
    return Service(
        host=row.host,
        up=up and not row.forced_down,
        disabled=bool(row.disabled),
        disabled_reason=row.disabled_reason,
        version=row.version or 0,
    )


def host(row: Any, cell_uuid: str, service: Service, settings: Settings) -> Host | None:
    """A host without aggregates and instances; None until nova-compute has reported
    resources.

    :raises ValueError: the value of a column is invalid.
    """
    if row.free_disk_gb is None or row.uuid is None:
        return None

    stats = _texts(_decoded(row, 'stats', dict))
    hypervisor_version = None
    if row.hypervisor_version is not None:
        hypervisor_version = amount('hypervisor_version', row.hypervisor_version)

    def number(column: str) -> int:
        return amount(column, getattr(row, column))

    return Host(
        host=_name(row, 'host'),
        nodename=_name(row, 'hypervisor_hostname'),
        uuid=_name(row, 'uuid'),
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
        hypervisor_version=hypervisor_version,
        hypervisor_hostname=row.hypervisor_hostname,
        cpu_info=row.cpu_info and sys.intern(row.cpu_info),
        supported_instances=_supported(row),
        stats=stats,
        metrics=tuple(m for m in _decoded(row, 'metrics', list) if isinstance(m, dict)),
        numa=NUMA_TOPOLOGY.of(row),
        pci=PCI_STATS.of(row),
    )


def _free_disk_gb(row: Any) -> int:
    """Disk left free even if sparse images grow to full size: the lower of
    ``free_disk_gb`` and ``disk_available_least``, as in nova."""
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
    """Triples (architecture, hypervisor type, VM mode). Hosts with equal texts share an
    object."""
    text = row.supported_instances
    if text in _triples_by_text:
        return _triples_by_text[text]

    triples = []
    for triple in _decoded(row, 'supported_instances', list):
        if isinstance(triple, list):
            triples.append(tuple(map(canonical, SUPPORTED_TRIPLE, map(str, triple))))

    if len(_triples_by_text) >= MAX_CACHED_TRIPLES:
        _triples_by_text.clear()
    _triples_by_text[text] = tuple(triples)
    return _triples_by_text[text]


def _texts(stats: Mapping[str, Any]) -> dict[str, str | None]:
    """All statistics of a nova-compute with their values as texts, as in nova."""
    texts: dict[str, str | None] = {}
    for name, value in stats.items():
        text = None
        if value is not None:
            text = str(value)
        texts[sys.intern(name)] = text
    return texts


def _ratio(row: Any, name: str, settings: Settings) -> float:
    """The allocation ratio of a host.

    0.0 and NULL stand for the option ``*_allocation_ratio``; if the option is unset,
    too, for ``initial_*_allocation_ratio``.

    :param name: cpu, ram or disk.
    """
    option = f'{name}_allocation_ratio'
    value = getattr(row, option) or getattr(settings, option)
    ratio = float(value or getattr(settings, f'initial_{option}'))
    if not math.isfinite(ratio):
        raise ValueError(f'{option} is {ratio}')
    return ratio


def _decoded(row: Any, column: str, kind: type) -> Any:
    """The value of a JSON column. An invalid text counts as empty, with a warning.

    :param kind: the type of a valid value.
    """
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


def _name(row: Any, column: str) -> str:
    name = getattr(row, column)
    if not isinstance(name, str):
        raise ValueError(f'{column} is {reprlib.repr(name)}')
    return name
