# SPDX-License-Identifier: Apache-2.0
"""How many of a flavor's vCPUs are pinned: Placement counts them as PCPU.

nova-api checks extra specs and image properties when a server is made or resized; what
contradicts itself here all the same is refused, as nova does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from novasched.errors import NoValidHost
from novasched.model.request import Flavor, Image
from novasched.model.texts import MOST_CPUS, cpu_set, is_true

DEDICATED, MIXED, SHARED = 'dedicated', 'mixed', 'shared'
POLICIES = (DEDICATED, MIXED, SHARED)
CONTRADICTIONS = ((MIXED, DEDICATED), (SHARED, MIXED), (SHARED, DEDICATED))
"""Policies of a flavor and of an image that do not go together."""

THREAD_POLICIES = {'prefer': None, 'isolate': 'forbidden', 'require': 'required'}
EMULATOR_POLICIES = ('share', 'isolate')


@dataclass(frozen=True, slots=True)
class Pinning:
    """How a flavor's CPUs divide: ``pcpus`` pinned ones, ``vcpus`` that float."""

    policy: str
    pcpus: int
    vcpus: int


def pinning(flavor: Flavor, image: Image | None) -> Pinning | None:
    """The pinned CPUs of ``hw:cpu_policy`` or ``hw_cpu_policy``; None without any.

    ``hw:emulator_threads_policy=isolate`` takes one more of them.

    :raises NoValidHost: flavor and image do not go together, or name what does not exist.
    """
    policy = _policy(flavor, image)
    emulator = flavor.extra_specs.get('hw:emulator_threads_policy')
    _check('hw:emulator_threads_policy', emulator, EMULATOR_POLICIES)
    if policy == DEDICATED:
        pinned = flavor.vcpus
    elif policy == MIXED:
        pinned = len(dedicated_cpus(flavor, image))
    else:
        return None
    return Pinning(policy, pinned + (emulator == 'isolate'), flavor.vcpus - pinned)


def smt_trait(flavor: Flavor, image: Image | None) -> str | None:
    """'required' or 'forbidden' where the thread policy needs SMT on or off.

    :raises NoValidHost: flavor and image do not go together, or name what does not exist.
    """
    wanted = flavor.extra_specs.get('hw:cpu_thread_policy')
    of_image = _property(image, 'hw_cpu_thread_policy')
    _check('hw:cpu_thread_policy', wanted, THREAD_POLICIES)
    _check('hw_cpu_thread_policy', of_image, THREAD_POLICIES)
    if wanted not in (None, 'prefer') and of_image and of_image != wanted:
        raise NoValidHost(f'The image may not change hw:cpu_thread_policy {wanted} to {of_image}.')
    return THREAD_POLICIES[wanted or of_image or 'prefer']


def _policy(flavor: Flavor, image: Image | None) -> str | None:
    """The flavor's policy comes first; an image may only add where it has none."""
    wanted = flavor.extra_specs.get('hw:cpu_policy')
    of_image = _property(image, 'hw_cpu_policy')
    _check('hw:cpu_policy', wanted, POLICIES)
    _check('hw_cpu_policy', of_image, POLICIES)
    if (wanted, of_image) in CONTRADICTIONS:
        raise NoValidHost(f'The image may not change hw:cpu_policy {wanted} to {of_image}.')
    return wanted or of_image


def dedicated_cpus(flavor: Flavor, image: Image | None) -> set[int]:
    """The guest CPUs of a mixed flavor that are pinned: its mask, or the realtime one."""
    specs = flavor.extra_specs
    if flavor.vcpus > MOST_CPUS:
        raise NoValidHost(f'No host has {flavor.vcpus} CPUs.')
    every = set(range(flavor.vcpus))
    dedicated = _masked('hw:cpu_dedicated_mask', specs.get('hw:cpu_dedicated_mask'), every)
    if dedicated == every:
        raise NoValidHost('hw:cpu_dedicated_mask leaves no vCPU unpinned.')
    realtime = None
    if is_true(specs.get('hw:cpu_realtime')):
        mask = _property(image, 'hw_cpu_realtime_mask') or specs.get('hw:cpu_realtime_mask')
        realtime = _masked('hw:cpu_realtime_mask', mask, every) or every
        if realtime == every and not specs.get('hw:emulator_threads_policy'):
            raise NoValidHost('hw:cpu_realtime_mask leaves no vCPU for emulator threads.')
    return dedicated or realtime or set()


def _masked(name: str, mask: str | None, every: set[int]) -> set[int] | None:
    """The CPUs of a mask, of which some may be left out of all; None without a mask."""
    if not mask:
        return None
    if mask.strip().startswith('^'):
        mask = f'0-{len(every) - 1},{mask}'
    try:
        chosen = cpu_set(mask)
    except ValueError as error:
        raise NoValidHost(f'{name}: {error}.') from None
    if not chosen or not chosen <= every:
        raise NoValidHost(f'{name} {mask} names none of {len(every)} vCPUs, or more than these.')
    return chosen


def _check(name: str, value: str | None, valid: Collection[str]) -> None:
    if value and value not in valid:
        raise NoValidHost(f'{name} is {value}, not one of {", ".join(valid)}.')


def _property(image: Image | None, name: str) -> str | None:
    value = image.properties.get(name) if image else None
    return str(value) if value else None
