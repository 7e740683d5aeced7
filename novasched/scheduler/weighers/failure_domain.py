# SPDX-License-Identifier: Apache-2.0
"""FailureDomainWeigher: group members in the same failure domain, or in different ones.

``[novasched] failure_domain_key`` names the aggregate metadata key of failure domains.
"""

from collections.abc import Sequence

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Data, Weigher

SIGNS = {
    'affinity': 1,
    'soft-affinity': 1,
    'anti-affinity': -1,
    'soft-anti-affinity': -1,
}
"""By group policy: 1 prefers the failure domains of members, -1 avoids them."""


class FailureDomainWeigher(Weigher):
    """Weigh a host by the number of group members in the failure domain of the host.

    More members weigh more for affinity and soft affinity, and less for anti-affinity
    and soft anti-affinity. All hosts outside of failure domains count as one domain. An
    option of 0 disables the weigher, regardless of aggregate metadata.
    """

    reads = frozenset({Data.MEMBERS})
    multiplier = 'failure_domain_weight_multiplier'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return self.default_scale != 0.0 and group is not None and group.policy in SIGNS

    def weigh(self, host: Host, request: Request) -> float:
        group = request.instance_group
        if group is None:
            return 0.0
        near = group.members_near(host, self.settings.failure_domain_key)
        return float(SIGNS[group.policy or ''] * near)

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        # Hosts in the same aggregates share one tuple of aggregates, so that members
        # are counted once for each tuple and not for each host.
        weights: dict[int, float] = {}
        for host in hosts:
            identity = id(host.aggregates)
            if identity not in weights:
                weights[identity] = self.weigh(host, request)
        return [weights[id(host.aggregates)] for host in hosts]
