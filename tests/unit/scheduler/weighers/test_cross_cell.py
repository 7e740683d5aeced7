# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.request import Destination
from novasched.scheduler.weighers.cross_cell import CrossCellWeigher
from tests.lab.builders import a_host, a_request, a_uuid

MAY_LEAVE = Destination(cell_uuid=a_uuid('cell1'), allow_cross_cell_move=True)


@pytest.mark.parametrize(('cell', 'weight'), [('cell1', 1), ('cell2', -1)])
def test_the_cell_that_a_server_is_in(cell, weight):
    """Hosts of the server's own cell are preferred when it may leave it."""
    request = a_request(requested_destination=MAY_LEAVE)
    assert CrossCellWeigher(Settings()).weigh(a_host(cell=cell), request) == weight


@pytest.mark.parametrize(
    ('wanted', 'applies'),
    [
        (None, False),
        (Destination(host='h'), False),
        (Destination(allow_cross_cell_move=True), False),
        (Destination(cell_uuid=a_uuid('cell1')), False),
        (MAY_LEAVE, True),
    ],
)
def test_which_moves_apply(wanted, applies):
    """A server that moves has a cell; only one that may leave it has a choice."""
    request = a_request(requested_destination=wanted)
    assert CrossCellWeigher(Settings()).applies(request) == applies
