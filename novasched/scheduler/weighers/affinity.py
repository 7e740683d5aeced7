# SPDX-License-Identifier: Apache-2.0
"""The soft policies of server groups: members together, or on different hosts.

The policies soft-affinity and soft-anti-affinity exist since compute API 2.15.
"""

from collections.abc import Collection

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher


class ServerGroupSoftAffinityWeigher(Weigher):
    """Weigh a host by the number of group members on the host."""

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
    """Weigh a host down by the number of group members on the host."""

    multiplier = 'soft_anti_affinity_weight_multiplier'
    policy = 'soft-anti-affinity'

    def weigh(self, host: Host, request: Request) -> float:
        return -super().weigh(host, request)
