# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.filters.shared import CandidateFilter, Key
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pci.pools import Mappings, consume, device_choices


class PciPassthroughFilter(CandidateFilter):
    """Reject hosts that lack PCI devices.

    Devices on every NUMA node count. NUMATopologyFilter checks the NUMA affinity of
    devices and guest cells.
    """

    phrase = 'lack PCI devices'

    def applies(self, request: Request) -> bool:
        return bool(request.pci_requests)

    def key_beside_devices(self, request: Request) -> Key:
        return ()

    def may_fit(self, host: Host, request: Request) -> bool:
        choices = device_choices(host.pci_stats, request.pci_requests)
        return any(True for _ in choices)

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        pools = consume(host.pci_stats, request.pci_requests, mappings)
        if isinstance(pools, str):
            return pools
        return None
