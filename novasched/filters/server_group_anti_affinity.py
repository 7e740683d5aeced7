# SPDX-License-Identifier: Apache-2.0
"""ServerGroupAntiAffinityFilter: members of a group keep apart."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request

RULE = 'max_server_per_host'


class ServerGroupAntiAffinityFilter(Filter):
    """Reject hosts that hold as many members of the group as its rule allows.

    The rule is ``max_server_per_host`` (compute API 2.64), by default 1. A server
    that moves may stay on its own host.
    """

    reads_instances = True

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == 'anti-affinity'

    def reject(self, host: Host, request: Request) -> str | None:
        group = request.instance_group
        if group is None or request.instance_uuid in host.instances:
            return None
        name = group.uuid or 'n/a'
        present = len(host.instances.keys() & group.members)
        wanted = group.rules.get(RULE, 1)
        try:
            limit = int(wanted)
        except (ValueError, TypeError):
            return f'group {name} has {wanted!r} for {RULE}, which is no whole number'
        return f'{present} servers of group {name}, limit {limit}' if present >= limit else None
