# SPDX-License-Identifier: Apache-2.0
"""What the release that asks can read of an answer.

nova's services send the versions that they know and no others: a conductor that gets a newer
object asks a conductor for an older form of it, and that one does not know the object either.
A message does not name its release, but the version of its RequestSpec tells enough of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from novasched.objects import NovaObject

Version = tuple[int, ...]

NETWORKS_SINCE: Version = (1, 10)
"""The RequestSpec of Rocky, whose NUMATopologyLimits is 1.1 and may name networks."""

GENERATIONS_SINCE: Version = (1, 12)
"""The RequestSpec of Stein, whose conductor claims an alternate in whatever microversion it is
told to. Those before send no consumer generation, which Placement wants from 1.28 on."""

ZONES_SINCE: Version = (1, 13)
"""The RequestSpec of Ussuri, whose Selection is 1.1 and names the availability zone."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Whoever sent a RequestSpec of this version; (0,) for the dicts before there was one."""

    spec: Version = (0,)

    @classmethod
    def of(cls, spec: NovaObject | None) -> Reader:
        """The sender of a decoded RequestSpec, or of the dicts of 4.0."""
        return cls() if spec is None else cls(tuple(map(int, spec.VERSION.split('.'))))

    @property
    def knows_networks(self) -> bool:
        """Whether limits may be a NUMATopologyLimits 1.1; otherwise they are 1.0."""
        return self.spec >= NETWORKS_SINCE

    @property
    def sends_generations(self) -> bool:
        """Whether alternates can be claimed in the microversion that we ask in; otherwise it
        is in 1.12, in which a claim is nothing but allocations."""
        return self.spec >= GENERATIONS_SINCE

    @property
    def knows_zones(self) -> bool:
        """Whether a Selection may be 1.1; otherwise it is 1.0."""
        return self.spec >= ZONES_SINCE
