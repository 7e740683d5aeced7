# SPDX-License-Identifier: Apache-2.0
"""Filters for hosts with or without certain instances, or near an address.

nova keeps these filters in one module of this name.
"""

import reprlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import BatchFilter, Verdicts
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.model.values import first_names

DIFFERENT_HOST = 'different_host'
SAME_HOST = 'same_host'
NEAR_HOST_IP = 'build_near_host_ip'
"""Scheduler hints."""
MAX_SERVER_PER_HOST = 'max_server_per_host'
MAX_NETWORK_CHARACTERS = 128
"""Maximum length of a network: twice the longest address with a netmask."""


class DifferentHostFilter(Filter):
    """Reject hosts with instances of the scheduler hint ``different_host``."""

    scope = Scope.REQUEST
    phrase = 'have a server to keep away from'

    def applies(self, request: Request) -> bool:
        return request.has_hint(DIFFERENT_HOST)

    def needed_instances(self, request: Request) -> Collection[str]:
        return request.hint(DIFFERENT_HOST)

    def reject(self, host: Host, request: Request) -> str | None:
        present = host.instances.keys() & request.hint(DIFFERENT_HOST)
        if present:
            return f'has {first_names(sorted(present))}'
        return None


class SameHostFilter(Filter):
    """Reject hosts without a single instance of the scheduler hint ``same_host``."""

    scope = Scope.REQUEST
    phrase = 'lack a server to be with'

    def applies(self, request: Request) -> bool:
        return request.has_hint(SAME_HOST)

    def needed_instances(self, request: Request) -> Collection[str]:
        return request.hint(SAME_HOST)

    def reject(self, host: Host, request: Request) -> str | None:
        instances, reason = _instances_to_be_with(request.hint(SAME_HOST))
        if instances.isdisjoint(host.instances):
            return reason
        return None


@lru_cache(maxsize=16)
def _instances_to_be_with(uuids: tuple[str, ...]) -> tuple[frozenset[str], str]:
    """The instances of a hint, and the reason against every host without them."""
    # Cached: a hint may name thousands of instances, and every host is asked about.
    return frozenset(uuids), f'has none of {first_names(uuids)}'


class ServerGroupAffinityFilter(Filter):
    """Reject hosts without members of the server group, once the group has members."""

    phrase = 'outside of the server group'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == 'affinity' and bool(group.hosts)

    def reject(self, host: Host, request: Request) -> str | None:
        group = request.instance_group
        if group is None or host.host in group.hosts:
            return None
        return _away_from_group(group.hosts)


@lru_cache(maxsize=16)
def _away_from_group(hosts: frozenset[str]) -> str:
    """The reason against every host without members of the group."""
    return f'the group is on {first_names(sorted(hosts))}'


class ServerGroupAntiAffinityFilter(BatchFilter):
    """Reject hosts that have as many members of the server group as its rule allows.

    The rule is ``max_server_per_host`` (compute API 2.64), by default 1. An instance
    may be placed on its current host again.
    """

    phrase = 'have a server of the group'

    def applies(self, request: Request) -> bool:
        group = request.instance_group
        return group is not None and group.policy == 'anti-affinity'

    def needed_instances(self, request: Request) -> Collection[str]:
        # An instance that moves is on a host already; see judge().
        needed = {request.instance_uuid, *(request.instance_uuids or ())}
        if request.instance_group:
            needed |= request.instance_group.members
        return set(filter(None, needed))

    def judge(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Verdicts:
        reasons: list[str | None] = [None] * len(hosts)
        group = request.instance_group
        if group is None:
            return Verdicts(reasons, candidates)

        limit = 0
        invalid_rule = None
        try:
            limit = max_server_per_host(group)
        except ValueError as error:
            invalid_rule = str(error)

        members = group.members
        for index, host in enumerate(hosts):
            # Of thousands of hosts, few have members.
            present = 0
            if not members.isdisjoint(host.instances):
                present = len(host.instances.keys() & members)
            if invalid_rule is None and present < limit:
                continue
            if request.instance_uuid not in host.instances:
                words = f'{present} servers of the group, limit {limit}'
                reasons[index] = invalid_rule or words
        return Verdicts(reasons, candidates)


def max_server_per_host(group: ServerGroup) -> int:
    """The number of members of an anti-affinity group that may share a host.

    :raises ValueError: the rule is not a whole number.
    """
    rule = group.rules.get(MAX_SERVER_PER_HOST, 1)
    try:
        return int(rule)
    except (ValueError, TypeError):
        # The reason quotes a rule of any length in a few characters.
        limit = f'{reprlib.repr(rule)} for {MAX_SERVER_PER_HOST}'
        text = f'the group has {limit}, which is no whole number'
        raise ValueError(text) from None


class SimpleCIDRAffinityFilter(Filter):
    """Reject hosts whose address (``host_ip``) is outside a network.

    The scheduler hint ``build_near_host_ip`` is an address in the network. The hint
    ``cidr`` is the size of the network, as a slash and a prefix length or a netmask; by
    default ``/24``.
    """

    scope = Scope.REQUEST
    phrase = 'not near the address'

    def applies(self, request: Request) -> bool:
        return request.has_hint(NEAR_HOST_IP)

    def reject(self, host: Host, request: Request) -> str | None:
        try:
            address = request.single_hint(NEAR_HOST_IP)
            network = _network(address + request.single_hint('cidr', '/24'))
            inside = ip_address(host.host_ip or '') in network
        except ValueError as error:
            return f'cannot tell whether it is near: {error}'
        if inside:
            return None
        return f'{host.host_ip} is not in {network}'


@lru_cache(maxsize=64)
def _network(text: str) -> IPv4Network | IPv6Network:
    """The network around an address, from ``ADDRESS/LENGTH`` or ``ADDRESS/NETMASK``.

    :raises ValueError: the text is not a network.
    """
    if len(text) > MAX_NETWORK_CHARACTERS:
        raise ValueError(f'{reprlib.repr(text)} is no network')

    address, _, mask = text.partition('/')
    if ':' in address and ':' in mask:
        # ip_network() reads netmasks of IPv4, but only prefix lengths of IPv6.
        ones = f'{int(IPv6Address(mask)):0128b}'.rstrip('0')
        if '0' in ones:
            raise ValueError(f'{mask!r} is no netmask')
        text = f'{address}/{len(ones)}'

    return ip_network(text, strict=False)
