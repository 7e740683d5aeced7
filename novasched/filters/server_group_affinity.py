# SPDX-License-Identifier: Apache-2.0
"""ServerGroupAffinityFilter: members of a group stay together."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class ServerGroupAffinityFilter(Filter):
    """Reject hosts without the group's servers, once it has any."""

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == 'affinity' and bool(group.hosts)

    def reject(self, host: Host, request: Request) -> str | None:
        group = request.instance_group
        if group is None or host.host in group.hosts:
            return None
        return f'group {group.uuid or "n/a"} is on {", ".join(sorted(group.hosts))}'
