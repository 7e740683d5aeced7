# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone

MAX_COUNTED_DEVICES = 100
"""Hosts with that many free devices, or more, weigh alike."""


class PCIWeigher(Weigher):
    """Weigh hosts by their free PCI devices, the fewer the more: instances without need
    of any leave these hosts alone, the others fill one host after the other."""

    multiplier = 'pci_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone

    def weigh(self, host: Host, request: Request) -> float:
        free = 0
        for pool in host.pci_stats:
            free += pool.count
        return MAX_COUNTED_DEVICES - min(free, MAX_COUNTED_DEVICES - 1)
