# SPDX-License-Identifier: Apache-2.0
"""AggregateDiskFilter: disk, by the aggregates' own ratios (nova: until Ussuri, 21)."""

from __future__ import annotations

from novasched.filters.disk import DiskFilter
from novasched.filters.metadata import smallest
from novasched.model.host import Host


class AggregateDiskFilter(DiskFilter):
    """Let aggregate metadata override the host's ``disk_allocation_ratio``."""

    def ratio(self, host: Host) -> float:
        return smallest(host, 'disk_allocation_ratio', super().ratio(host), float)
