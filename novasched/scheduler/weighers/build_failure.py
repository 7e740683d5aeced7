# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class BuildFailureWeigher(Weigher):
    """Weigh hosts by their failed builds since the last good one; the option counts
    down."""

    multiplier = 'build_failure_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone
    sign = -1.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.failed_builds
