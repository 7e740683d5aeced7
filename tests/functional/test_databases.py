# SPDX-License-Identifier: Apache-2.0
"""A database server that fails, and what its cells' hosts are to requests meanwhile;
and the daemon on PostgreSQL."""

import queue
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from traceback import walk_stack

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings

from novasched.cells import database
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.ports import Needs
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, NovaClient, checked, new_uuids
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_databases import EXAMPLE, STORY, NovaDatabases, Story
from tests.lab.postgresql import PostgreSQL
from tests.lab.processes import wait_until
from tests.lab.servers import MariaDB, create_database

from .test_discovery import SOON

SECONDS = 30
PATIENCE = 2
BOTH = {'h1', 'h2'}
WAITING = {
    'mysql': "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%%'",
    'postgresql': "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND pid != pg_backend_pid() AND wait_event_type = 'Lock'",
}
LEFT_ALONE = {
    f'cell cell1: no answer within {PATIENCE} s',
    "cell cell1: (2013, 'Lost connection to MySQL server during query (timed out)')",
}
"""Why MariaDB is not asked any more: a request, or PyMySQL, has noticed first that it
is silent."""
LOCK = {'mysql': 'LOCK TABLES {} WRITE', 'postgresql': 'LOCK TABLE {}'}
UNLOCK = {'mysql': 'UNLOCK TABLES', 'postgresql': 'ROLLBACK'}
KILL = {'mysql': 'KILL {}', 'postgresql': 'SELECT pg_terminate_backend({})'}

ON_MARIADB = pytest.mark.parametrize('server', [MariaDB], indirect=True)
ON_POSTGRESQL = pytest.mark.parametrize('server', [PostgreSQL], indirect=True)
BOTH_DRIVERS = pytest.mark.parametrize(
    'databases', ['psycopg2', 'psycopg'], indirect=True
)


@pytest.fixture(scope='module', params=[MariaDB, PostgreSQL])
def server(request):
    """A server of our own, with which a test does as it likes."""
    with closing(request.param()) as made:
        made.start()
        yield made


@pytest.fixture
def databases(server, request):
    """nova's tables, with a host in each cell; a driver of PostgreSQL may be asked
    for."""
    prefix = f'nova_{secrets.token_hex(4)}'
    driver = getattr(request, 'param', 'psycopg2')

    def create(name):
        return create_database(server.url, f'{prefix}_{name}').replace(
            'psycopg2', driver
        )

    made = NovaDatabases(create, PATIENCE)
    made.add_host('h1', 'cell1')
    made.add_host('h2', 'cell2')
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def reader(databases):
    with closing(databases.reader(cell_timeout=PATIENCE)) as made:
        wait_until(lambda: hosts(made) == BOTH, SECONDS, 'hosts')
        yield made


def hosts(reader):
    """What a request finds; nothing if no cell answers."""
    try:
        found = reader.read(None, a_request(), Needs(instances=True, images=True)).hosts
    except DatabaseUnavailable:
        return set()
    return {host.host for host in found.values()}


@contextmanager
def locked(engine, table):
    """Nobody else reads the table meanwhile."""
    with engine.connect() as connection:
        connection.exec_driver_sql(LOCK[engine.dialect.name].format(table))
        try:
            yield connection
        finally:
            connection.exec_driver_sql(UNLOCK[engine.dialect.name])


def waiting(engine):
    """The connections that wait for a lock, as they are now: a transaction of
    PostgreSQL sees them as they were when it looked first."""
    with engine.connect() as own:
        return set(own.exec_driver_sql(WAITING[engine.dialect.name]).scalars())


def test_a_restart(server, reader):
    """The first request after it sees all hosts, from however many connections there
    were."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(hosts, [reader] * 8)) == [BOTH] * 8
    server.stop()
    assert hosts(reader) == set()
    server.start()
    assert hosts(reader) == BOTH


def calls():
    """The number of threads that are in a call to a database."""
    return sum(
        any(each.f_code.co_filename == database.__file__ for each, _ in walk_stack(top))
        for top in sys._current_frames().values()
    )


def test_a_server_that_hangs(server, reader):
    """However many requests come, those that do not find it left alone yet are the only
    ones that leave a thread with it; it is used again when it goes on."""
    server.freeze()
    try:
        assert hosts(reader) == set()
        before = calls()
        assert [hosts(reader) for _ in range(20)] == [set()] * 20
        assert calls() <= before + 1  # a probe
    finally:
        server.thaw()
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cells')


def test_a_connection_that_is_cut(databases, reader):
    """What was being read is read once more, by the same request."""
    engine = databases.engines['cell1']
    dialect = engine.dialect.name
    with ThreadPoolExecutor(1) as pool, locked(engine, 'services') as own:
        asked = pool.submit(hosts, reader)
        wait_until(lambda: bool(waiting(engine)), SECONDS, 'query')
        [first] = waiting(engine)
        own.exec_driver_sql(KILL[dialect].format(first))
        wait_until(lambda: bool(waiting(engine) - {first}), SECONDS, 'second query')
        own.exec_driver_sql(UNLOCK[dialect])
        assert asked.result() == BOTH


@ON_POSTGRESQL
def test_the_server_does_not_wait_for_a_lock_for_ever(databases, reader):
    """Who has asked in vain leaves no process with it that waits for the end of a
    migration."""
    engine = databases.engines['cell1']
    with ThreadPoolExecutor(1) as pool, locked(engine, 'compute_nodes'):
        asked = pool.submit(hosts, reader)
        wait_until(lambda: bool(waiting(engine)), SECONDS, 'query')
        assert asked.result() == {'h2'}
        reader.cells.close()  # no probe comes that waits, too
        wait_until(lambda: not waiting(engine), SECONDS, 'end of what waits')


@ON_MARIADB
def test_a_table_that_is_locked(databases, reader):
    """Probes find out that it would be waited for, too, though the server answers."""
    [cell1] = [cell for cell in reader.cells.all() if cell.name == 'cell1']
    with locked(databases.engines['cell1'], 'compute_nodes') as own:
        assert hosts(reader) == {'h2'}
        probed = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%% LIMIT 1'"
        wait_until(
            lambda: own.exec_driver_sql(probed).scalar_one() > 0, SECONDS, 'probe'
        )
        assert hosts(reader) == {'h2'}
        with pytest.raises(DatabaseUnavailable) as left_alone:
            cell1.database.rows('services', ('id',))
        assert str(left_alone.value) in LEFT_ALONE
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cell')


@ON_MARIADB
def test_no_connection_is_left(databases, caplog):
    """The cell is left out, with the server's own words, as long as that is so."""
    name = databases.engines['cell1'].url.database
    admin = databases.engines['cell2']
    with admin.begin() as connection:
        connection.exec_driver_sql(
            "CREATE USER few IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 9"
        )
        connection.exec_driver_sql(f'GRANT SELECT ON `{name}`.* TO few')
    url = databases.engines['cell1'].url.set(username='few', password='x')
    with databases.api.begin() as connection:
        mapping = tables.cell_mappings
        values = {'database_connection': url.render_as_string(False)}
        connection.execute(
            sa.update(mapping).where(mapping.c.name == 'cell1').values(values)
        )
    with closing(databases.reader(cell_timeout=PATIENCE)) as reader:
        others = sa.create_engine(url, poolclass=sa.NullPool)
        with ExitStack() as held:
            for _ in range(9):
                held.enter_context(others.connect())
            assert hosts(reader) == {'h2'}
            assert 'max_user_connections' in caplog.text
        wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'connection')


@pytest.mark.parametrize(
    ('server', 'databases'),
    [(MariaDB, ''), (PostgreSQL, 'psycopg2'), (PostgreSQL, 'psycopg')],
    indirect=True,
)
def test_a_migration(databases, caplog):
    """Columns go and come while requests read them, in digests, too: each finds all
    hosts, as they are when nothing changes any more."""
    # A change of a table waits for those who read it, and they for the change.
    reader = databases.reader(cell_timeout=SECONDS)
    engine = databases.engines['cell1']
    rounds = queue.SimpleQueue[None]()
    migrations = (
        'ALTER TABLE compute_nodes DROP COLUMN cpu_allocation_ratio',
        'ALTER TABLE services DROP COLUMN disabled_reason',
        'ALTER TABLE compute_nodes ADD COLUMN cpu_allocation_ratio FLOAT DEFAULT 7',
        'ALTER TABLE services ADD COLUMN disabled_reason VARCHAR(255)',
        'ALTER TABLE instances DROP COLUMN project_id',
        'ALTER TABLE instances ADD COLUMN project_id VARCHAR(255)',
    )

    def migrate():
        for statement in migrations:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
            for _ in range(3):
                rounds.get(timeout=SECONDS)

    with closing(reader), ThreadPoolExecutor(1) as pool:
        done = pool.submit(migrate)
        while not done.done():
            assert hosts(reader) == BOTH
            rounds.put(None)
        done.result()
        [cell1] = [cell for cell in reader.cells.all() if cell.name == 'cell1']
        cell1.database.look_again()
        found = reader.read(None, a_request()).hosts.values()
    assert {host.host: host.cpu_allocation_ratio for host in found} == {
        'h1': 7.0,
        'h2': 4.0,
    }
    # oslo.db itself warns of an error of PostgreSQL that it does not know.
    ours = [each for each in caplog.records if each.name.startswith('nova')]
    assert [each for each in ours if each.levelname == 'WARNING'] == []


@ON_POSTGRESQL
@BOTH_DRIVERS
def test_every_change_is_seen_by_the_next_request(databases):
    """What a request sees is what a full read sees that is made for it."""

    @given(steps=STORY)
    @example(steps=EXAMPLE)
    @settings(max_examples=15, deadline=None)
    def tell(steps):
        story = Story(databases)
        story.tell(steps)
        story.close()

    tell()


@ON_POSTGRESQL
@BOTH_DRIVERS
def test_rows_are_read_that_have_changed(databases, reader):
    """The others are told by their digests, and stay with the server."""
    with databases.watched() as asked:
        assert hosts(reader) == BOTH
    named = ('FROM compute_nodes', 'FROM services')
    tables = [each for each, _ in asked if any(name in each for name in named)]
    silent = [each for each in tables if 'last_seen_up' in each]
    digests = [each for each in tables if 'sum(hashtextextended' in each]
    assert (len(silent), len(digests), len(tables)) == (2, 4, 4)


@ON_POSTGRESQL
def test_the_daemon(server, nova, rabbitmq, placement, directory):
    """With nova's own schemas instances are placed, moved and grouped; hosts change,
    come and are mapped; the service is up."""
    with ExitStack() as stack:
        cloud = NovaCloud(
            nova,
            directory,
            amqp_url=rabbitmq.url,
            database_url=server.url,
            placement_url=placement.url,
            cells=('cell1',),
        )
        stack.enter_context(closing(cloud))
        cloud.reset()
        for number in (1, 2):
            cloud.add_host(f'h{number}')
            cloud.add_aggregate(f'rack{number}', [f'h{number}'], zone=f'z{number}')
        cell1 = cloud.cells['cell1']
        client = stack.enter_context(closing(NovaClient(nova, cloud.config('client'))))
        daemon = stack.enter_context(Daemon(cloud, SOON))

        servers = new_uuids(4)
        assert {*client.chosen(*servers)} == BOTH
        assert all(cloud.allocations(server) for server in servers)
        assert [client.chosen(zone=zone) for zone in ('z1', 'z2')] == [['h1'], ['h2']]

        [first] = client.chosen()
        cloud.boot(servers[0], first, Flavor())
        destination = {'cell': cloud.cell_uuids['cell1']}
        moved = client.chosen(ignore_hosts=[first], destination=destination)
        assert moved == [*(BOTH - {first})]
        group = Group('anti-affinity', members=[servers[0]], hosts=[first])
        assert client.chosen(group=group) == moved
        assert {*client.chosen(hints={'same_host': [servers[0]]})} < BOTH
        assert client.chosen(force_hosts=['h2']) == ['h2']

        cell1.update('services', {'disabled': True}, host='h1', binary='nova-compute')
        assert {*client.chosen(*new_uuids(4))} == {'h2'}
        cell1.update('services', {'disabled': False}, host='h1', binary='nova-compute')

        findings = checked(daemon.config)
        for subject in (
            '[database] connection',
            '[api_database] connection',
            'cell cell1',
        ):
            level, text = findings[subject]
            assert (level, text.split()[0]) == ('ok', 'PostgreSQL')

        [row] = cloud.service_rows('nova-scheduler')
        assert (row['host'], row['version']) == (daemon.host, nova.service_version)

        new = Compute('h3', 'cell1')
        cell1.insert('compute_nodes', [{**new.node_row(), 'mapped': 0}])
        cell1.insert('services', [new.service_row(nova.service_version)])
        said = 'Discovered 1 new hosts: cell1:h3'
        wait_until(lambda: said in daemon.text(), SECONDS, 'discovery')
        assert cloud.api.rows('host_mappings', host='h3')
        assert 'Traceback' not in daemon.text()
        assert daemon.stop() == 0
