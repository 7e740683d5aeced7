# SPDX-License-Identifier: Apache-2.0
"""RetryFilter: hosts that the build failed on. nova had it until Ussuri (21)."""

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class RetryFilter(Filter):
    """Reject the nodes that were tried before."""

    scope = Scope.HOST
    phrase = 'tried before'

    def applies(self, request: Request) -> bool:
        return request.retry is not None and bool(request.retry.hosts)

    def reject(self, host: Host, request: Request) -> str | None:
        if request.retry is not None and host.key in request.retry.hosts:
            return 'was tried before'
        return None
