# SPDX-License-Identifier: Apache-2.0
"""NUMA cells as nova-api makes them of a flavor and an image when an instance is
created."""

import re
from collections.abc import Iterable, Iterator, Mapping
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
    """The cells; None where nothing asks for any.

    :raises BadRequest: there can be no such cells.
    :raises NoValidHost: flavor and image contradict each other.
    """
    specs = flavor.extra_specs
    policy = _policy(flavor, properties)
    size = _page_size(flavor, properties)
    number = _choice(flavor, properties, 'numa_nodes')
    pinned = policy in (DEDICATED, MIXED)
    if number is None and size is None and not pinned and not specs.get('hw:pmem'):
        return None
    dedicated = dedicated_cpus(flavor, properties) if policy == MIXED else set[int]()
    count = _whole('hw:numa_nodes', number or 1)
    if count > max(1, flavor.vcpus):
        raise BadRequest(f'{flavor.vcpus} vCPUs do not divide by {count} cells')
    cells = []
    for index, (cpus, memory) in enumerate(_divided(flavor, properties, count)):
        pinned_cpus = cpus if policy == DEDICATED else cpus & dedicated
        cells.append(
            GuestCell(
                id=index,
                cpuset=cpus - pinned_cpus,
                memory=memory,
                pcpuset=pinned_cpus,
                pagesize=size,
                cpu_policy=policy,
                cpu_thread_policy=_thread_policy(flavor, properties),
            )
        )
    return GuestTopology(tuple(cells), specs.get('hw:emulator_threads_policy'))


def _policy(flavor: Flavor, properties: Properties) -> str | None:
    """The CPU policy; an explicit amount of PCPU or VCPU is one, too."""
    for name, policy in POLICY_OF_RESOURCE.items():
        if any(
            re.fullmatch(rf'resources\d*:{name}', key) for key in flavor.extra_specs
        ):
            return policy
    if pinning := cpu_pinning(flavor, properties):
        return pinning.policy
    if _choice(flavor, properties, 'cpu_policy'):
        return SHARED
    return None


def _thread_policy(flavor: Flavor, properties: Properties) -> str | None:
    traits = [
        value for key, value in flavor.extra_specs.items() if HYPERTHREADING.match(key)
    ]
    if traits:
        return THREAD_POLICIES.get(traits[0])
    policy = _choice(flavor, properties, 'cpu_thread_policy')
    if policy is None:
        return None
    return str(policy)


def _divided(
    flavor: Flavor, properties: Properties, count: int
) -> Iterator[tuple[frozenset[int], int]]:
    """The vCPUs and the memory (MiB) of each cell: in equal parts, unless the flavor or
    the image says otherwise."""
    vcpus = flavor.vcpus
    memory_mb = flavor.memory_mb
    cpus = _by_cell('numa_cpus', flavor, properties, count)
    memory = _by_cell('numa_mem', flavor, properties, count)
    if count < 1 or (cpus[0] is None and memory[0] is None):
        if count < 1 or vcpus % count or memory_mb % count:
            raise BadRequest(
                f'{vcpus} vCPUs and {memory_mb} MiB do not divide by {count} cells'
            )
        part = vcpus // count
        for index in range(count):
            yield frozenset(range(index * part, (index + 1) * part)), memory_mb // count
        return
    if None in cpus or None in memory:
        raise BadRequest(
            'hw:numa_cpus and hw:numa_mem are needed for each cell or for none'
        )
    sets = [_cpus(index, value) for index, value in enumerate(cpus)]
    sizes = [
        _whole(f'hw:numa_mem.{index}', value) for index, value in enumerate(memory)
    ]
    if sorted(cpu for cell in sets for cpu in cell) != list(range(vcpus)):
        raise BadRequest(f'hw:numa_cpus does not name each of {vcpus} vCPUs once')
    if sum(sizes) != memory_mb:
        raise BadRequest(f'hw:numa_mem adds up to {sum(sizes)} MiB, not {memory_mb}')
    yield from zip(sets, sizes, strict=True)


def _by_cell(
    name: str, flavor: Flavor, properties: Properties, count: int
) -> list[Any]:
    """The value for each cell: a text of the flavor, or else a value of the image."""
    specs = [flavor.extra_specs.get(f'hw:{name}.{index}') for index in range(count)]
    of_image = properties.get(f'hw_{name}')
    if any(specs) or not isinstance(of_image, list) or not of_image:
        return specs
    return [*of_image, *[None] * count][:count]


def _cpus(index: int, cpus: str | Iterable[int]) -> frozenset[int]:
    try:
        return frozenset(cpu_set(cpus) if isinstance(cpus, str) else cpus)
    except ValueError as error:
        raise BadRequest(f'hw:numa_cpus.{index}: {error}') from None


def _page_size(flavor: Flavor, properties: Properties) -> int | None:
    """In KiB, or negative where it is left to the host; an image chooses where the
    flavor lets it."""
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
    """The value of the flavor, or else of the image; None where neither has one."""
    return flavor.extra_specs.get(f'hw:{name}') or properties.get(f'hw_{name}') or None


def _whole(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadRequest(f'{name} is {value}, no whole number') from None
