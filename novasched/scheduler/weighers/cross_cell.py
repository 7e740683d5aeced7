# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher


class CrossCellWeigher(Weigher):
    """Prefer hosts in the cell of an instance that moves and may leave the cell.

    Hosts in the cell weigh 1, all hosts outside -1. Other requests are not weighed.
    """

    multiplier = 'cross_cell_move_weight_multiplier'
    scope = Scope.HOST

    def applies(self, request: Request) -> bool:
        move = request.requested_destination
        return bool(move and move.cell_uuid and move.allow_cross_cell_move)

    def weigh(self, host: Host, request: Request) -> float:
        move = request.requested_destination
        if move is None or host.cell_uuid == move.cell_uuid:
            return 1
        return -1
