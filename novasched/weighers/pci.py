# SPDX-License-Identifier: Apache-2.0
"""PCIWeigher: free PCI devices."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher

MOST = 100
"""Hosts with so many free devices, or more, weigh alike."""


class PCIWeigher(Weigher):
    """Weigh hosts by how few PCI devices they have free: servers without need of any leave
    these hosts alone, the others fill one host after the other."""

    multiplier = 'pci_weight_multiplier'
    once_per_host = True

    def weigh(self, host: Host, request: Request) -> float:
        free = 0
        for pool in host.pci_stats:
            free += pool.count
        return MOST - min(free, MOST - 1)
