# SPDX-License-Identifier: Apache-2.0
"""SameHostFilter: the hint ``same_host`` names servers to be near."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.filters.hints import is_given
from novasched.model.host import Host
from novasched.model.request import Request

HINT = 'same_host'


class SameHostFilter(Filter):
    """Reject hosts that have none of the servers that the hint names."""

    once_per_request = True
    reads_instances = True

    def applies(self, request: Request) -> bool:
        return is_given(request, HINT)

    def reject(self, host: Host, request: Request) -> str | None:
        if host.instances.keys().isdisjoint(request.hint(HINT)):
            return f'has none of {", ".join(request.hint(HINT))}'
        return None
