# SPDX-License-Identifier: Apache-2.0
"""ExactDiskFilter: as much disk as the flavor has. nova had it until Queens (17)."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.filters import Filter
from novasched.filters.disk import disk_mb
from novasched.model.host import Host
from novasched.model.request import Request


class ExactDiskFilter(Filter):
    """Reject hosts that have more or less free disk than the flavor wants."""

    once_per_host = True

    def reject(self, host: Host, request: Request) -> str | None:
        free, wanted = host.free_disk_mb, disk_mb(request.flavor)
        return None if free == wanted else f'{free} MiB of disk free, exactly {wanted} wanted'

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'disk_gb': host.total_usable_disk_gb}
