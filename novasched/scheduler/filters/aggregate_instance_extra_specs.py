# SPDX-License-Identifier: Apache-2.0
"""AggregateInstanceExtraSpecsFilter: flavor extra specs against aggregate metadata.

Extra specs ``aggregate_instance_extra_specs:NAME`` and ``NAME`` are checked. Extra
specs in a different scope are skipped.
"""

from collections.abc import Hashable

from novasched.scheduler.filters.operators import meets
from novasched.scheduler.filters.shared import AggregatesFilter, split_values
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

SCOPE = 'aggregate_instance_extra_specs'


class AggregateInstanceExtraSpecsFilter(AggregatesFilter):
    """Reject hosts whose aggregates do not meet the extra specs of the flavor."""

    phrase = 'in aggregates for other flavors'

    def applies(self, request: Request) -> bool:
        return bool(_requirements(request))

    def request_key(self, request: Request) -> Hashable | None:
        return tuple(_requirements(request))

    def reject(self, host: Host, request: Request) -> str | None:
        for name, requirement in _requirements(request):
            values = split_values(host.metadata(name))
            if not values:
                return f"no aggregate with '{name}'"
            if not any(meets(value, requirement) for value in values):
                present = ', '.join(sorted(values))
                return f"'{name}' is '{present}', '{requirement}' wanted"
        return None


def _requirements(request: Request) -> list[tuple[str, str]]:
    """The metadata keys to check, each with its requirement."""
    requirements = []
    for key, requirement in request.flavor.extra_specs.items():
        scope, colon, name = key.partition(':')
        if not colon:
            requirements.append((key, requirement))
        elif scope == SCOPE:
            requirements.append((name, requirement))
    return requirements
