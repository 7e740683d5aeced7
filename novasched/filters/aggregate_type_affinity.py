# SPDX-License-Identifier: Apache-2.0
"""AggregateTypeAffinityFilter: aggregates for some flavors alone."""

from __future__ import annotations

from novasched.filters.alike import AggregatesFilter
from novasched.filters.metadata import parts
from novasched.model.host import Host
from novasched.model.request import Request


class AggregateTypeAffinityFilter(AggregatesFilter):
    """Reject hosts whose aggregates name flavors under ``instance_type``, but not ours."""

    once_per_request = True

    def reject(self, host: Host, request: Request) -> str | None:
        flavors = parts(host.metadata('instance_type')) if host.aggregates else None
        if flavors and request.flavor.name not in flavors:
            return f'for flavors {", ".join(sorted(flavors))}'
        return None
