# SPDX-License-Identifier: Apache-2.0
"""Number of instances, with one limit for all hosts or one of each aggregate's own."""

from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.filters.shared import smallest
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class NumInstancesFilter(Filter):
    """Reject hosts that have as many instances as they may."""

    scope = Scope.HOST
    request_key = host_alone
    phrase = 'with too many servers'

    def reject(self, host: Host, request: Request) -> str | None:
        limit = self.limit(host)
        if host.num_instances >= limit:
            return f'{host.num_instances} servers, limit {limit}'
        return None

    def limit(self, host: Host) -> int:
        """The number of instances that the host may have."""
        return self.settings.max_instances_per_host


class AggregateNumInstancesFilter(NumInstancesFilter):
    """Let aggregate metadata override ``max_instances_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_instances_per_host', super().limit(host), int)
