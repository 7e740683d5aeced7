# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class CPUWeigher(Weigher):
    """Weigh a host by its free vCPUs, overcommit included."""

    multiplier = 'cpu_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone
    # As in nova, weights are normalised from 0, not from the least of all hosts.
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.vcpus_total * host.cpu_allocation_ratio - host.vcpus_used
