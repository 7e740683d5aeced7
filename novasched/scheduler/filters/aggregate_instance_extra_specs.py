# SPDX-License-Identifier: Apache-2.0
"""AggregateInstanceExtraSpecsFilter: flavor extra specs against aggregate metadata.

Keys are ``aggregate_instance_extra_specs:NAME``, or a bare NAME; keys in other scopes
are not looked at.
"""

from collections.abc import Hashable

from novasched.scheduler.filters.operators import meets
from novasched.scheduler.filters.shared import AggregatesFilter, parts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

SCOPE = 'aggregate_instance_extra_specs'


class AggregateInstanceExtraSpecsFilter(AggregatesFilter):
    """Reject hosts whose aggregates do not have what the flavor's extra specs want."""

    phrase = 'in aggregates for other flavors'

    def applies(self, request: Request) -> bool:
        return bool(_requirements(request))

    def request_key(self, request: Request) -> Hashable | None:
        return tuple(_requirements(request))

    def reject(self, host: Host, request: Request) -> str | None:
        for name, requirement in _requirements(request):
            values = parts(host.metadata(name))
            if not values:
                return f"no aggregate with '{name}'"
            if not any(meets(value, requirement) for value in values):
                found = ', '.join(sorted(values))
                return f"'{name}' is '{found}', '{requirement}' wanted"
        return None


def _requirements(request: Request) -> list[tuple[str, str]]:
    """The metadata keys to check, and what is wanted of each."""
    found = []
    for key, requirement in request.flavor.extra_specs.items():
        scope, colon, name = key.partition(':')
        if not colon or scope == SCOPE:
            found.append((name if colon else key, requirement))
    return found
