# SPDX-License-Identifier: Apache-2.0
"""HypervisorVersionWeigher: newer hypervisors."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class HypervisorVersionWeigher(Weigher):
    """Weigh hosts by the version of their hypervisor, one number; an unknown one is 0."""

    multiplier = 'hypervisor_version_weight_multiplier'
    once_per_host = True

    def weigh(self, host: Host, request: Request) -> float:
        return host.hypervisor_version or 0
