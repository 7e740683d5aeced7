# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class AllHostsFilter(Filter):
    """Accept every host."""

    scope = Scope.REQUEST
    request_key = host_alone

    def applies(self, request: Request) -> bool:
        return False

    def reject(self, host: Host, request: Request) -> str | None:
        return None
