# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class BuildFailureWeigher(Weigher):
    """Weigh a host down by its failed builds since the last successful build."""

    multiplier = 'build_failure_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone
    # As in nova, a positive value of the option keeps instances off failing hosts.
    sign = -1.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.failed_builds
