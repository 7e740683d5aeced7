# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable

from novasched.scheduler.filters.shared import AggregatesFilter, parts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

PREFIX = 'filter_tenant_id'


class AggregateMultiTenancyIsolation(AggregatesFilter):
    """Reject hosts in aggregates that name projects, none of them the request's.

    Every metadata key that starts with ``filter_tenant_id`` names some, with commas
    between; a host takes the projects that any of its aggregates names.
    """

    phrase = 'for other projects'

    def request_key(self, request: Request) -> Hashable | None:
        return request.project_id

    def reject(self, host: Host, request: Request) -> str | None:
        tenants = parts(
            value
            for aggregate in host.aggregates
            for key, value in aggregate.metadata.items()
            if key.startswith(PREFIX)
        )
        if tenants and request.project_id not in tenants:
            return 'for other projects'
        return None
