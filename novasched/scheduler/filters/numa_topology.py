# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from novasched.scheduler.filters.shared import CandidateFilter, Key, Plainly, attributes
from novasched.scheduler.fitting import LIMITS, limits_of, unfitted
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.numa.plain_fit import fits_plainly, has_no_wishes
from novasched.scheduler.pci.pools import Mappings


class NUMATopologyFilter(CandidateFilter):
    """Reject hosts on which the guest's NUMA topology does not fit, as far as the
    host's allocation ratios go, or without the threads that are required."""

    phrase = 'do not fit the NUMA topology'

    def applies(self, request: Request) -> bool:
        topology = request.numa_topology
        return bool(topology and topology.cells) or request.requirements.needs_threads

    def key(self, request: Request) -> Key:
        ratios = 'cpu_allocation_ratio', 'ram_allocation_ratio'
        return attributes('numa_topology', 'pci_stats', *ratios)

    def request_key(self, request: Request) -> Hashable | None:
        if request.pci_requests:
            return None
        threads = request.requirements.needs_threads
        return request.numa_topology, request.physnets, request.tunneled, threads

    def passes_plainly(self, hosts: Sequence[Host], request: Request) -> Plainly:
        guest = request.numa_topology
        near = request.pci_requests or request.physnets or request.tunneled
        if (
            guest is None
            or near
            or request.requirements.needs_threads
            or not has_no_wishes(guest)
        ):
            return None
        cpu_ratios = np.array([host.cpu_allocation_ratio for host in hosts])
        ram_ratios = np.array([host.ram_allocation_ratio for host in hosts])
        return fits_plainly(
            [host.numa_topology for host in hosts], guest, cpu_ratios, ram_ratios
        )

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        topology = host.numa_topology
        if request.requirements.needs_threads and topology and not topology.has_threads:
            return 'it has no threads, which are required'
        if not _has_cells(request):
            return None
        return unfitted(
            host, request, mappings, limits_of(host, request), self.settings
        )

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        if _has_cells(request):
            return {LIMITS: limits_of(host, request)}
        return {}


def _has_cells(request: Request) -> bool:
    return bool(request.numa_topology and request.numa_topology.cells)
