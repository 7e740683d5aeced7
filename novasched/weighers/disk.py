# SPDX-License-Identifier: Apache-2.0
"""DiskWeigher: free disk."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class DiskWeigher(Weigher):
    """Weigh hosts by their free disk, in MiB."""

    multiplier = 'disk_weight_multiplier'
    once_per_host = True
    minval = 0.0

    def weigh(self, host: Host, request: Request) -> float:
        return host.free_disk_mb
