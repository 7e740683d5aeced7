# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone


class RAMWeigher(Weigher):
    """Weigh a host by its free memory in MiB."""

    multiplier = 'ram_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone
    # As in nova, weights are normalised from 0, not from the least of all hosts.
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.free_ram_mb
