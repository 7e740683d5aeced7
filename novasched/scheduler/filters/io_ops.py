# SPDX-License-Identifier: Apache-2.0
"""Filters by I/O in progress, with a limit for all hosts or for each aggregate."""

from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.filters.shared import smallest
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class IoOpsFilter(Filter):
    """Reject hosts with too many instances in build, resize, snapshot, migration or
    rescue."""

    scope = Scope.HOST
    request_key = host_alone
    phrase = 'busy with I/O'

    def reject(self, host: Host, request: Request) -> str | None:
        limit = self.limit(host)
        if host.num_io_ops >= limit:
            return f'{host.num_io_ops} I/O operations, limit {limit}'
        return None

    def limit(self, host: Host) -> int:
        """The number of I/O operations at which a host takes no further instance."""
        return self.settings.max_io_ops_per_host


class AggregateIoOpsFilter(IoOpsFilter):
    """IoOpsFilter with aggregate metadata that overrides ``max_io_ops_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_io_ops_per_host', super().limit(host), int)
