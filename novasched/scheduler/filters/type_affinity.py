# SPDX-License-Identifier: Apache-2.0
"""Hosts for one flavor, which nova had until Pike (16), and aggregates for some flavors
alone."""

from collections.abc import Hashable

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import AggregatesFilter, parts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class TypeAffinityFilter(Filter):
    """Reject hosts with instances of another flavor, told by the flavor's id."""

    scope = Scope.HOST
    reads_flavors = True
    phrase = 'have servers of other flavors'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.id

    def reject(self, host: Host, request: Request) -> str | None:
        others = {each.instance_type_id for each in host.instances.values()} - {
            request.flavor.id
        }
        if others:
            return f'has servers of {len(others)} other flavors'
        return None


class AggregateTypeAffinityFilter(AggregatesFilter):
    """Reject hosts whose aggregates name flavors under ``instance_type``, but not
    ours."""

    phrase = 'in aggregates for other flavors'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.name

    def reject(self, host: Host, request: Request) -> str | None:
        flavors = parts(host.metadata('instance_type')) if host.aggregates else None
        if flavors and request.flavor.name not in flavors:
            return f'for flavors {", ".join(sorted(flavors))}'
        return None
