# SPDX-License-Identifier: Apache-2.0
"""PciPassthroughFilter: the host has the devices that the server asks for."""

from __future__ import annotations

from collections.abc import Sequence

from novasched.filters.alike import Column
from novasched.filters.candidates import CandidateFilter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.pci.consume import consume
from novasched.pci.match import Mappings


class PciPassthroughFilter(CandidateFilter):
    """Reject hosts that lack PCI devices, wherever on the host these are; whether they are
    near the guest's cells is for NUMATopologyFilter to say."""

    def applies(self, request: Request) -> bool:
        return bool(request.pci_requests)

    def looks_at(self, hosts: Sequence[Host], request: Request) -> Sequence[Column]:
        return [[host.pci_stats for host in hosts]]

    def judge(self, host: Host, request: Request, mappings: Mappings | None) -> str | None:
        left = consume(host.pci_stats, request.pci_requests, mappings)
        return left if isinstance(left, str) else None
