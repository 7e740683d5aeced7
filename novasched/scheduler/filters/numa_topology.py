# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from novasched.scheduler.filters.shared import CandidateFilter, Key, Plainly, attributes
from novasched.scheduler.fitting import (
    LIMITS,
    choices_on_host,
    limits_of,
    misfit_on_host,
)
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.numa.plain_fit import fits_plainly, is_plain
from novasched.scheduler.pci.pools import Mappings


class NUMATopologyFilter(CandidateFilter):
    """Reject hosts that the NUMA topology of the guest does not fit.

    Limits are the allocation ratios of the host. The filter also rejects hosts without
    SMT where the thread policy ``require`` asks for hardware threads.
    """

    phrase = 'do not fit the NUMA topology'

    def applies(self, request: Request) -> bool:
        topology = request.numa_topology
        return bool(topology and topology.cells) or request.requirements.needs_threads

    def key_beside_devices(self, request: Request) -> Key:
        return attributes(
            'numa_topology', 'cpu_allocation_ratio', 'ram_allocation_ratio'
        )

    def request_key(self, request: Request) -> Hashable | None:
        # With PCI requests the verdict also depends on the allocation candidates.
        if request.pci_requests:
            return None
        return (
            request.numa_topology,
            request.physnets,
            request.tunneled,
            request.requirements.needs_threads,
        )

    def passes_plainly(self, hosts: Sequence[Host], request: Request) -> Plainly:
        guest = request.numa_topology
        if guest is None or not is_plain(guest):
            return None
        if request.requirements.needs_threads:
            return None
        # Devices and networks restrict the cells.
        if request.pci_requests or request.physnets or request.tunneled:
            return None

        cpu_ratios = np.array([host.cpu_allocation_ratio for host in hosts])
        ram_ratios = np.array([host.ram_allocation_ratio for host in hosts])
        topologies = [host.numa_topology for host in hosts]
        return fits_plainly(topologies, guest, cpu_ratios, ram_ratios)

    def may_fit(self, host: Host, request: Request) -> bool:
        if not _has_cells(request):
            return True
        return any(True for _ in choices_on_host(host, request, self.settings))

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        topology = host.numa_topology
        if request.requirements.needs_threads and topology and not topology.has_threads:
            return 'it has no threads, which are required'
        if not _has_cells(request):
            return None

        limits = limits_of(host, request)
        return misfit_on_host(host, request, mappings, limits, self.settings)

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        if _has_cells(request):
            return {LIMITS: limits_of(host, request)}
        return {}


def _has_cells(request: Request) -> bool:
    return bool(request.numa_topology and request.numa_topology.cells)
