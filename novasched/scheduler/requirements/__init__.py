# SPDX-License-Identifier: Apache-2.0
"""Requirements: the meaning of a flavor and an image, worked out once for each request.

nova-api validates extra specs and image properties when an instance is created or
resized; contradictions that arrive all the same are refused. Each part is worked out
when it is first read, so that nothing is refused for a part that no enabled filter asks
for.
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
"""Values of ``trait:`` by which hosts are weighed."""
_GROUP_KEY = re.compile(r'\A(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$')


@dataclass(frozen=True, slots=True)
class FlavorGroups:
    """Groups of the extra specs ``resources[N]:`` and ``trait[N]:`` by suffix, ''
    always among them, and warnings for the operator. Traits that hosts had better have,
    or lack, are no part of any group: Placement is not asked for them."""

    groups: Mapping[str, RequestGroup]
    policy: str | None = None
    warnings: tuple[str, ...] = ()
    preferred: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Requirements:
    """The demands that a flavor and an image make on a host.

    Any part raises NoValidHost where flavor and image contradict each other, or name
    what does not exist.
    """

    flavor: Flavor
    properties: Mapping[str, Any] = field(default_factory=lambda: NO_PROPERTIES)

    @cached_property
    def cpu_pinning(self) -> cpus.CpuPinning | None:
        """Pinned CPUs by ``hw:cpu_policy``; None without any."""
        return cpus.cpu_pinning(self.flavor, self.properties)

    @cached_property
    def hyperthreading(self) -> str | None:
        """'required' or 'forbidden' where the CPU thread policy needs SMT on or off."""
        return cpus.hyperthreading(self.flavor, self.properties)

    @cached_property
    def needs_threads(self) -> bool:
        """True if flavor or image name dedicated CPUs, and either requires threads;
        this part raises nothing."""
        specs = self.flavor.extra_specs
        properties = self.properties
        threads = (
            specs.get('hw:cpu_thread_policy'),
            properties.get('hw_cpu_thread_policy'),
        )
        policies = specs.get('hw:cpu_policy'), properties.get('hw_cpu_policy')
        return DEDICATED in policies and REQUIRE in threads

    @cached_property
    def flavor_groups(self) -> FlavorGroups:
        """The extra specs ``resources[N]:``, ``trait[N]:`` and ``group_policy``."""
        return _flavor_groups(self.flavor.extra_specs)

    @cached_property
    def feature_traits(self) -> frozenset[str]:
        """The traits that TPM, secure boot, memory encryption and the like need."""
        return features.required_traits(self.flavor, self.properties)

    @property
    def has_tpm(self) -> bool:
        """True for an instance with an emulated TPM (``hw:tpm_version``)."""
        return features.TPM_VERSION.value(self.flavor, self.properties) is not None

    @property
    def tpm_secret_security(self) -> str:
        """``hw:tpm_secret_security``, as it stands in the flavor."""
        return self.flavor.extra_specs.get('hw:tpm_secret_security') or 'user'

    @property
    def device_profile(self) -> str | None:
        """The name of Cyborg's device profile (``accel:device_profile``)."""
        return self.flavor.extra_specs.get('accel:device_profile')

    @property
    def packed_virtqueue(self) -> bool:
        """True if packed virtio rings are asked for (``hw:virtio_packed_ring``)."""
        return features.flag(self.flavor, self.properties, 'virtio_packed_ring')

    @property
    def encryption_traits(self) -> tuple[str, ...]:
        """The traits of ephemeral encryption and of its format, if one is named."""
        if not features.flag(self.flavor, self.properties, 'ephemeral_encryption'):
            return ()
        trait = features.ENCRYPTION_FORMAT.trait(self.flavor, self.properties)
        return os_traits.COMPUTE_EPHEMERAL_ENCRYPTION, *((trait,) if trait else ())

    @property
    def sound_trait(self) -> str | None:
        """The trait of a virtio sound device (``hw:sound_model``)."""
        return features.SOUND_MODEL.trait(self.flavor, self.properties)

    @property
    def device_traits(self) -> tuple[str, ...]:
        """A trait for each device model that the image names; os-traits may lack
        some."""
        return features.device_traits(self.properties)

    def request_groups(
        self, outside: Sequence[RequestGroup], is_bfv: bool, pinned: bool = True
    ) -> dict[str, RequestGroup]:
        """All groups of a query for candidates by suffix; '' is the unsuffixed one.

        :param outside: the groups of ports and device profiles.
        :param is_bfv: the root disk is a volume.
        :param pinned: pinned CPUs count as PCPU; otherwise as VCPU, for hosts that
            report no PCPU (``vcpu_pin_set``).
        :raises BadRequest: a group from outside asks for nothing or has no name of its
            own.
        """
        groups = dict(self.flavor_groups.groups)
        own = groups['']
        resources = dict(own.resources)
        required = {*own.required_traits, *self.properties.get('traits_required', ())}
        forbidden = set(own.forbidden_traits)
        if pinned:
            if self.cpu_pinning:
                resources[classes.PCPU] = self.cpu_pinning.pcpus
                if self.cpu_pinning.policy == MIXED:
                    resources[classes.VCPU] = self.cpu_pinning.vcpus
            if self.hyperthreading:
                traits = required if self.hyperthreading == 'required' else forbidden
                traits.add(os_traits.HW_CPU_HYPERTHREADING)
        for group in outside:
            if not group.requester_id or group.requester_id in groups:
                raise BadRequest(
                    f'request group without a name of its own: {group.requester_id}'
                )
            if group.is_empty and not group.resources:
                raise BadRequest(f'request group {group.requester_id} asks for nothing')
            groups[group.requester_id] = group
        named = resources.keys() | {
            name for x in groups.values() for name in x.resources
        }
        resources |= flavor_sizes(self.flavor, named, is_bfv)
        resources |= features.resources(self.flavor, self.properties)
        required |= self.feature_traits
        groups[''] = replace(
            own,
            resources=resources,
            required_traits=frozenset(required),
            forbidden_traits=frozenset(forbidden),
        )
        return groups


def flavor_sizes(
    flavor: Flavor, named: Collection[str] = (), is_bfv: bool = False
) -> dict[str, int]:
    """VCPU, MEMORY_MB and DISK_GB of a flavor, but for resource classes that are named
    already."""
    sizes = {}
    if classes.VCPU not in named and classes.PCPU not in named:
        sizes[classes.VCPU] = flavor.vcpus
    if classes.MEMORY_MB not in named:
        sizes[classes.MEMORY_MB] = flavor.memory_mb
    if classes.DISK_GB not in named:
        swap_gb = -(-flavor.swap // 1024)
        root_gb = 0 if is_bfv else flavor.root_gb
        sizes[classes.DISK_GB] = root_gb + flavor.ephemeral_gb + swap_gb
    return sizes


def _flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Read the groups; what cannot be read makes a warning."""
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
                    f"Invalid group_policy '{value}'. Valid values are 'none' and"
                    " 'isolate'."
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
                    'Only (required, forbidden) traits are supported. Received'
                    f" '{value}'."
                )
        if problem:
            warnings.append(problem)
    groups = {
        suffix: RequestGroup(
            requester_id=suffix or None,
            resources=amounts,
            required_traits=frozenset(traits[suffix, 'required']),
            forbidden_traits=frozenset(traits[suffix, 'forbidden']),
        )
        for suffix, amounts in resources.items()
    }
    wishes = [frozenset(traits['', wish]) for wish in WISHES]
    return FlavorGroups(groups, policy, tuple(warnings), *wishes)


def _add_resource(amounts: dict[str, int], name: str, value: str) -> str | None:
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
