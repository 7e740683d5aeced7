# SPDX-License-Identifier: Apache-2.0
"""Filters by number of instances, with a limit for all hosts or for each aggregate."""

from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.filters.shared import smallest
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class NumInstancesFilter(Filter):
    """Reject hosts with ``max_instances_per_host`` instances or more."""

    scope = Scope.HOST
    request_key = host_alone
    phrase = 'with too many servers'

    def reject(self, host: Host, request: Request) -> str | None:
        limit = self.limit(host)
        if host.num_instances >= limit:
            return f'{host.num_instances} servers, limit {limit}'
        return None

    def limit(self, host: Host) -> int:
        """The maximum number of instances on a host."""
        return self.settings.max_instances_per_host


class AggregateNumInstancesFilter(NumInstancesFilter):
    """NumInstancesFilter with aggregate metadata that overrides
    ``max_instances_per_host``."""

    def limit(self, host: Host) -> int:
        return smallest(host, 'max_instances_per_host', super().limit(host), int)
