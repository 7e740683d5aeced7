# SPDX-License-Identifier: Apache-2.0
"""SimpleCIDRAffinityFilter: hosts near an address.

The hint ``build_near_host_ip`` is an address, ``cidr`` the size of the network around
it: ``/24`` if it is not given, a length or a netmask with a slash in front.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from novasched.filters import Filter
from novasched.filters.hints import is_given, single
from novasched.model.host import Host
from novasched.model.request import Request

HINT = 'build_near_host_ip'


class SimpleCIDRAffinityFilter(Filter):
    """Reject hosts whose own address is not in the network that the hints describe."""

    once_per_request = True

    def applies(self, request: Request) -> bool:
        return is_given(request, HINT)

    def reject(self, host: Host, request: Request) -> str | None:
        try:
            network = _network(single(request, HINT) + single(request, 'cidr', '/24'))
            inside = ip_address(host.host_ip or '') in network
        except ValueError as error:
            return f'cannot tell whether it is near: {error}'
        return None if inside else f'{host.host_ip} is not in {network}'


@lru_cache(maxsize=64)
def _network(text: str) -> IPv4Network | IPv6Network:
    """The network around an address, its size a length or a netmask.

    :raises ValueError: it cannot be read.
    """
    address, _, mask = text.partition('/')
    if ':' in address and ':' in mask:  # a netmask of IPv6, which ip_network does not read
        ones = f'{int(IPv6Address(mask)):0128b}'.rstrip('0')
        if '0' in ones:
            raise ValueError(f'{mask!r} is no netmask')
        text = f'{address}/{len(ones)}'
    return ip_network(text, strict=False)
