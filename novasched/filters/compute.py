# SPDX-License-Identifier: Apache-2.0
"""ComputeFilter: the host's nova-compute is enabled and alive."""

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class ComputeFilter(Filter):
    """Reject hosts whose compute service is disabled or silent."""

    once_per_request = True

    def reject(self, host: Host, request: Request) -> str | None:
        if host.service.disabled:
            return f'disabled, reason: {host.service.disabled_reason}'
        if not host.service.up:
            return 'has not been heard from in a while'
        return None
