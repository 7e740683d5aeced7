# SPDX-License-Identifier: Apache-2.0
"""Members of a group had better share a failure domain, or not."""

from collections.abc import Sequence

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Weigher

SIGNS = {
    'affinity': 1,
    'soft-affinity': 1,
    'anti-affinity': -1,
    'soft-anti-affinity': -1,
}


class FailureDomainWeigher(Weigher):
    """Weigh hosts by the number of members of the request's group that are in their
    failure domain: the more the better for affinity, the fewer for anti-affinity, be
    these hard or soft.

    Hosts in no domain are in one together. An option of 0 stops the weigher whatever
    aggregates say.
    """

    locates_members = True
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
        one_of_each = {id(host.aggregates): host for host in hosts}
        known = {key: self.weigh(host, request) for key, host in one_of_each.items()}
        return [known[id(host.aggregates)] for host in hosts]
