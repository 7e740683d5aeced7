# SPDX-License-Identifier: Apache-2.0
"""Requirements: the meaning of a flavor and an image, worked out once per request.

nova-api validates extra specs and image properties when an instance is created or
resized. The scheduler refuses contradictions that arrive nevertheless. A part is worked
out on first use, so a request is not refused for a part that no enabled filter reads.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import os_resource_classes as classes
import os_traits

from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor, RequestGroup
from novasched.scheduler.model.numa import DEDICATED, MIXED, REQUIRE
from novasched.scheduler.requirements import cpus, features

WISHES = ('preferred', 'avoided')
"""Values of ``trait:`` for TraitsWeigher."""
# Placement accepts suffixes of letters, digits, _ and - since microversion 1.33.
_GROUP_KEY = re.compile(r'\A(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$')


@dataclass(frozen=True, slots=True)
class FlavorGroups:
    """Request groups of the extra specs ``resources[N]:`` and ``trait[N]:``.

    :ivar groups: the groups by suffix; always has the unsuffixed group ''.
    :ivar warnings: problems of extra specs, for the operator.
    :ivar preferred: traits with the value ``preferred``; weighed, not in the query.
    :ivar avoided: traits with the value ``avoided``; weighed, not in the query.
    """

    groups: Mapping[str, RequestGroup]
    policy: str | None = None
    warnings: tuple[str, ...] = ()
    preferred: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Requirements:
    """The demands of a flavor and an image on a host.

    Every part raises NoValidHost if flavor and image contradict each other, or if a
    value does not exist.
    """

    flavor: Flavor
    properties: Mapping[str, Any] = field(default_factory=lambda: NO_PROPERTIES)

    @cached_property
    def cpu_pinning(self) -> cpus.CpuPinning | None:
        """Pinned CPUs by ``hw:cpu_policy``; None without pinned CPUs."""
        return cpus.cpu_pinning(self.flavor, self.properties)

    @cached_property
    def hyperthreading(self) -> str | None:
        """'required' or 'forbidden' where the CPU thread policy needs SMT on or off."""
        return cpus.hyperthreading(self.flavor, self.properties)

    @cached_property
    def needs_threads(self) -> bool:
        """True if flavor or image want dedicated CPUs and require threads.

        Unlike the other parts, this part never raises NoValidHost.
        """
        # The raw values, without the checks of cpu_pinning and hyperthreading.
        specs = self.flavor.extra_specs
        properties = self.properties
        threads = (
            specs.get('hw:cpu_thread_policy'),
            properties.get('hw_cpu_thread_policy'),
        )
        policies = (specs.get('hw:cpu_policy'), properties.get('hw_cpu_policy'))
        return DEDICATED in policies and REQUIRE in threads

    @cached_property
    def flavor_groups(self) -> FlavorGroups:
        """The extra specs ``resources[N]:``, ``trait[N]:`` and ``group_policy``."""
        return _flavor_groups(self.flavor.extra_specs)

    @cached_property
    def feature_traits(self) -> frozenset[str]:
        """The traits for TPM, secure boot, memory encryption and other features."""
        return features.required_traits(self.flavor, self.properties)

    @property
    def has_tpm(self) -> bool:
        """True for an instance with an emulated TPM (``hw:tpm_version``)."""
        return features.TPM_VERSION.value(self.flavor, self.properties) is not None

    @property
    def tpm_secret_security(self) -> str:
        """``hw:tpm_secret_security`` of the flavor."""
        return self.flavor.extra_specs.get('hw:tpm_secret_security') or 'user'

    @property
    def encrypts_memory(self) -> bool:
        """True for a guest with encrypted memory (``hw:mem_encryption``).

        :raises NoValidHost: flavor and image contradict each other.
        """
        return features.flag(self.flavor, self.properties, 'mem_encryption')

    @property
    def device_profile(self) -> str | None:
        """The name of Cyborg's device profile (``accel:device_profile``)."""
        return self.flavor.extra_specs.get('accel:device_profile')

    @property
    def packed_virtqueue(self) -> bool:
        """True for packed virtio rings (``hw:virtio_packed_ring``)."""
        return features.flag(self.flavor, self.properties, 'virtio_packed_ring')

    @property
    def encryption_traits(self) -> tuple[str, ...]:
        """The traits of ephemeral encryption and of the encryption format."""
        if not features.flag(self.flavor, self.properties, 'ephemeral_encryption'):
            return ()
        trait = features.ENCRYPTION_FORMAT.trait(self.flavor, self.properties)
        if trait is None:
            return (os_traits.COMPUTE_EPHEMERAL_ENCRYPTION,)
        return (os_traits.COMPUTE_EPHEMERAL_ENCRYPTION, trait)

    @property
    def sound_trait(self) -> str | None:
        """The trait of a virtio sound device (``hw:sound_model``)."""
        return features.SOUND_MODEL.trait(self.flavor, self.properties)

    @property
    def device_traits(self) -> tuple[str, ...]:
        """A trait for each device model of the image; may not exist in os-traits."""
        return features.device_traits(self.properties)

    def request_groups(
        self, outside: Sequence[RequestGroup], is_bfv: bool, pinned: bool = True
    ) -> dict[str, RequestGroup]:
        """Return all groups of a query for candidates by suffix.

        The suffix '' is the unsuffixed group.

        :param outside: the groups of ports and device profiles.
        :param is_bfv: the root disk is a volume.
        :param pinned: request pinned CPUs as PCPU; otherwise as VCPU, for hosts that
            report no PCPU (``vcpu_pin_set``).
        :raises BadRequest: a group from outside is empty, has no name, or has the name
            of another group.
        """
        groups = dict(self.flavor_groups.groups)
        unsuffixed = groups['']
        resources = dict(unsuffixed.resources)
        required = set(unsuffixed.required_traits)
        required.update(self.properties.get('traits_required', ()))
        forbidden = set(unsuffixed.forbidden_traits)

        if pinned:
            pinning = self.cpu_pinning
            if pinning:
                resources[classes.PCPU] = pinning.pcpus
                if pinning.policy == MIXED:
                    resources[classes.VCPU] = pinning.vcpus
            if self.hyperthreading == 'required':
                required.add(os_traits.HW_CPU_HYPERTHREADING)
            elif self.hyperthreading:
                forbidden.add(os_traits.HW_CPU_HYPERTHREADING)

        for group in outside:
            name = group.requester_id
            if not name or name in groups:
                raise BadRequest(f'request group without a name of its own: {name}')
            if group.is_empty and not group.resources:
                raise BadRequest(f'request group {name} asks for nothing')
            groups[name] = group

        # VCPU, MEMORY_MB or DISK_GB in any group replace the size of the flavor.
        named = set(resources)
        for group in groups.values():
            named.update(group.resources)
        resources |= flavor_sizes(self.flavor, named, is_bfv)
        resources |= features.resources(self.flavor, self.properties)
        required |= self.feature_traits

        groups[''] = replace(
            unsuffixed,
            resources=resources,
            required_traits=frozenset(required),
            forbidden_traits=frozenset(forbidden),
        )
        return groups


def flavor_sizes(
    flavor: Flavor, named: Collection[str] = (), is_bfv: bool = False
) -> dict[str, int]:
    """Return VCPU, MEMORY_MB and DISK_GB of a flavor, without the named classes."""
    sizes = {}
    if classes.VCPU not in named and classes.PCPU not in named:
        sizes[classes.VCPU] = flavor.vcpus
    if classes.MEMORY_MB not in named:
        sizes[classes.MEMORY_MB] = flavor.memory_mb

    if classes.DISK_GB not in named:
        # Swap is in MiB, and nova rounds swap up to GiB.
        swap_gb = -(-flavor.swap // 1024)
        disk_gb = flavor.ephemeral_gb + swap_gb
        if not is_bfv:
            disk_gb += flavor.root_gb
        sizes[classes.DISK_GB] = disk_gb
    return sizes


def _flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Read the groups; an invalid extra spec becomes a warning, as in nova."""
    policy = None
    warnings = []
    resources: dict[str, dict[str, int]] = {'': {}}
    traits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, value in extra_specs.items():
        problem = None
        if key == 'group_policy':
            if value in ('none', 'isolate'):
                policy = value
            else:
                problem = (
                    f"Invalid group_policy '{value}'. Valid values are 'none' and "
                    "'isolate'."
                )
        elif match := _GROUP_KEY.match(key):
            kind = match[1]
            suffix = match[2] or ''
            name = match[3]
            amounts = resources.setdefault(suffix, {})
            if kind == 'resources':
                problem = _add_resource(amounts, name, value)
            elif value in ('required', 'forbidden') or (value in WISHES and not suffix):
                traits[suffix, value].add(name)
            else:
                problem = (
                    'Only (required, forbidden) traits are supported. Received '
                    f"'{value}'."
                )
        if problem:
            warnings.append(problem)

    groups = {}
    for suffix, amounts in resources.items():
        groups[suffix] = RequestGroup(
            requester_id=suffix or None,
            resources=amounts,
            required_traits=frozenset(traits[suffix, 'required']),
            forbidden_traits=frozenset(traits[suffix, 'forbidden']),
        )
    return FlavorGroups(
        groups,
        policy,
        tuple(warnings),
        preferred=frozenset(traits['', 'preferred']),
        avoided=frozenset(traits['', 'avoided']),
    )


def _add_resource(amounts: dict[str, int], name: str, value: str) -> str | None:
    """Add the amount of a resource class, or return a warning."""
    if not name.startswith(classes.CUSTOM_NAMESPACE) and name not in classes.STANDARDS:
        return f"Received an invalid ResourceClass '{name}' in extra_specs."

    try:
        amount = int(value)
    except ValueError:
        amount = -1
    if amount < 0:
        return f"Resource amounts must be nonnegative integers. Received '{value}'"
    amounts[name] = amount
    return None
