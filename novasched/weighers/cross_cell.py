# SPDX-License-Identifier: Apache-2.0
"""CrossCellWeigher: servers that move had better stay in their cell."""

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


class CrossCellWeigher(Weigher):
    """Weigh 1 for hosts of the cell that a moving server is in and may leave, else -1."""

    multiplier = 'cross_cell_move_weight_multiplier'
    once_per_host = True

    def applies(self, request: Request) -> bool:
        wanted = request.requested_destination
        return wanted is not None and bool(wanted.cell_uuid) and wanted.allow_cross_cell_move

    def weigh(self, host: Host, request: Request) -> float:
        wanted = request.requested_destination
        return 1 if wanted is None or host.cell_uuid == wanted.cell_uuid else -1
