# SPDX-License-Identifier: Apache-2.0
"""NumInstancesWeigher: number of servers."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class NumInstancesWeigher(Weigher):
    """Weigh hosts by how many servers they have."""

    multiplier = 'num_instances_weight_multiplier'
    once_per_host = True

    def weigh(self, host: Host, request: Request) -> float:
        return host.num_instances
