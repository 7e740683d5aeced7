# SPDX-License-Identifier: Apache-2.0
"""RamFilter: memory. nova had it until Stein (19)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from novasched.filters import Filter
from novasched.filters.room import shortage
from novasched.model.host import Host
from novasched.model.request import Request


class RamFilter(Filter):
    """Reject hosts without enough memory, which may be overcommitted."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        wanted, total = request.flavor.memory_mb, host.total_usable_ram_mb
        return shortage(wanted, total, host.free_ram_mb, self.ratio(host), 'memory')

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.total_usable_ram_mb * self.ratio(host)
        return {'memory_mb': limit} if math.isfinite(limit) else {}

    def ratio(self, host: Host) -> float:
        """How many MiB may be given for each that the host has."""
        return host.ram_allocation_ratio
