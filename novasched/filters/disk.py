# SPDX-License-Identifier: Apache-2.0
"""DiskFilter: disk. nova had it until Stein (19)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from novasched.filters import Filter
from novasched.filters.room import shortage
from novasched.model.host import Host
from novasched.model.request import Flavor, Request


class DiskFilter(Filter):
    """Reject hosts without enough disk, which may be overcommitted."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        wanted, total = disk_mb(request.flavor), host.total_usable_disk_gb * 1024
        return shortage(wanted, total, host.free_disk_mb, self.ratio(host), 'disk')

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.total_usable_disk_gb * self.ratio(host)
        return {'disk_gb': limit} if math.isfinite(limit) else {}

    def ratio(self, host: Host) -> float:
        """How many GiB may be given for each that the host has."""
        return host.disk_allocation_ratio


def disk_mb(flavor: Flavor) -> int:
    """What a flavor takes of a host's disk, in MiB, wherever its root disk is."""
    return (flavor.root_gb + flavor.ephemeral_gb) * 1024 + flavor.swap
