# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class NumInstancesWeigher(Weigher):
    """Weigh a host by the number of instances on the host."""

    multiplier = 'num_instances_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone

    def weigh(self, host: Host, request: Request) -> float:
        return host.num_instances
