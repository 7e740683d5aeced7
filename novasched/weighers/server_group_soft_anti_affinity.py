# SPDX-License-Identifier: Apache-2.0
"""ServerGroupSoftAntiAffinityWeigher: members of a group had better keep apart."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers.server_group_soft_affinity import ServerGroupSoftAffinityWeigher


class ServerGroupSoftAntiAffinityWeigher(ServerGroupSoftAffinityWeigher):
    """Weigh hosts down by how many servers of the request's group they have."""

    multiplier = 'soft_anti_affinity_weight_multiplier'
    policy = 'soft-anti-affinity'

    def weigh(self, host: Host, request: Request) -> float:
        return -super().weigh(host, request)
