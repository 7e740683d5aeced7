# SPDX-License-Identifier: Apache-2.0
"""I/O in progress, with one limit for all hosts or one of each aggregate's own."""

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
        """The least number of operations that is too many."""
        return self.settings.max_io_ops_per_host


class AggregateIoOpsFilter(IoOpsFilter):
    """Let aggregate metadata override ``max_io_ops_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_io_ops_per_host', super().limit(host), int)
