# SPDX-License-Identifier: Apache-2.0
"""TypeAffinityFilter: one flavor a host. nova had it until Pike (16)."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class TypeAffinityFilter(Filter):
    """Reject hosts with servers of another flavor, told by the flavor's id."""

    once_per_host = True
    reads_instances = True

    def reject(self, host: Host, request: Request) -> str | None:
        others = {each.instance_type_id for each in host.instances.values()} - {request.flavor.id}
        return f'has servers of {len(others)} other flavors' if others else None
