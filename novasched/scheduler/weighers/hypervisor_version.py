# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class HypervisorVersionWeigher(Weigher):
    """Weigh a host by the version of its hypervisor, as nova encodes the version in a
    number. A host without a version weighs 0."""

    multiplier = 'hypervisor_version_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone

    def weigh(self, host: Host, request: Request) -> float:
        return host.hypervisor_version or 0
