# SPDX-License-Identifier: Apache-2.0
"""AggregateFlavorSizeFilter: hosts for flavors of a size, such as large hosts that are
kept for large instances.

nova has no such filter.
"""

from collections.abc import Callable, Hashable
from operator import ge, le

from novasched.scheduler.filters.shared import AggregatesFilter
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class AggregateFlavorSizeFilter(AggregatesFilter):
    """Reject hosts in aggregates for larger or smaller flavors.

    The metadata keys of an aggregate are ``min_flavor_vcpus``, ``max_flavor_vcpus``,
    ``min_flavor_memory_mb`` and ``max_flavor_memory_mb`` (MiB). A flavor has to be
    within the bounds of all aggregates of a host.
    """

    phrase = 'for flavors of another size'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.vcpus, request.flavor.memory_mb

    def reject(self, host: Host, request: Request) -> str | None:
        # Most hosts of most clouds are in no such aggregate.
        if not host.aggregates:
            return None

        vcpus = request.flavor.vcpus
        memory_mb = request.flavor.memory_mb
        return (
            _out_of_bounds(host, 'min_flavor_vcpus', vcpus, ge)
            or _out_of_bounds(host, 'max_flavor_vcpus', vcpus, le)
            or _out_of_bounds(host, 'min_flavor_memory_mb', memory_mb, ge)
            or _out_of_bounds(host, 'max_flavor_memory_mb', memory_mb, le)
        )


def _out_of_bounds(
    host: Host, key: str, amount: int, is_within: Callable[[int, int], bool]
) -> str | None:
    """The reason against a host whose aggregates give a key a bound that the amount of
    a flavor is not within."""
    for text in sorted(host.metadata(key)):
        try:
            bound = int(text)
        except ValueError:
            return f'{key} is {text!r}, which is no whole number'
        if not is_within(amount, bound):
            return f'{key} is {bound}, the flavor has {amount}'
    return None
