# SPDX-License-Identifier: Apache-2.0
"""RetryFilter: hosts that the build failed on. nova had it until Ussuri (21)."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class RetryFilter(Filter):
    """Reject the nodes that were tried before."""

    once_per_host = True

    def applies(self, request: Request) -> bool:
        return request.retry is not None and bool(request.retry.hosts)

    def reject(self, host: Host, request: Request) -> str | None:
        if request.retry is not None and host.key in request.retry.hosts:
            return 'was tried before'
        return None
