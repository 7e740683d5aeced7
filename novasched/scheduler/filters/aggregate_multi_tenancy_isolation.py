# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable

from novasched.scheduler.filters.shared import AggregatesFilter, split_values
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

PREFIX = 'filter_tenant_id'


class AggregateMultiTenancyIsolation(AggregatesFilter):
    """Reject hosts in aggregates reserved for other projects.

    The value of each metadata key with the prefix ``filter_tenant_id`` lists projects,
    separated by commas. A host is reserved for the projects of all its aggregates; a
    host without such metadata takes every project.
    """

    phrase = 'for other projects'

    def request_key(self, request: Request) -> Hashable | None:
        return request.project_id

    def reject(self, host: Host, request: Request) -> str | None:
        values = []
        for aggregate in host.aggregates:
            for key, value in aggregate.metadata.items():
                if key.startswith(PREFIX):
                    values.append(value)

        tenants = split_values(values)
        if tenants and request.project_id not in tenants:
            return 'for other projects'
        return None
