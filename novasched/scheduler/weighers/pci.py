# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone

MAX_COUNTED_DEVICES = 100
"""Hosts with 99 free devices and hosts with more weigh alike, as in nova."""


class PCIWeigher(Weigher):
    """Weigh a host up the fewer free PCI devices it has.

    Instances without PCI devices then avoid hosts with devices, and instances with PCI
    devices fill one host after another.
    """

    multiplier = 'pci_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone

    def weigh(self, host: Host, request: Request) -> float:
        free = 0
        for pool in host.pci_stats:
            free += pool.count
        return MAX_COUNTED_DEVICES - min(free, MAX_COUNTED_DEVICES - 1)
