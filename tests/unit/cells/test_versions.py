# SPDX-License-Identifier: Apache-2.0
import pytest
import sqlalchemy as sa

from novasched.concurrency.single_flight import FROM_NOW
from novasched.tools.sandbox import databases as tables


@pytest.mark.parametrize(
    ('cell1', 'cell2', 'least'),
    [
        ([], [], 0),
        ([{'version': 73}], [], 73),
        ([{'version': 74}, {'version': 73}], [{'version': 75}], 73),
        ([{'version': 60, 'forced_down': True}, {'version': 73}], [], 73),
        ([{'version': 60, 'deleted': 1}, {'version': 73}], [], 73),
        ([{'version': 60, 'binary': 'nova-conductor'}, {'version': 73}], [], 73),
        ([{'version': 60, 'disabled': True}], [{'version': 73}], 60),
        ([{'version': 0}, {'version': 60}], [{'version': 73}], 73),
        ([{'version': None}], [{'version': 73}], 73),
    ],
)
def test_the_oldest_nova_compute(cloud, cell1, cell2, least):
    """Of all cells; services that are forced down or gone do not count."""
    for name, services in (('cell1', cell1), ('cell2', cell2)):
        for number, columns in enumerate(services):
            values = {'forced_down': False, **columns}
            cloud.add_service(f'h{number}', cloud.engines[name], **values)
    assert cloud.reader().minimum_version(FROM_NOW) == least


def test_disabled_cells_count(cloud):
    """A cell that takes no servers for now is upgraded all the same."""
    cloud.add_service('h', cloud.engines['cell1'], version=60, forced_down=False)
    cloud.add_service('h', cloud.engines['cell2'], version=73, forced_down=False)
    with cloud.api.begin() as connection:
        connection.execute(sa.update(tables.cell_mappings).values(disabled=True))
    assert cloud.reader().minimum_version(FROM_NOW) == 60


def test_a_dead_cell_does_not_count(cloud, caplog):
    """What does not answer cannot be given servers either."""
    cloud.add_service('h', cloud.engines['cell2'], version=73, forced_down=False)
    tables.services.drop(cloud.engines['cell1'])
    assert cloud.reader().minimum_version(FROM_NOW) == 73
    assert 'Failed to get computes for cell' in caplog.text
