# SPDX-License-Identifier: Apache-2.0
"""CPU policies: the pinned vCPUs of a flavor (PCPU in Placement) and their threads."""

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
"""Pairs of a flavor's and an image's policy that contradict each other."""

HYPERTHREADING = {PREFER: None, ISOLATE: 'forbidden', REQUIRE: 'required'}
EMULATOR_POLICIES = ('share', ISOLATE)


@dataclass(frozen=True, slots=True)
class CpuPinning:
    """The pinned CPUs (``pcpus``) and the floating CPUs (``vcpus``) of a flavor."""

    policy: str
    pcpus: int
    vcpus: int


def cpu_pinning(flavor: Flavor, properties: Mapping[str, Any]) -> CpuPinning | None:
    """Return the pinned CPUs of ``hw:cpu_policy``, None without pinned CPUs.

    The policy of the flavor wins; an image may only add ``hw_cpu_policy`` to a flavor
    without a policy. ``hw:emulator_threads_policy=isolate`` pins one more CPU.

    :raises NoValidHost: flavor and image contradict each other, or a value does not
        exist.
    """
    flavor_policy = flavor.extra_specs.get('hw:cpu_policy')
    image_policy = _text(properties, 'hw_cpu_policy')
    _check('hw:cpu_policy', flavor_policy, POLICIES)
    _check('hw_cpu_policy', image_policy, POLICIES)
    if (flavor_policy, image_policy) in CONTRADICTIONS:
        raise NoValidHost(
            f'The image may not change hw:cpu_policy {flavor_policy} to {image_policy}.'
        )

    emulator_policy = flavor.extra_specs.get('hw:emulator_threads_policy')
    _check('hw:emulator_threads_policy', emulator_policy, EMULATOR_POLICIES)

    policy = flavor_policy or image_policy
    if policy == DEDICATED:
        pinned = flavor.vcpus
    elif policy == MIXED:
        pinned = len(dedicated_cpus(flavor, properties))
    else:
        return None
    floating = flavor.vcpus - pinned
    # Isolated emulator threads need a PCPU beside the vCPUs (spec
    # libvirt-emulator-threads-policy).
    if emulator_policy == ISOLATE:
        pinned += 1
    return CpuPinning(policy, pinned, floating)


def hyperthreading(flavor: Flavor, properties: Mapping[str, Any]) -> str | None:
    """Return 'required' or 'forbidden' if the thread policy needs SMT on or off.

    :raises NoValidHost: flavor and image contradict each other, or a value does not
        exist.
    """
    flavor_policy = flavor.extra_specs.get('hw:cpu_thread_policy')
    image_policy = _text(properties, 'hw_cpu_thread_policy')
    _check('hw:cpu_thread_policy', flavor_policy, HYPERTHREADING)
    _check('hw_cpu_thread_policy', image_policy, HYPERTHREADING)

    image_may_choose = flavor_policy in (None, PREFER)
    if not image_may_choose and image_policy and image_policy != flavor_policy:
        raise NoValidHost(
            f'The image may not change hw:cpu_thread_policy {flavor_policy} to '
            f'{image_policy}.'
        )
    return HYPERTHREADING[flavor_policy or image_policy or PREFER]


def dedicated_cpus(flavor: Flavor, properties: Mapping[str, Any]) -> set[int]:
    """Return the pinned guest CPUs of a flavor with the policy ``mixed``.

    ``hw:cpu_dedicated_mask`` names the CPUs; without this mask, the realtime CPUs are
    pinned.

    :raises NoValidHost: a mask is invalid, or leaves no floating CPU.
    """
    specs = flavor.extra_specs
    if flavor.vcpus > MAX_CPUS:
        raise NoValidHost(f'No host has {flavor.vcpus} CPUs.')
    all_cpus = set(range(flavor.vcpus))

    # nova refuses a mask of all vCPUs: a mixed instance has a floating vCPU.
    dedicated_mask = specs.get('hw:cpu_dedicated_mask')
    dedicated = _masked('hw:cpu_dedicated_mask', dedicated_mask, all_cpus)
    if dedicated == all_cpus:
        raise NoValidHost('hw:cpu_dedicated_mask leaves no vCPU unpinned.')

    realtime = None
    if is_true(specs.get('hw:cpu_realtime')):
        mask = _text(properties, 'hw_cpu_realtime_mask')
        if not mask:
            mask = specs.get('hw:cpu_realtime_mask')
        realtime = _masked('hw:cpu_realtime_mask', mask, all_cpus) or all_cpus
        if realtime == all_cpus and not specs.get('hw:emulator_threads_policy'):
            raise NoValidHost(
                'hw:cpu_realtime_mask leaves no vCPU for emulator threads.'
            )
    return dedicated or realtime or set()


def _masked(name: str, mask: str | None, all_cpus: set[int]) -> set[int] | None:
    """Return the CPUs of a mask, None without a mask.

    A mask that begins with ``^`` excludes CPUs from all CPUs.
    """
    if not mask:
        return None
    if mask.strip().startswith('^'):
        mask = f'0-{len(all_cpus) - 1},{mask}'

    try:
        masked = cpu_set(mask)
    except ValueError as error:
        raise NoValidHost(f'{name}: {error}.') from None
    if not masked or not masked <= all_cpus:
        raise NoValidHost(
            f'{name} {mask} names none of {len(all_cpus)} vCPUs, or more than these.'
        )
    return masked


def _check(name: str, value: str | None, valid: Collection[str]) -> None:
    if value and value not in valid:
        raise NoValidHost(f'{name} is {value}, not one of {", ".join(valid)}.')


def _text(properties: Mapping[str, Any], name: str) -> str | None:
    value = properties.get(name)
    if value:
        return str(value)
    return None
