# SPDX-License-Identifier: Apache-2.0
"""Members of a group had better stay together, or keep apart."""

from collections.abc import Collection

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher


class ServerGroupSoftAffinityWeigher(Weigher):
    """Weigh hosts by the number of members of the request's group that they have."""

    multiplier = 'soft_affinity_weight_multiplier'
    scope = Scope.HOST
    policy = 'soft-affinity'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == self.policy and bool(group.members)

    def needed_instances(self, request: Request) -> Collection[str]:
        if request.instance_group:
            return request.instance_group.members
        return ()

    def weigh(self, host: Host, request: Request) -> float:
        group = request.instance_group
        if group:
            return len(host.instances.keys() & group.members)
        return 0


class ServerGroupSoftAntiAffinityWeigher(ServerGroupSoftAffinityWeigher):
    """Weigh hosts down by the number of members of the request's group that they
    have."""

    multiplier = 'soft_anti_affinity_weight_multiplier'
    policy = 'soft-anti-affinity'

    def weigh(self, host: Host, request: Request) -> float:
        return -super().weigh(host, request)
