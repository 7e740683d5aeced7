# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class ComputeFilter(Filter):
    """Reject hosts whose nova-compute service is disabled or down."""

    scope = Scope.REQUEST
    request_key = host_alone
    phrase = 'disabled or down'

    def reject(self, host: Host, request: Request) -> str | None:
        if host.service.disabled:
            return f'disabled, reason: {host.service.disabled_reason}'
        if not host.service.up:
            return 'has not been heard from in a while'
        return None
