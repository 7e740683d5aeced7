# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of a guest, by the rules of nova-api for flavor and image.

nova-api makes the cells when an instance is created; the simulator and the sandbox make
the cells here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.numa import (
    ANY_PAGES,
    DEDICATED,
    ISOLATE,
    LARGE_PAGES,
    MIXED,
    REQUIRE,
    SHARED,
    SMALL_PAGES,
    GuestCell,
    GuestTopology,
)
from novasched.scheduler.model.values import cpu_set
from novasched.scheduler.requirements.cpus import cpu_pinning, dedicated_cpus

PAGES = {'small': SMALL_PAGES, 'large': LARGE_PAGES, 'any': ANY_PAGES}
UNITS_KIB = {
    '': 1,
    'K': 1,
    'KB': 1,
    'KIB': 1,
    'M': 1024,
    'MB': 1024,
    'MIB': 1024,
    'G': 1024**2,
    'GB': 1024**2,
    'GIB': 1024**2,
}
POLICY_OF_RESOURCE = {'PCPU': DEDICATED, 'VCPU': SHARED}
HYPERTHREADING = re.compile(r'\Atrait\d*:HW_CPU_HYPERTHREADING$')
THREAD_POLICIES = {'forbidden': ISOLATE, 'required': REQUIRE}

MAX_SIZE_DIGITS = 18

Properties = Mapping[str, Any]


def topology(flavor: Flavor, properties: Properties) -> GuestTopology | None:
    """Return the cells of the guest, None if neither flavor nor image ask for cells.

    :raises BadRequest: cells are impossible.
    :raises NoValidHost: flavor and image contradict each other.
    """
    specs = flavor.extra_specs
    policy = _policy(flavor, properties)
    pagesize = _page_size(flavor, properties)
    number = _choice(flavor, properties, 'numa_nodes')
    is_pinned = policy in (DEDICATED, MIXED)
    # Pinned CPUs, a page size and persistent memory need a cell even without
    # hw:numa_nodes, as in nova.
    needs_cell = is_pinned or pagesize is not None or specs.get('hw:pmem')
    if number is None and not needs_cell:
        return None

    dedicated: set[int] = set()
    if policy == MIXED:
        dedicated = dedicated_cpus(flavor, properties)
    count = _whole('hw:numa_nodes', number or 1)
    if count > max(1, flavor.vcpus):
        raise BadRequest(f'{flavor.vcpus} vCPUs do not divide by {count} cells')

    cells = []
    for index, (cpus, memory) in enumerate(_divided(flavor, properties, count)):
        pinned_cpus = cpus & dedicated
        if policy == DEDICATED:
            pinned_cpus = cpus
        cells.append(
            GuestCell(
                id=index,
                cpuset=cpus - pinned_cpus,
                memory=memory,
                pcpuset=pinned_cpus,
                pagesize=pagesize,
                cpu_policy=policy,
                cpu_thread_policy=_thread_policy(flavor, properties),
            )
        )
    return GuestTopology(tuple(cells), specs.get('hw:emulator_threads_policy'))


def _policy(flavor: Flavor, properties: Properties) -> str | None:
    """Return the CPU policy; ``resources:PCPU`` or ``resources:VCPU`` imply a
    policy."""
    for name, policy in POLICY_OF_RESOURCE.items():
        for key in flavor.extra_specs:
            if re.fullmatch(rf'resources\d*:{name}', key):
                return policy

    if pinning := cpu_pinning(flavor, properties):
        return pinning.policy
    if _choice(flavor, properties, 'cpu_policy'):
        return SHARED
    return None


def _thread_policy(flavor: Flavor, properties: Properties) -> str | None:
    """Return the thread policy; a trait HW_CPU_HYPERTHREADING implies a policy."""
    for key, value in flavor.extra_specs.items():
        if HYPERTHREADING.match(key):
            return THREAD_POLICIES.get(value)

    policy = _choice(flavor, properties, 'cpu_thread_policy')
    if policy is None:
        return None
    return str(policy)


def _divided(
    flavor: Flavor, properties: Properties, count: int
) -> Iterator[tuple[frozenset[int], int]]:
    """Yield the vCPUs and the memory (MiB) of each cell.

    The parts are equal unless the flavor or the image has ``numa_cpus`` and
    ``numa_mem`` for each cell.

    :raises BadRequest: the vCPUs or the memory cannot be divided.
    """
    vcpus = flavor.vcpus
    memory_mb = flavor.memory_mb
    cpus_by_cell = _by_cell('numa_cpus', flavor, properties, count)
    memory_by_cell = _by_cell('numa_mem', flavor, properties, count)

    if count < 1 or (cpus_by_cell[0] is None and memory_by_cell[0] is None):
        if count < 1 or vcpus % count or memory_mb % count:
            raise BadRequest(
                f'{vcpus} vCPUs and {memory_mb} MiB do not divide by {count} cells'
            )
        cell_vcpus = vcpus // count
        for index in range(count):
            first = index * cell_vcpus
            yield frozenset(range(first, first + cell_vcpus)), memory_mb // count
        return

    if None in cpus_by_cell or None in memory_by_cell:
        raise BadRequest(
            'hw:numa_cpus and hw:numa_mem are needed for each cell or for none'
        )

    cell_cpus = [_cpus(index, value) for index, value in enumerate(cpus_by_cell)]
    cell_memory = []
    for index, value in enumerate(memory_by_cell):
        cell_memory.append(_whole(f'hw:numa_mem.{index}', value))
    if sorted(chain.from_iterable(cell_cpus)) != list(range(vcpus)):
        raise BadRequest(f'hw:numa_cpus does not name each of {vcpus} vCPUs once')
    total = sum(cell_memory)
    if total != memory_mb:
        raise BadRequest(f'hw:numa_mem adds up to {total} MiB, not {memory_mb}')
    yield from zip(cell_cpus, cell_memory, strict=True)


def _by_cell(
    name: str, flavor: Flavor, properties: Properties, count: int
) -> list[Any]:
    """Return the values for each cell: texts of the flavor or values of the image."""
    specs = [flavor.extra_specs.get(f'hw:{name}.{index}') for index in range(count)]
    of_image = properties.get(f'hw_{name}')
    if any(specs) or not isinstance(of_image, list) or not of_image:
        return specs
    return [*of_image, *[None] * count][:count]


def _cpus(index: int, cpus: str | Iterable[int]) -> frozenset[int]:
    try:
        if isinstance(cpus, str):
            cpus = cpu_set(cpus)
        return frozenset(cpus)
    except ValueError as error:
        raise BadRequest(f'hw:numa_cpus.{index}: {error}') from None


def _page_size(flavor: Flavor, properties: Properties) -> int | None:
    """Return the page size in KiB, or a negative constant such as ANY_PAGES.

    An image may choose a size if the flavor has ``large`` or ``any``.

    :raises BadRequest: the image may not choose, or a size is invalid.
    """
    size = _size('hw:mem_page_size', flavor.extra_specs.get('hw:mem_page_size'))
    of_image = _size('hw_mem_page_size', properties.get('hw_mem_page_size'))
    if of_image is None:
        return size
    if size not in (LARGE_PAGES, ANY_PAGES):
        raise BadRequest(
            'the flavor lets no image choose a page size (hw_mem_page_size)'
        )
    return of_image


def _size(name: str, value: object) -> int | None:
    text = str(value or '').strip()
    if not text:
        return None
    if text.lower() in PAGES:
        return PAGES[text.lower()]
    match = re.fullmatch(r'(\d+)\s*([A-Za-z]*)', text)
    if match is None or len(match[1]) > MAX_SIZE_DIGITS:
        raise BadRequest(f'{name} is {text}, no size of pages')

    number = int(match[1])
    unit = UNITS_KIB.get(match[2].upper())
    if unit is None or not number:
        raise BadRequest(f'{name} is {text}, no size of pages')
    return number * unit


def _choice(flavor: Flavor, properties: Properties, name: str) -> object:
    """Return the value of the flavor or the image, None without a value."""
    return flavor.extra_specs.get(f'hw:{name}') or properties.get(f'hw_{name}') or None


def _whole(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadRequest(f'{name} is {value}, no whole number') from None
