# SPDX-License-Identifier: Apache-2.0
"""Parse the NUMA topology of a compute host, from ``compute_nodes.numa_topology``.

Since Liberty the text is a versioned object as JSON; before Liberty the text was plain
JSON. Memory is in MiB, page sizes are in KiB.

Thousands of hosts report texts that differ in usage, while CPUs and cores are equal for
all hosts of a model. So the first decoder leaves the lists of CPUs as raw JSON. A list
is parsed once, and all hosts with the same list share the result.
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
CACHE_SIZE = 4096
"""Number of distinct lists of CPUs, of cores and of pages to remember."""

Data = TypeVar('Data')


class _Object(Struct, Generic[Data]):
    """A versioned object. Only the name and version of the topology are checked."""

    data: Data = field(name='nova_object.data')


class _Pages(Struct):
    """NUMAPagesTopology 1.x; 1.1 added ``reserved``."""

    size_kb: Size
    total: Amount
    used: Amount = 0
    reserved: Amount = 0


class _Networks(Struct):
    """NetworkMetadata 1.x."""

    physnets: list[str] = []
    tunneled: bool = False


_EMPTY_LIST = Raw(b'[]')
_NULL = Raw(b'null')


class _Cell(Struct):
    """NUMACell 1.x: 1.1 added pinned_cpus and siblings, 1.2 mempages, 1.3
    network_metadata, 1.4 pcpuset, 1.5 socket."""

    id: int
    cpuset: Raw
    memory: Amount
    cpu_usage: Amount = 0
    memory_usage: Amount = 0
    pinned_cpus: Raw = _EMPTY_LIST
    siblings: Raw = _EMPTY_LIST
    mempages: list[_Object[_Pages]] = []
    network_metadata: _Object[_Networks] | None = None
    pcpuset: Raw = _NULL
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
    """A cell before Liberty, with CPUs like ``'0-3,8'``."""

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
    """Parse the text of a topology.

    :raises ValueError: the text is empty, is no topology, or has an unknown version;
        the message says the reason in one line.
    """
    if not text.strip():
        raise ValueError('it is empty')

    cells = []
    try:
        if '"nova_object.data"' in text:
            for cell in _versioned(text).cells:
                cells.append(_cell(cell.data))
        else:
            for old_cell in _OLD.decode(text).cells:
                cells.append(_old_cell(old_cell))
    except RecursionError:
        raise ValueError('it is nested too deeply') from None

    if not cells:
        raise ValueError('it has no cells')
    ids = [cell.id for cell in cells]
    if len(set(ids)) < len(ids):
        raise ValueError(f'cells have the same id: {ids}')
    return HostTopology(tuple(cells))


def _versioned(text: str) -> _Topology:
    """Decode a versioned object; unknown fields of newer minor versions are ignored."""
    try:
        topology = _OBJECT.decode(text)
    except msgspec.ValidationError:
        # An unknown name or version says more than the field that did not fit.
        _check_version(msgspec.json.decode(text))
        raise

    _check_version(
        {'nova_object.name': topology.name, 'nova_object.version': topology.version}
    )
    return topology.data


def _check_version(topology: Any) -> None:
    """Check name and major version of the object; other shapes than a dict pass.

    :raises ValueError: name or version are unknown.
    """
    if not isinstance(topology, dict):
        return
    name = topology.get('nova_object.name')
    version = topology.get('nova_object.version')
    if name != 'NUMATopology' or str(version).partition('.')[0] != '1':
        raise ValueError(f'{str(name)[:40]!r} {str(version)[:40]!r} is not known')


def _cell(cell: _Cell) -> HostCell:
    networks = _Networks()
    if cell.network_metadata:
        networks = cell.network_metadata.data

    # Without pcpuset (before NUMACell 1.4, Train) all CPUs of a host can be pinned.
    cpuset = _shared_cpus(bytes(cell.cpuset))
    pcpuset = cpuset
    if cell.pcpuset != _NULL:
        pcpuset = _shared_cpus(bytes(cell.pcpuset))

    mempages = []
    for envelope in cell.mempages:
        pages = envelope.data
        mempages.append(
            _shared_pages(pages.size_kb, pages.total, pages.used, pages.reserved)
        )

    return HostCell(
        id=cell.id,
        cpuset=cpuset,
        pcpuset=pcpuset,
        memory=cell.memory,
        cpu_usage=cell.cpu_usage,
        memory_usage=cell.memory_usage,
        pinned_cpus=frozenset(_checked(_CPUS.decode(cell.pinned_cpus))),
        siblings=_shared_cores(bytes(cell.siblings)),
        mempages=tuple(mempages),
        socket=cell.socket,
        physnets=frozenset(networks.physnets),
        tunneled=networks.tunneled,
    )


@lru_cache(CACHE_SIZE)
def _shared_cpus(text: bytes) -> frozenset[int]:
    return _cpus(_CPUS.decode(text))


@lru_cache(CACHE_SIZE)
def _shared_cores(text: bytes) -> tuple[frozenset[int], ...]:
    return tuple(map(_cpus, _CORES.decode(text)))


def _cpus(cpus: Sequence[int]) -> frozenset[int]:
    """Return the CPUs as a set that iterates in the same order as the set of nova.

    nova takes the threads of a core in the order in which the set iterates.
    """
    # The order of a set depends on the order of insertion. nova copies a set, so the
    # CPUs are copied once more here.
    read = set(_checked(cpus))
    copied = set(iter(read))
    return frozenset(copied)


def _checked(cpus: Sequence[int]) -> Sequence[int]:
    """Return the CPUs if their numbers are valid.

    :raises ValueError: a number is negative or too large.
    """
    # Two numbers tell enough; a constraint of the decoder would look at each number.
    if cpus and not (min(cpus) >= 0 and max(cpus) < MAX_CPUS):
        raise ValueError(
            f'CPUs {min(cpus)} to {max(cpus)} are not within 0 to {MAX_CPUS - 1}'
        )
    return cpus


_shared_pages = lru_cache(CACHE_SIZE)(Pages)


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
