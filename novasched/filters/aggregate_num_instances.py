# SPDX-License-Identifier: Apache-2.0
"""AggregateNumInstancesFilter: number of servers, with a limit of each aggregate's own."""

from __future__ import annotations

from novasched.filters.metadata import smallest
from novasched.filters.num_instances import NumInstancesFilter
from novasched.model.host import Host


class AggregateNumInstancesFilter(NumInstancesFilter):
    """Let aggregate metadata override ``max_instances_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_instances_per_host', super().limit(host), int)
