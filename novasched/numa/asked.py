# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells that a flavor and an image ask for. nova-api makes them of these when a
server is made, and requests come with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from novasched.errors import BadRequest
from novasched.model.numa import (
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
from novasched.model.request import Flavor, Image
from novasched.model.texts import cpu_set
from novasched.placement.pinning import dedicated_cpus, pinning

PAGES = {'small': SMALL_PAGES, 'large': LARGE_PAGES, 'any': ANY_PAGES}
UNITS = {'': 1, 'K': 1, 'KB': 1, 'KIB': 1, 'M': 1024, 'MB': 1024, 'MIB': 1024, 'G': 1024**2,
         'GB': 1024**2, 'GIB': 1024**2}  # fmt: skip
"""In KiB."""
EXPLICIT = {'PCPU': DEDICATED, 'VCPU': SHARED}
SMT = re.compile(r'trait\d*:HW_CPU_HYPERTHREADING$')
THREADS = {'forbidden': ISOLATE, 'required': REQUIRE}


def topology(flavor: Flavor, image: Image | None) -> GuestTopology | None:
    """The cells; None where nothing asks for any.

    :raises BadRequest: what is asked cannot be.
    :raises NoValidHost: flavor and image contradict each other.
    """
    specs = flavor.extra_specs
    policy = _policy(flavor, image)
    size = _page_size(flavor, image)
    number = _choice(flavor, image, 'numa_nodes')
    pinned = policy in (DEDICATED, MIXED)
    if number is None and size is None and not pinned and not specs.get('hw:pmem'):
        return None
    dedicated = frozenset(dedicated_cpus(flavor, image)) if policy == MIXED else frozenset[int]()
    cells = []
    for place, (cpus, memory) in enumerate(
        _divided(flavor, image, _whole('hw:numa_nodes', number or 1))
    ):
        own = cpus if policy == DEDICATED else cpus & dedicated
        cells.append(
            GuestCell(
                id=place,
                cpuset=cpus - own,
                memory=memory,
                pcpuset=own,
                pagesize=size,
                cpu_policy=policy,
                cpu_thread_policy=_thread_policy(flavor, image),
            )
        )
    return GuestTopology(tuple(cells), specs.get('hw:emulator_threads_policy'))


def _policy(flavor: Flavor, image: Image | None) -> str | None:
    """An explicit amount of PCPU or VCPU is a policy, too."""
    for name, policy in EXPLICIT.items():
        if any(re.fullmatch(rf'resources\d*:{name}', key) for key in flavor.extra_specs):
            return policy
    if pins := pinning(flavor, image):
        return pins.policy
    return SHARED if _choice(flavor, image, 'cpu_policy') else None


def _thread_policy(flavor: Flavor, image: Image | None) -> str | None:
    wanted = [value for key, value in flavor.extra_specs.items() if SMT.match(key)]
    if wanted:
        return THREADS.get(wanted[0])
    policy = _choice(flavor, image, 'cpu_thread_policy')
    return None if policy is None else str(policy)


def _divided(
    flavor: Flavor, image: Image | None, number: int
) -> Iterator[tuple[frozenset[int], int]]:
    """The vCPUs and the memory (MiB) of each cell: in equal parts, unless the flavor or the
    image says otherwise."""
    vcpus, memory_mb = flavor.vcpus, flavor.memory_mb
    cpus = _by_cell('numa_cpus', flavor, image, number)
    memory = _by_cell('numa_mem', flavor, image, number)
    if number < 1 or (cpus[0] is None and memory[0] is None):
        if number < 1 or vcpus % number or memory_mb % number:
            raise BadRequest(f'{vcpus} vCPUs and {memory_mb} MiB do not divide by {number} cells')
        each = vcpus // number
        for place in range(number):
            yield frozenset(range(place * each, (place + 1) * each)), memory_mb // number
        return
    if None in cpus or None in memory:
        raise BadRequest('hw:numa_cpus and hw:numa_mem are needed for each cell or for none')
    sets = [_cpus(place, each) for place, each in enumerate(cpus)]
    sizes = [_whole(f'hw:numa_mem.{place}', text) for place, text in enumerate(memory)]
    if sorted(cpu for each in sets for cpu in each) != list(range(vcpus)):
        raise BadRequest(f'hw:numa_cpus does not name each of {vcpus} vCPUs once')
    if sum(sizes) != memory_mb:
        raise BadRequest(f'hw:numa_mem adds up to {sum(sizes)} MiB, not {memory_mb}')
    yield from zip(sets, sizes, strict=True)


def _by_cell(name: str, flavor: Flavor, image: Image | None, number: int) -> list[Any]:
    """What is said of each cell: a text by the flavor, or else a value by the image."""
    specs = [flavor.extra_specs.get(f'hw:{name}.{place}') for place in range(number)]
    of_image = _property(image, f'hw_{name}')
    if any(specs) or not isinstance(of_image, list):
        return specs
    return [*of_image, *[None] * number][:number]


def _cpus(place: int, cpus: str | Iterable[int]) -> frozenset[int]:
    try:
        return frozenset(cpu_set(cpus) if isinstance(cpus, str) else cpus)
    except ValueError as error:
        raise BadRequest(f'hw:numa_cpus.{place}: {error}') from None


def _page_size(flavor: Flavor, image: Image | None) -> int | None:
    """In KiB, or what leaves it to the host; an image chooses where the flavor lets it."""
    wanted = _size('hw:mem_page_size', flavor.extra_specs.get('hw:mem_page_size'))
    of_image = _size('hw_mem_page_size', _property(image, 'hw_mem_page_size'))
    if of_image is None:
        return wanted
    if wanted not in (LARGE_PAGES, ANY_PAGES):
        raise BadRequest('the flavor lets no image choose a page size (hw_mem_page_size)')
    return of_image


def _size(name: str, value: object) -> int | None:
    text = str(value or '').strip()
    if not text:
        return None
    if text.lower() in PAGES:
        return PAGES[text.lower()]
    match = re.fullmatch(r'(\d+)\s*([A-Za-z]*)', text)
    if match is None or match[2].upper() not in UNITS or not int(match[1]):
        raise BadRequest(f'{name} is {text}, no size of pages')
    return int(match[1]) * UNITS[match[2].upper()]


def _choice(flavor: Flavor, image: Image | None, name: str) -> object:
    """What the flavor says, or else the image; None where neither does."""
    return flavor.extra_specs.get(f'hw:{name}') or _property(image, f'hw_{name}')


def _property(image: Image | None, name: str) -> object:
    properties: Mapping[str, object] = image.properties if image else {}
    return properties.get(name) or None


def _whole(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadRequest(f'{name} is {value}, no whole number') from None
