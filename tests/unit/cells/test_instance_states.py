# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.cells.instance_states import InstanceStates
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.instance import InstanceState
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_uuid

SERVER = a_uuid('server')


@pytest.fixture
def reader(cloud):
    cloud.add_host('one', 'cell1')
    cloud.add_host('two', 'cell1')
    cloud.cells.refresh()
    return InstanceStates(cloud.cells)


def find(reader):
    return reader.find(SERVER, [a_uuid('one'), a_uuid('a shared provider')])


def add_mapping(cloud, cell_id):
    row = {'instance_uuid': SERVER, 'cell_id': cell_id, 'project_id': 'project'}
    cloud.add(cloud.api, tables.instance_mappings, **row)


@pytest.mark.parametrize(
    ('cell_id', 'state'),
    [(None, InstanceState(building=True)), (1, InstanceState(gone=True))],
    ids=['before it has a cell', 'in cell0'],
)
def test_the_mapping_tells_the_state_of_an_instance_without_a_cell(
    cloud, reader, cell_id, state
):
    """Every instance has a mapping. The mapping alone tells of a build in progress, and
    of a build that was refused."""
    assert find(reader) is None
    add_mapping(cloud, cell_id)
    assert find(reader) == state


@pytest.mark.parametrize(
    ('row', 'migrations', 'state'),
    [
        pytest.param(
            {'host': 'two', 'vm_state': 'active'}, [], {'host': 'two'}, id='at rest'
        ),
        pytest.param(
            {'vm_state': 'building', 'task_state': None},
            [],
            {'building': True},
            id='building',
        ),
        pytest.param(
            {'host': 'two', 'task_state': 'migrating'},
            [],
            {'host': 'two', 'task': 'migrating'},
            id='task',
        ),
        pytest.param(
            {'host': 'two', 'vm_state': 'active'},
            ['error', 'pre-migrating'],
            {'host': 'two', 'task': 'pre-migrating'},
            id='evacuated, and its host not written yet',
        ),
        pytest.param(
            {'host': 'two'},
            [
                'done',
                'completed',
                'confirmed',
                'reverted',
                'failed',
                'error',
                'cancelled',
            ],
            {'host': 'two'},
            id='moved before',
        ),
        pytest.param(
            {'host': 'two', 'deleted': 5},
            [],
            {'gone': True, 'host': 'two'},
            id='deleted',
        ),
    ],
)
def test_state_of_an_instance_comes_from_row_migrations_and_providers(
    cloud, reader, row, migrations, state
):
    """The state comes from the row of the instance, its migrations, and the hosts of
    the providers."""
    add_mapping(cloud, 2)
    cell = cloud.engines['cell1']
    cloud.add(cell, tables.instances, uuid=SERVER, **{'deleted': 0, **row})
    for status in migrations:
        cloud.add(
            cell, tables.migrations, instance_uuid=SERVER, status=status, deleted=0
        )
    assert find(reader) == InstanceState(hosts=frozenset({'one'}), **state)


def test_the_host_of_a_claim_is_found_in_another_cell(cloud, reader):
    """A new instance may have claims in two cells. The host of a claim is found in
    either cell."""
    add_mapping(cloud, 2)
    cloud.add(cloud.engines['cell1'], tables.instances, uuid=SERVER, host='one')
    cloud.add_host('far', 'cell2')
    cloud.cells.refresh()

    state = reader.find(SERVER, [a_uuid('far'), a_uuid('a shared provider')])
    assert state == InstanceState(host='one', hosts=frozenset({'far'}))
    state = reader.find(SERVER, [a_uuid('a shared provider')])
    assert state == InstanceState(host='one')


@pytest.mark.parametrize(
    ('kind', 'status', 'hosts'),
    [
        ('evacuation', 'done', {'one'}),
        ('evacuation', 'completed', set()),
        ('resize', 'done', set()),
    ],
)
def test_a_host_counts_as_evacuated_until_the_migration_completes(
    cloud, reader, kind, status, hosts
):
    """An evacuation is done until the source is back, and completed afterwards."""
    add_mapping(cloud, 2)
    cell = cloud.engines['cell1']
    cloud.add(cell, tables.instances, uuid=SERVER, host='two', deleted=0)
    cloud.add(
        cell,
        tables.migrations,
        instance_uuid=SERVER,
        migration_type=kind,
        source_compute='one',
        status=status,
        deleted=0,
    )
    assert find(reader).evacuated_from == hosts


@pytest.mark.parametrize('cell_id', [2, 99], ids=['no row', 'no such cell'])
def test_the_state_of_an_instance_without_a_row_is_unknown(cloud, reader, cell_id):
    """Without a row the state is unknown."""
    add_mapping(cloud, cell_id)
    with pytest.raises(DatabaseUnavailable):
        find(reader)
