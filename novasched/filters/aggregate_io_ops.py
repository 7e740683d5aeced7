# SPDX-License-Identifier: Apache-2.0
"""AggregateIoOpsFilter: I/O in progress, with a limit of each aggregate's own."""

from __future__ import annotations

from novasched.filters.io_ops import IoOpsFilter
from novasched.filters.metadata import smallest
from novasched.model.host import Host


class AggregateIoOpsFilter(IoOpsFilter):
    """Let aggregate metadata override ``max_io_ops_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_io_ops_per_host', super().limit(host), int)
