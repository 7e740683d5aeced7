# SPDX-License-Identifier: Apache-2.0
"""CoreFilter: vCPUs. nova had it until Stein (19)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class CoreFilter(Filter):
    """Reject hosts without enough vCPUs, which may be overcommitted.

    A server may not be bigger than the host is before overcommit. A host that reports
    no vCPUs is accepted: its nova-compute does not count them.
    """

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        wanted = request.flavor.vcpus
        if not host.vcpus_total:
            return None
        limit = host.vcpus_total * self.ratio(host)
        if limit > 0 and wanted > host.vcpus_total:
            return f'{host.vcpus_total} vCPUs before overcommit, {wanted} wanted'
        free = limit - host.vcpus_used
        return f'{free:g} vCPUs free, {wanted} wanted' if free < wanted else None

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.vcpus_total * self.ratio(host)
        return {'vcpu': limit} if 0 < limit < math.inf else {}

    def ratio(self, host: Host) -> float:
        """How many vCPUs may be given for each that the host has."""
        return host.cpu_allocation_ratio
