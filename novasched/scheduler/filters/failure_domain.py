# SPDX-License-Identifier: Apache-2.0
"""FailureDomainFilter: server groups within a failure domain, or across domains.

A failure domain is a rack, a row or a room: the hosts of aggregates with the same value
of the metadata key ``[novasched] failure_domain_key``.
"""

from itertools import chain

from novasched.scheduler.filters import Data
from novasched.scheduler.filters.affinity import max_server_per_host
from novasched.scheduler.filters.shared import Key, KeyedFilter, attributes
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.model.values import first_names


class FailureDomainFilter(KeyedFilter):
    """Reject hosts by the failure domains of the members of a server group.

    Anti-affinity: a domain takes as many members as the rule ``max_server_per_host``
    allows on a host, by default 1. Affinity: all members go to a domain that has a
    member already. A host outside of failure domains takes no members, since the
    failure of such a host may affect any domain. An instance that moves does not count
    as a member.
    """

    reads = frozenset({Data.MEMBERS})
    phrase = 'in no failure domain for the server group'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy in ('affinity', 'anti-affinity')

    def key(self, request: Request) -> Key:
        return attributes('aggregates')

    def reject(self, host: Host, request: Request) -> str | None:
        group = request.instance_group
        if group is None:
            return None

        key = self.settings.failure_domain_key
        domains = host.metadata(key)
        if not domains:
            return f'no aggregate gives it a {key}'

        within = f'{key} {first_names(sorted(domains))}'
        present = group.members_near(host, key)
        if group.policy == 'affinity':
            member_domains = _member_domains(group, key)
            if present or not member_domains:
                return None
            return f'in {within}, the group is in {first_names(sorted(member_domains))}'

        try:
            limit = max_server_per_host(group)
        except ValueError as error:
            return str(error)
        if present < limit:
            return None
        return f'{present} servers of the group in {within}, limit {limit}'


def _member_domains(group: ServerGroup, key: str) -> set[str]:
    """The failure domains of the members that have hosts."""
    domains: set[str] = set()
    for host in chain.from_iterable(group.located.values()):
        domains |= host.metadata(key)
    return domains
