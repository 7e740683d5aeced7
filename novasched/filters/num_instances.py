# SPDX-License-Identifier: Apache-2.0
"""NumInstancesFilter: number of servers."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class NumInstancesFilter(Filter):
    """Reject hosts that have as many servers as they may."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        limit = self.limit(host)
        if host.num_instances >= limit:
            return f'{host.num_instances} servers, limit {limit}'
        return None

    def limit(self, host: Host) -> int:
        """How many servers the host may have."""
        return self.settings.max_instances_per_host
