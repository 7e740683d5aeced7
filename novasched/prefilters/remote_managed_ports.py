# SPDX-License-Identifier: Apache-2.0
"""Hosts that can plug ports which a SmartNIC manages, and not its host."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.prefilters import Prefilter
from novasched.prefilters.ports import requested_ports

REMOTE_MANAGED = 'remote-managed'


class RemoteManagedPortsPrefilter(Prefilter):
    """Require the trait where a requested port has the VNIC type ``remote-managed``."""

    def __call__(self, request: Request) -> Request:
        network = self.sources.network
        if network is None:
            return request
        ports = requested_ports(request, network).values()
        if all(port.vnic_type != REMOTE_MANAGED for port in ports):
            return request
        return self.requiring(request, os_traits.COMPUTE_REMOTE_MANAGED_PORTS)
