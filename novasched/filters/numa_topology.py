# SPDX-License-Identifier: Apache-2.0
"""NUMATopologyFilter: the cells of the guest lie on cells of the host."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from novasched.filters.alike import Column
from novasched.filters.candidates import CandidateFilter
from novasched.fitting import LIMITS, fitted
from novasched.model.host import Host
from novasched.model.numa import DEDICATED, REQUIRE, Fit, TopologyLimits
from novasched.model.request import Request
from novasched.pci.match import Mappings


class NUMATopologyFilter(CandidateFilter):
    """Reject hosts on which the guest's NUMA topology does not fit, as far as the host's
    allocation ratios go, or without the threads that are required."""

    def applies(self, request: Request) -> bool:
        return _has_cells(request) or _requires_threads(request)

    def looks_at(self, hosts: Sequence[Host], request: Request) -> Sequence[Column]:
        return [
            [host.numa_topology for host in hosts],
            [host.pci_stats for host in hosts],
            [host.cpu_allocation_ratio for host in hosts],
            [host.ram_allocation_ratio for host in hosts],
        ]

    def wanted(self, request: Request) -> Hashable:
        threads = _requires_threads(request)
        return request.numa_topology, request.physnets, request.tunneled, threads

    def judge(self, host: Host, request: Request, mappings: Mappings | None) -> str | None:
        topology = host.numa_topology
        if topology and not topology.has_threads and _requires_threads(request):
            return 'it has no threads, which are required'
        if not _has_cells(request):
            return None
        place = fitted(host, request, mappings, _limits(host, request), self.settings)
        return None if isinstance(place, Fit) else place

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        return {LIMITS: _limits(host, request)} if _has_cells(request) else {}


def _has_cells(request: Request) -> bool:
    return bool(request.numa_topology and request.numa_topology.cells)


def _requires_threads(request: Request) -> bool:
    """Whether the flavor or the image asks for dedicated CPUs, and either for threads."""
    properties = request.image.properties if request.image else {}
    given = {
        name: (request.flavor.extra_specs.get(f'hw:{name}'), properties.get(f'hw_{name}'))
        for name in ('cpu_policy', 'cpu_thread_policy')
    }
    return DEDICATED in given['cpu_policy'] and REQUIRE in given['cpu_thread_policy']


def _limits(host: Host, request: Request) -> TopologyLimits:
    return TopologyLimits(
        host.cpu_allocation_ratio, host.ram_allocation_ratio, request.physnets, request.tunneled
    )
