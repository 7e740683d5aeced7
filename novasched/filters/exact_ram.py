# SPDX-License-Identifier: Apache-2.0
"""ExactRamFilter: as much memory as the flavor has. nova had it until Queens (17)."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request


class ExactRamFilter(Filter):
    """Reject hosts that have more or less free memory than the flavor wants."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        free, wanted = host.free_ram_mb, request.flavor.memory_mb
        return None if free == wanted else f'{free} MiB of memory free, exactly {wanted} wanted'

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'memory_mb': host.total_usable_ram_mb}
