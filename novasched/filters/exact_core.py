# SPDX-License-Identifier: Apache-2.0
"""ExactCoreFilter: as many vCPUs as the flavor has. nova had it until Queens (17)."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class ExactCoreFilter(Filter):
    """Reject hosts that have more or fewer free vCPUs than the flavor wants."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        free = host.vcpus_total - host.vcpus_used
        if not host.vcpus_total or free != request.flavor.vcpus:
            return f'{free} vCPUs free, exactly {request.flavor.vcpus} wanted'
        return None

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'vcpu': host.vcpus_total}
