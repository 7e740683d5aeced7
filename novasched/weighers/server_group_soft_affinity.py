# SPDX-License-Identifier: Apache-2.0
"""ServerGroupSoftAffinityWeigher: members of a group had better stay together."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class ServerGroupSoftAffinityWeigher(Weigher):
    """Weigh hosts by how many servers of the request's group they have."""

    multiplier = 'soft_affinity_weight_multiplier'
    once_per_host = True
    policy = 'soft-affinity'
    reads_instances = True

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == self.policy and bool(group.members)

    def weigh(self, host: Host, request: Request) -> float:
        group = request.instance_group
        return len(host.instances.keys() & group.members) if group else 0
