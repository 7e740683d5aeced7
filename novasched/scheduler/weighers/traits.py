# SPDX-License-Identifier: Apache-2.0
"""Traits that hosts had better have, or lack: a flavor's, and those of ``[novasched]
avoided_traits``."""

from collections.abc import Sequence

from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.requirements import Requirements
from novasched.scheduler.weighers import CandidatesWeigher, Scope


class TraitsWeigher(CandidatesWeigher):
    """Weigh hosts by the number of preferred traits of their compute node's resource
    provider, less that of avoided ones.

    A flavor has ``trait:X=preferred`` or ``trait:X=avoided``. It overrides the option:
    a trait that a flavor prefers, or that flavor or image require, is not avoided for
    it.
    """

    multiplier = 'traits_weight_multiplier'
    scope = Scope.HOST

    def applies(self, request: Request) -> bool:
        wishes = request.requirements.flavor_groups
        return bool(
            wishes.preferred or wishes.avoided or self._avoided(request.requirements)
        )

    def weigh_offered(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> list[float]:
        if candidates is None:
            return [0.0] * len(hosts)
        preferred = request.requirements.flavor_groups.preferred
        avoided = self._avoided(request.requirements)
        found = [candidates.traits(host.uuid) for host in hosts]
        return [
            float(len(preferred.intersection(each)) - len(avoided.intersection(each)))
            for each in found
        ]

    def _avoided(self, requirements: Requirements) -> frozenset[str]:
        of_flavor = requirements.flavor_groups
        options = self.settings.avoided_traits
        if not options:
            return of_flavor.avoided
        tolerated = of_flavor.preferred | of_flavor.groups[''].required_traits
        of_image = requirements.properties.get('traits_required', ())
        return of_flavor.avoided.union(options) - tolerated.union(of_image)
