# SPDX-License-Identifier: Apache-2.0
"""The ports of a request, for the prefilters that look at them."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.errors import NetworkUnavailable, NoValidHost
from novasched.model.request import Request
from novasched.prefilters import LOG, Network, Port


def requested_ports(request: Request, network: Network) -> Mapping[str, Port]:
    """The ports that the request names, by UUID; Neutron is asked only if there are any.

    :raises NoValidHost: one does not exist, or Neutron does not answer.
    """
    uuids = [each.port_id for each in request.requested_networks if each.port_id]
    if not uuids:
        return {}
    try:
        found = network.ports(uuids)
    except NetworkUnavailable as error:
        LOG.error('Failed to access ports: %s', error)
        raise NoValidHost(f'Failed to access ports {", ".join(uuids)}.') from error
    for uuid in uuids:
        if uuid not in found:
            raise NoValidHost(f'Port {uuid} could not be found.')
    return found
