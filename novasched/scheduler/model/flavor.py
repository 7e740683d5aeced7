# SPDX-License-Identifier: Apache-2.0
"""Flavor, image and request groups of a request, with the field names of nova."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Flavor:
    """The requested size: memory and swap in MiB, disks in GiB."""

    name: str = ''
    flavorid: str = ''
    id: int | None = None
    vcpus: int = 1
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name, or the sizes of a flavor without a name."""
        if self.name:
            return self.name
        specs = [f', {key}={value}' for key, value in self.extra_specs.items()]
        sizes = f'{self.vcpus} vCPU, {self.memory_mb} MiB, {self.root_gb} GiB'
        return f'{sizes}{"".join(specs)}'


NO_PROPERTIES: Mapping[str, Any] = {}
"""The properties of an image without properties, and of no image; a shared object."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image in Glance; ``properties`` has only properties with a value."""

    id: str | None = None
    name: str | None = None
    disk_format: str | None = None
    container_format: str | None = None
    min_ram: int = 0
    min_disk: int = 0
    size: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """A request group of a Placement query; requester_id is None if unsuffixed."""

    requester_id: str | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    required_traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    use_same_provider: bool = True
    provider_uuids: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True without a demand on the provider; an amount of 0 is no demand."""
        traits = self.required_traits or self.forbidden_traits
        aggregates = self.aggregates or self.forbidden_aggregates
        return not (any(self.resources.values()) or traits or aggregates)
