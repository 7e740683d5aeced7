# SPDX-License-Identifier: Apache-2.0
"""IoOpsFilter: I/O in progress."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class IoOpsFilter(Filter):
    """Reject hosts with too many servers in build, resize, snapshot, migration or rescue."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        limit = self.limit(host)
        if host.num_io_ops >= limit:
            return f'{host.num_io_ops} I/O operations, limit {limit}'
        return None

    def limit(self, host: Host) -> int:
        """How many operations are too many."""
        return self.settings.max_io_ops_per_host
