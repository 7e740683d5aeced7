# SPDX-License-Identifier: Apache-2.0
"""AllHostsFilter: no condition at all."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class AllHostsFilter(Filter):
    """Accept every host."""

    once_per_request = True

    def applies(self, request: Request) -> bool:
        return False

    def reject(self, host: Host, request: Request) -> str | None:
        return None
