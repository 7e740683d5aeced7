# SPDX-License-Identifier: Apache-2.0
"""Hosts that reach the segments of the requested networks."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.errors import NetworkUnavailable, NoValidHost
from novasched.model.request import NetworkRequest, Request
from novasched.prefilters import LOG, Network, Port, Prefilter
from novasched.prefilters.ports import requested_ports


class RoutedNetworksPrefilter(Prefilter):
    """Ask only for hosts in the aggregates of a segment of each network.

    A port with an address is bound to its subnet's segment; other ports, and networks,
    may be served by any segment of theirs.
    ``[scheduler] query_placement_for_routed_network_aggregates`` switches the rule on.
    """

    def __call__(self, request: Request) -> Request:
        network = self.sources.network
        if not self.settings.query_placement_for_routed_network_aggregates or network is None:
            return request
        ports = requested_ports(request, network)
        for each in request.requested_networks:
            aggregates = _aggregates(each, ports, network)
            if aggregates:
                request = self.within(request, aggregates)
        return request


def _aggregates(
    wanted: NetworkRequest, ports: Mapping[str, Port], network: Network
) -> frozenset[str]:
    port = ports[wanted.port_id] if wanted.port_id else None
    subnet_id = port.subnet_id if port else None
    network_id = port.network_id if port else wanted.network_id
    try:
        if subnet_id:
            return network.subnet_aggregates(subnet_id)
        return network.network_aggregates(network_id) if network_id else frozenset()
    except NetworkUnavailable as error:
        LOG.error('Routed network: %s', error)
        of_what = f'subnet {subnet_id}' if subnet_id else f'network {network_id}'
        raise NoValidHost(f'Scheduling failed: Aggregates not found for the {of_what}') from error
