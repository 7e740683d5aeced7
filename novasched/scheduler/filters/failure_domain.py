# SPDX-License-Identifier: Apache-2.0
"""Instances of a group in one failure domain, or each in one of its own: a rack, a row,
whatever an aggregate's metadata ``[novasched] failure_domain_key`` names."""

from itertools import chain

from novasched.scheduler.filters.affinity import max_server_per_host
from novasched.scheduler.filters.shared import Key, KeyedFilter, attributes
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.values import some


class FailureDomainFilter(KeyedFilter):
    """Reject hosts by the failure domains in which the members of a server group are.

    With the policy anti-affinity a domain takes as many as the group's rule allows on a
    host, by default 1. With affinity all go to a domain that has one already. Hosts in
    no domain take none: nobody knows what they fail with. The instance itself does not
    count where it moves.
    """

    locates_members = True
    phrase = 'in no failure domain for the server group'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy in ('affinity', 'anti-affinity')

    def key(self, request: Request) -> Key:
        return attributes('aggregates')

    def reject(self, host: Host, request: Request) -> str | None:
        group = request.instance_group
        key = self.settings.failure_domain_key
        if group is None:
            return None
        domains = host.metadata(key)
        if not domains:
            return f'no aggregate gives it a {key}'
        within = f'{key} {some(sorted(domains))}'
        present = group.members_near(host, key)
        if group.policy == 'affinity':
            hosts = chain.from_iterable(group.located.values())
            taken = frozenset[str]().union(*(each.metadata(key) for each in hosts))
            if present or not taken:
                return None
            return f'in {within}, the group is in {some(sorted(taken))}'
        try:
            limit = max_server_per_host(group)
        except ValueError as error:
            return str(error)
        if present < limit:
            return None
        return f'{present} servers of the group in {within}, limit {limit}'
