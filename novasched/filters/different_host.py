# SPDX-License-Identifier: Apache-2.0
"""DifferentHostFilter: the hint ``different_host`` names servers to keep away from."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.filters.hints import is_given
from novasched.model.host import Host
from novasched.model.request import Request

HINT = 'different_host'


class DifferentHostFilter(Filter):
    """Reject hosts that have one of the servers that the hint names."""

    once_per_request = True
    reads_instances = True

    def applies(self, request: Request) -> bool:
        return is_given(request, HINT)

    def reject(self, host: Host, request: Request) -> str | None:
        present = host.instances.keys() & request.hint(HINT)
        return f'has {", ".join(sorted(present))}' if present else None
