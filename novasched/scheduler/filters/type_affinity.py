# SPDX-License-Identifier: Apache-2.0
"""Filters for hosts of one flavor, and for aggregates of a list of flavors.

nova had TypeAffinityFilter until Pike (16).
"""

from collections.abc import Hashable

from novasched.scheduler.filters import Data, Filter, Scope
from novasched.scheduler.filters.shared import AggregatesFilter, split_values
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class TypeAffinityFilter(Filter):
    """Reject hosts with instances of another flavor, by flavor ID."""

    scope = Scope.HOST
    reads = frozenset({Data.FLAVORS})
    phrase = 'have servers of other flavors'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.id

    def reject(self, host: Host, request: Request) -> str | None:
        flavors = {instance.instance_type_id for instance in host.instances.values()}
        flavors.discard(request.flavor.id)
        if flavors:
            return f'has servers of {len(flavors)} other flavors'
        return None


class AggregateTypeAffinityFilter(AggregatesFilter):
    """Reject hosts in aggregates for other flavors.

    The metadata key ``instance_type`` lists the names of flavors, separated by commas.
    """

    phrase = 'in aggregates for other flavors'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.name

    def reject(self, host: Host, request: Request) -> str | None:
        # Most hosts of most clouds are in no such aggregate.
        if not host.aggregates:
            return None
        flavors = split_values(host.metadata('instance_type'))
        if flavors and request.flavor.name not in flavors:
            return f'for flavors {", ".join(sorted(flavors))}'
        return None
