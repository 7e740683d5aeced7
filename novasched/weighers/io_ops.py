# SPDX-License-Identifier: Apache-2.0
"""IoOpsWeigher: I/O in progress."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class IoOpsWeigher(Weigher):
    """Weigh hosts by their servers in build, resize, snapshot, migration or rescue."""

    multiplier = 'io_ops_weight_multiplier'
    once_per_host = True
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.num_io_ops
