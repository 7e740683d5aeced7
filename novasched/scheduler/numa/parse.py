# SPDX-License-Identifier: Apache-2.0
"""The NUMA topology that a compute host reports, from ``compute_nodes.numa_topology``.

Since Liberty the text is a versioned object as JSON; before, it was plain JSON. Memory
is in MiB, page sizes are in KiB.

Thousands of hosts report texts that all differ, in what is used; which CPUs they have,
and on which cores, is the same for all hosts of a kind. So the lists of CPUs are left
as they stand in the text, and those that do not change are read once and shared by the
hosts that have them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from novasched.scheduler.model.values import MAX_AMOUNT, MAX_CPUS, cpu_set

Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Size = Annotated[int, Meta(ge=1, le=MAX_AMOUNT)]
KINDS = 4096
"""Of so many different lists of CPUs it is remembered what they say."""


Data = TypeVar('Data')


class _Object(Struct, Generic[Data]):
    """A versioned object; what is not asked of its name and version is left alone."""

    data: Data = field(name='nova_object.data')


class _Pages(Struct):
    """NUMAPagesTopology 1.x; 1.1 brought ``reserved``."""

    size_kb: Size
    total: Amount
    used: Amount = 0
    reserved: Amount = 0


class _Networks(Struct):
    """NetworkMetadata 1.x."""

    physnets: list[str] = []
    tunneled: bool = False


NONE = Raw(b'[]')
NULL = Raw(b'null')


class _Cell(Struct):
    """NUMACell 1.x: 1.1 brought pinned_cpus and siblings, 1.2 mempages, 1.3
    network_metadata, 1.4 pcpuset, 1.5 socket."""

    id: int
    cpuset: Raw
    memory: Amount
    cpu_usage: Amount = 0
    memory_usage: Amount = 0
    pinned_cpus: Raw = NONE
    siblings: Raw = NONE
    mempages: list[_Object[_Pages]] = []
    network_metadata: _Object[_Networks] | None = None
    pcpuset: Raw = NULL
    socket: int | None = None


class _Topology(Struct):
    cells: list[_Object[_Cell]]


class _TopologyObject(_Object[_Topology]):
    name: str = field(name='nova_object.name')
    version: str = field(name='nova_object.version')


class _OldMemory(Struct):
    total: Amount
    used: Amount = 0


class _OldCell(Struct):
    """A cell before Liberty: CPUs as in ``'0-3,8'``."""

    id: int
    cpus: str
    mem: _OldMemory
    cpu_usage: Amount = 0


class _OldTopology(Struct):
    cells: list[_OldCell]


_OBJECT = msgspec.json.Decoder(_TopologyObject)
_OLD = msgspec.json.Decoder(_OldTopology)
_CPUS = msgspec.json.Decoder(list[int])
_CORES = msgspec.json.Decoder(list[list[int]])


def host_topology(text: str) -> HostTopology:
    """The cells that the text describes.

    :raises ValueError: the text is no topology, or that of a version to come, or it is
        empty; the message says what is wrong, in one line.
    """
    if not text.strip():
        raise ValueError('it is empty')
    try:
        if '"nova_object.data"' in text:
            cells = [_cell(each.data) for each in _versioned(text).cells]
        else:
            cells = [_old_cell(each) for each in _OLD.decode(text).cells]
    except RecursionError:
        raise ValueError('it is nested too deeply') from None
    if not cells:
        raise ValueError('it has no cells')
    ids = [cell.id for cell in cells]
    if len(set(ids)) < len(ids):
        raise ValueError(f'cells have the same id: {ids}')
    return HostTopology(tuple(cells))


def _versioned(text: str) -> _Topology:
    """Minor versions add fields, and those that are not known are left alone."""
    try:
        topology = _OBJECT.decode(text)
    except msgspec.ValidationError:
        _check(msgspec.json.decode(text))
        raise
    _check({'nova_object.name': topology.name, 'nova_object.version': topology.version})
    return topology.data


def _check(topology: Any) -> None:
    """That the object, of whatever shape, is one that can be read at all.

    :raises ValueError: it is not.
    """
    if not isinstance(topology, dict):
        return
    name = topology.get('nova_object.name')
    version = topology.get('nova_object.version')
    if name != 'NUMATopology' or str(version).partition('.')[0] != '1':
        raise ValueError(f'{str(name)[:40]!r} {str(version)[:40]!r} is not known')


def _cell(cell: _Cell) -> HostCell:
    """Hosts that know no ``pcpuset`` pin any of their CPUs."""
    networks = cell.network_metadata.data if cell.network_metadata else _Networks()
    cpuset = _shared_cpus(bytes(cell.cpuset))
    return HostCell(
        id=cell.id,
        cpuset=cpuset,
        pcpuset=cpuset if cell.pcpuset == NULL else _shared_cpus(bytes(cell.pcpuset)),
        memory=cell.memory,
        cpu_usage=cell.cpu_usage,
        memory_usage=cell.memory_usage,
        pinned_cpus=frozenset(_checked(_CPUS.decode(cell.pinned_cpus))),
        siblings=_shared_cores(bytes(cell.siblings)),
        mempages=tuple(
            _shared_pages(x.data.size_kb, x.data.total, x.data.used, x.data.reserved)
            for x in cell.mempages
        ),
        socket=cell.socket,
        physnets=frozenset(networks.physnets),
        tunneled=networks.tunneled,
    )


@lru_cache(KINDS)
def _shared_cpus(text: bytes) -> frozenset[int]:
    return _cpus(_CPUS.decode(text))


@lru_cache(KINDS)
def _shared_cores(text: bytes) -> tuple[frozenset[int], ...]:
    return tuple(map(_cpus, _CORES.decode(text)))


def _cpus(cpus: Sequence[int]) -> frozenset[int]:
    """A set that gives its CPUs in the order in which nova's gives them, since threads
    of a core are taken in that order. It depends on the order in which they went in,
    and nova's set is made from another one."""
    read = set(_checked(cpus))
    copied = set(iter(read))
    return frozenset(copied)


def _checked(cpus: Sequence[int]) -> Sequence[int]:
    """The CPUs, if all are such as a host can have. The decoder would look at each."""
    if cpus and not (min(cpus) >= 0 and max(cpus) < MAX_CPUS):
        raise ValueError(
            f'CPUs {min(cpus)} to {max(cpus)} are not within 0 to {MAX_CPUS - 1}'
        )
    return cpus


_shared_pages = lru_cache(KINDS)(Pages)


def _old_cell(cell: _OldCell) -> HostCell:
    cpus = frozenset(cpu_set(cell.cpus))
    return HostCell(
        id=cell.id,
        cpuset=cpus,
        pcpuset=cpus,
        memory=cell.mem.total,
        cpu_usage=cell.cpu_usage,
        memory_usage=cell.mem.used,
    )
