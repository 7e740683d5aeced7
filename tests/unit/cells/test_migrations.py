# SPDX-License-Identifier: Apache-2.0
"""Tables that ``nova-manage db sync`` changes while they are in use."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from novasched.cells.database import Database
from novasched.cells.discovery import Discovery
from novasched.cells.flavors import find_flavor
from novasched.cells.servicegroup import DatabaseServiceGroup, Heartbeat
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.tools.sandbox import databases as tables
from tests.lab.nova_databases import hosts_of


@pytest.fixture
def reader(cloud):
    cloud.add_host('h1', disk_allocation_ratio=2.0)
    cloud.add_aggregate(1, ['h1'])
    cloud.add(
        cloud.api,
        tables.flavors,
        id=1,
        name='small',
        flavorid='1',
        vcpus=1,
        memory_mb=1,
        root_gb=1,
    )
    cloud.add_service('h2', cloud.engines['cell1'], forced_down=False, version=73)
    with closing(cloud.reader()) as made:
        yield made


@pytest.fixture
def own(cloud):
    with closing(Database(cloud.engines['cell1'], '[database] connection')) as made:
        yield made


def of(cloud, own):
    """All work in the databases, by name."""
    group = DatabaseServiceGroup(60)

    def now():
        return cloud.now

    heartbeat = Heartbeat(own, cloud.cells.enabled, 'ctl1', now)
    discovery = Discovery(cloud.cells, own, group, 'ctl1', now)
    return {
        'hosts': lambda reader: [host.service.up for host in hosts_of(reader).values()],
        'instances': lambda reader: [*hosts_of(reader, instances=True)],
        'version': lambda reader: reader.snapshot().host_snapshot.minimum_version,
        'cells': lambda reader: [
            x.name for x in reader.cells.read().values() if not x.disabled
        ],
        'flavor': lambda reader: find_flavor(reader.cells.api, 'small').name,
        'joining': lambda reader: heartbeat.register(),
        'heartbeat': lambda reader: heartbeat.report_state(),
        'discovery': lambda reader: discovery.run(),
    }


@pytest.mark.parametrize(
    ('work', 'where', 'table', 'column'),
    [
        ('hosts', 'cell1', 'compute_nodes', 'disk_allocation_ratio'),
        ('hosts', 'cell1', 'services', 'disabled_reason'),
        ('hosts', 'cell1', 'services', 'forced_down'),
        ('instances', 'cell1', 'instances', 'project_id'),
        ('version', 'cell1', 'services', 'version'),
        ('cells', 'api', 'cell_mappings', 'disabled'),
        ('flavor', 'api', 'flavors', 'swap'),
        ('joining', 'cell1', 'services', 'version'),
        ('heartbeat', 'cell1', 'services', 'updated_at'),
        ('discovery', 'cell1', 'services', 'forced_down'),
    ],
)
def test_statements_go_on_without_a_dropped_column(
    cloud, reader, own, work, where, table, column, caplog
):
    """Statements go on without a dropped column, and without a warning."""
    ask = of(cloud, own)[work]
    before = ask(reader)
    cloud.sql(where, f'ALTER TABLE {table} DROP COLUMN {column}')
    assert ask(reader) == {'version': 0}.get(work, before)
    levels = [record.levelno for record in caplog.records]
    assert max(levels, default=logging.NOTSET) < logging.WARNING


def test_reflecting_an_unchanged_table_keeps_the_same_object(cloud, own):
    """If no column has changed, tables stay the same objects, and kept statements stay
    valid."""
    before = own.table('services')
    own.look_again()
    assert own.table('services') is before

    cloud.sql('cell1', 'ALTER TABLE services RENAME TO lost')
    own.look_again()
    with pytest.raises(DatabaseUnavailable, match='has no table services'):
        own.rows('services', ('host',))


def test_a_table_stays_the_same_throughout_a_transaction(own, cloud):
    """A transaction keeps its table even if another thread reflects the table again: a
    statement with both would join the table with itself."""
    own.table('services')
    meanwhile = threading.Event()
    looked = threading.Event()

    def condition(columns):
        meanwhile.set()
        assert looked.wait(10)
        assert own.table('services').c.id is columns.id
        return columns.id > 0

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(own.rows, 'services', ('host',), condition)
        assert meanwhile.wait(10)
        cloud.sql('cell1', 'ALTER TABLE services ADD COLUMN more INTEGER')
        own.look_again()
        looked.set()
        assert asked.result() == []
    assert 'more' in own.table('services').c
