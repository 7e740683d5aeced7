# SPDX-License-Identifier: Apache-2.0
"""CPU policies: a flavor's pinned vCPUs, which Placement counts as PCPU, and their
threads."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.numa import (
    DEDICATED,
    ISOLATE,
    MIXED,
    PREFER,
    REQUIRE,
    SHARED,
)
from novasched.scheduler.model.values import MAX_CPUS, cpu_set, is_true

POLICIES = (DEDICATED, MIXED, SHARED)
CONTRADICTIONS = ((MIXED, DEDICATED), (SHARED, MIXED), (SHARED, DEDICATED))
"""Policies of a flavor and of an image that do not go together."""

HYPERTHREADING = {PREFER: None, ISOLATE: 'forbidden', REQUIRE: 'required'}
EMULATOR_POLICIES = ('share', ISOLATE)


@dataclass(frozen=True, slots=True)
class CpuPinning:
    """The division of a flavor's CPUs: ``pcpus`` pinned ones, ``vcpus`` that float."""

    policy: str
    pcpus: int
    vcpus: int


def cpu_pinning(flavor: Flavor, properties: Mapping[str, Any]) -> CpuPinning | None:
    """The pinned CPUs of ``hw:cpu_policy`` or ``hw_cpu_policy``; None without any.

    The flavor's policy comes first; an image may only add one where the flavor has
    none. ``hw:emulator_threads_policy=isolate`` takes one more of them.

    :raises NoValidHost: flavor and image contradict each other, or name what does not
        exist.
    """
    policy = flavor.extra_specs.get('hw:cpu_policy')
    of_image = _text(properties, 'hw_cpu_policy')
    _check('hw:cpu_policy', policy, POLICIES)
    _check('hw_cpu_policy', of_image, POLICIES)
    if (policy, of_image) in CONTRADICTIONS:
        raise NoValidHost(
            f'The image may not change hw:cpu_policy {policy} to {of_image}.'
        )
    policy = policy or of_image
    emulator = flavor.extra_specs.get('hw:emulator_threads_policy')
    _check('hw:emulator_threads_policy', emulator, EMULATOR_POLICIES)
    if policy == DEDICATED:
        pinned = flavor.vcpus
    elif policy == MIXED:
        pinned = len(dedicated_cpus(flavor, properties))
    else:
        return None
    return CpuPinning(policy, pinned + (emulator == ISOLATE), flavor.vcpus - pinned)


def hyperthreading(flavor: Flavor, properties: Mapping[str, Any]) -> str | None:
    """'required' or 'forbidden' where the thread policy needs SMT on or off.

    :raises NoValidHost: flavor and image contradict each other, or name what does not
        exist.
    """
    policy = flavor.extra_specs.get('hw:cpu_thread_policy')
    of_image = _text(properties, 'hw_cpu_thread_policy')
    _check('hw:cpu_thread_policy', policy, HYPERTHREADING)
    _check('hw_cpu_thread_policy', of_image, HYPERTHREADING)
    if policy not in (None, PREFER) and of_image and of_image != policy:
        raise NoValidHost(
            f'The image may not change hw:cpu_thread_policy {policy} to {of_image}.'
        )
    return HYPERTHREADING[policy or of_image or PREFER]


def dedicated_cpus(flavor: Flavor, properties: Mapping[str, Any]) -> set[int]:
    """The guest CPUs of a mixed flavor that are pinned: its mask, or the realtime
    one."""
    specs = flavor.extra_specs
    if flavor.vcpus > MAX_CPUS:
        raise NoValidHost(f'No host has {flavor.vcpus} CPUs.')
    every = set(range(flavor.vcpus))
    dedicated = _masked(
        'hw:cpu_dedicated_mask', specs.get('hw:cpu_dedicated_mask'), every
    )
    if dedicated == every:
        raise NoValidHost('hw:cpu_dedicated_mask leaves no vCPU unpinned.')
    realtime = None
    if is_true(specs.get('hw:cpu_realtime')):
        mask = _text(properties, 'hw_cpu_realtime_mask') or specs.get(
            'hw:cpu_realtime_mask'
        )
        realtime = _masked('hw:cpu_realtime_mask', mask, every) or every
        if realtime == every and not specs.get('hw:emulator_threads_policy'):
            raise NoValidHost(
                'hw:cpu_realtime_mask leaves no vCPU for emulator threads.'
            )
    return dedicated or realtime or set()


def _masked(name: str, mask: str | None, every: set[int]) -> set[int] | None:
    """The CPUs of a mask, which may also say which of all to leave out; None without
    one."""
    if not mask:
        return None
    if mask.strip().startswith('^'):
        mask = f'0-{len(every) - 1},{mask}'
    try:
        chosen = cpu_set(mask)
    except ValueError as error:
        raise NoValidHost(f'{name}: {error}.') from None
    if not chosen or not chosen <= every:
        raise NoValidHost(
            f'{name} {mask} names none of {len(every)} vCPUs, or more than these.'
        )
    return chosen


def _check(name: str, value: str | None, valid: Collection[str]) -> None:
    if value and value not in valid:
        raise NoValidHost(f'{name} is {value}, not one of {", ".join(valid)}.')


def _text(properties: Mapping[str, Any], name: str) -> str | None:
    value = properties.get(name)
    if value:
        return str(value)
    return None
