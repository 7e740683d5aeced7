# SPDX-License-Identifier: Apache-2.0
"""ServerGroupAntiAffinityFilter: members of a group keep apart."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import InstanceGroup, Request


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
        present = len(host.instances.keys() & group.members)
        limit = _limit(group)
        if present >= limit:
            return f'{present} servers of group {group.uuid or "n/a"}, limit {limit}'
        return None


def _limit(group: InstanceGroup) -> int:
    """The group's rule; one that is no number is taken for the strictest, 1."""
    try:
        return int(group.rules.get('max_server_per_host', 1))
    except (ValueError, TypeError):
        return 1
