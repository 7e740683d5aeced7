# SPDX-License-Identifier: Apache-2.0
"""The usual guests of a cloud: the flavors of its instances, with their numbers."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from novasched.scheduler.model.flavor import Flavor

VCPU = 'VCPU'
PCPU = 'PCPU'
MEMORY_MB = 'MEMORY_MB'
DISK_MB = 'DISK_MB'


@dataclass(frozen=True, slots=True)
class UsualGuest:
    """A flavor, and the number of instances with the flavor."""

    flavor: Flavor
    number: int


# Compared by identity: the extra specs of flavors cannot be hashed.
@dataclass(frozen=True, slots=True, eq=False)
class UsualGuests:
    """The most frequent guests of a cloud; the same object until other guests are
    read.

    :ivar capacity: the capacity of all hosts when the guests were read, overcommit
        included: :data:`VCPU` without CPUs for pinned vCPUs alone, :data:`PCPU`,
        :data:`MEMORY_MB`, :data:`DISK_MB`, and the number of pages by size in KiB.
    """

    guests: tuple[UsualGuest, ...] = ()
    capacity: Mapping[Hashable, float] = field(default_factory=dict)


NO_USUAL_GUESTS = UsualGuests()
"""The usual guests of a cloud without instances."""
