# SPDX-License-Identifier: Apache-2.0
"""RAMWeigher: free memory."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class RAMWeigher(Weigher):
    """Weigh hosts by their free memory, in MiB."""

    multiplier = 'ram_weight_multiplier'
    once_per_host = True
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.free_ram_mb
