# SPDX-License-Identifier: Apache-2.0
"""TraitsWeigher: preferred and avoided traits of flavors, and the traits of
``[novasched] avoided_traits``."""

from collections.abc import Sequence

from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.requirements import Requirements
from novasched.scheduler.weighers import CandidatesWeigher, Scope


class TraitsWeigher(CandidatesWeigher):
    """Weigh a host by the preferred traits of its compute node's resource provider,
    less the avoided traits.

    A flavor has ``trait:X=preferred`` or ``trait:X=avoided``, and overrides the option:
    a trait of ``avoided_traits`` is not avoided if the flavor prefers the trait, or if
    flavor or image require it.
    """

    multiplier = 'traits_weight_multiplier'
    scope = Scope.HOST

    def applies(self, request: Request) -> bool:
        groups = request.requirements.flavor_groups
        if groups.preferred or groups.avoided:
            return True
        return bool(self._avoided(request.requirements))

    def weigh_offered(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> list[float]:
        # Without an answer of Placement nothing is known of traits.
        if candidates is None:
            return [0.0] * len(hosts)

        preferred = request.requirements.flavor_groups.preferred
        avoided = self._avoided(request.requirements)
        weights = []
        for host in hosts:
            traits = candidates.traits(host.uuid)
            preferred_count = len(preferred.intersection(traits))
            avoided_count = len(avoided.intersection(traits))
            weights.append(float(preferred_count - avoided_count))
        return weights

    def _avoided(self, requirements: Requirements) -> frozenset[str]:
        flavor_groups = requirements.flavor_groups
        options = self.settings.avoided_traits
        if not options:
            return flavor_groups.avoided

        # The group '' is the group of the flavor without a suffix.
        tolerated = flavor_groups.preferred | flavor_groups.groups[''].required_traits
        image_traits = requirements.properties.get('traits_required', ())
        return flavor_groups.avoided.union(options) - tolerated.union(image_traits)
