# SPDX-License-Identifier: Apache-2.0
"""AggregateRamFilter: memory, by the aggregates' own ratios (nova: until Ussuri, 21)."""

from __future__ import annotations

from novasched.filters.metadata import smallest
from novasched.filters.ram import RamFilter
from novasched.model.host import Host


class AggregateRamFilter(RamFilter):
    """Let aggregate metadata override the host's ``ram_allocation_ratio``."""

    def ratio(self, host: Host) -> float:
        return smallest(host, 'ram_allocation_ratio', super().ratio(host), float)
