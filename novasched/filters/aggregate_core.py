# SPDX-License-Identifier: Apache-2.0
"""AggregateCoreFilter: vCPUs, by the aggregates' own ratios (nova: until Ussuri, 21)."""

from __future__ import annotations

from novasched.filters.core import CoreFilter
from novasched.filters.metadata import smallest
from novasched.model.host import Host


class AggregateCoreFilter(CoreFilter):
    """Let aggregate metadata override the host's ``cpu_allocation_ratio``."""

    def ratio(self, host: Host) -> float:
        return smallest(host, 'cpu_allocation_ratio', super().ratio(host), float)
