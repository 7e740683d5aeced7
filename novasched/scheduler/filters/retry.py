# SPDX-License-Identifier: Apache-2.0
"""RetryFilter, which nova had until Ussuri (21).

Since Queens (17) conductors retry on the alternates of the first decision instead.
"""

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class RetryFilter(Filter):
    """Reject nodes on which the build of the instance failed before."""

    scope = Scope.HOST
    phrase = 'tried before'

    def applies(self, request: Request) -> bool:
        return request.retry is not None and bool(request.retry.hosts)

    def reject(self, host: Host, request: Request) -> str | None:
        if request.retry is not None and host.key in request.retry.hosts:
            return 'was tried before'
        return None
