# SPDX-License-Identifier: Apache-2.0
"""CPUWeigher: free vCPUs."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class CPUWeigher(Weigher):
    """Weigh hosts by the vCPUs that their allocation ratio leaves free."""

    multiplier = 'cpu_weight_multiplier'
    once_per_host = True
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.vcpus_total * host.cpu_allocation_ratio - host.vcpus_used
