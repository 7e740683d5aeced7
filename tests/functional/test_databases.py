# SPDX-License-Identifier: Apache-2.0
"""A failing database server and the requests meanwhile, and the daemon on
PostgreSQL."""

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
from novasched.cells.instance_states import InstanceStates
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_host, a_needs, a_request, a_uuid
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
"""Messages about MariaDB after a timeout. Either a request or PyMySQL notices the
timeout first."""
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
    """A database server for the tests of this module, which stop it, hold it up and
    change its users."""
    with closing(request.param()) as server:
        server.start()
        yield server


@pytest.fixture
def databases(server, request):
    """nova's tables, with a host in every cell. The parameter is a driver of
    PostgreSQL."""
    prefix = f'nova_{secrets.token_hex(4)}'
    driver = getattr(request, 'param', 'psycopg2')

    def create(name):
        url = create_database(server.url, f'{prefix}_{name}')
        return url.replace('psycopg2', driver)

    databases = NovaDatabases(create, PATIENCE)
    databases.add_host('h1', 'cell1')
    databases.add_host('h2', 'cell2')
    try:
        yield databases
    finally:
        databases.close()


@pytest.fixture
def reader(databases):
    with closing(databases.reader(cell_timeout=PATIENCE)) as reader:
        wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'hosts')
        yield reader


def hosts(reader):
    """The names of the hosts that a request sees; none if no cell answers."""
    needs = a_needs(instances=True, images=True)
    try:
        snapshot = reader.read(None, a_request(), needs)
    except DatabaseUnavailable:
        return set()
    return {host.host for host in snapshot.hosts.values()}


def cell1_of(reader):
    [cell1] = [cell for cell in reader.cells.all() if cell.name == 'cell1']
    return cell1


@contextmanager
def locked(engine, table):
    """Lock a table against all readers while the context lasts; yields the connection
    that holds the lock."""
    with engine.connect() as connection:
        connection.exec_driver_sql(LOCK[engine.dialect.name].format(table))
        try:
            yield connection
        finally:
            connection.exec_driver_sql(UNLOCK[engine.dialect.name])


def waiting(engine):
    """The IDs of the connections that wait for a lock.

    Every call opens a new connection: within a transaction, PostgreSQL repeats its
    first answer.
    """
    with engine.connect() as connection:
        ids = connection.exec_driver_sql(WAITING[engine.dialect.name]).scalars()
        return set(ids)


STRANGE = (
    '\U0001f600',
    '\x00',
    'é' * 36,
    '\ud800',
    '%',
    "'",
    '\n',
    'x' * 70000,
    '\U00100000',
)
"""Texts that a column of UUIDs cannot hold. utf8mb3 has no emoji, and PostgreSQL refuses
a NUL."""


def test_a_text_that_is_no_uuid_matches_no_row(reader):
    """Hints, members of groups, pending claims and allocations may name an instance by
    any text: no cell fails, and no instance is found."""
    host = a_host('h1', cell='cell1')
    for text in STRANGE:
        request = a_request(instance_uuids=(text,), instance_uuid=text)
        reader.pending_claims.choose(host, request, None, {})

        for needs in (a_needs(named=[text]), a_needs(located=[text])):
            snapshot = reader.read(None, request, needs)
            assert {host.host for host in snapshot.hosts.values()} == BOTH, ascii(text)

        states = InstanceStates(reader.cells)
        assert states.find(text, [a_uuid('h1')]) is None, ascii(text)


def test_a_request_after_a_database_restart_sees_all_hosts(server, reader):
    """The first request after a restart sees all hosts, however many connections there
    were before."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(hosts, [reader] * 8)) == [BOTH] * 8
    server.stop()
    assert hosts(reader) == set()
    server.start()
    assert hosts(reader) == BOTH


def calls():
    """The number of threads in a call to a database."""
    count = 0
    for top_frame in sys._current_frames().values():
        files = {frame.f_code.co_filename for frame, _ in walk_stack(top_frame)}
        count += database.__file__ in files
    return count


def test_a_hanging_database_costs_later_requests_no_thread(server, reader):
    """A hanging server costs the first requests a thread, until the daemon leaves the
    server alone; later requests cost no thread. The daemon uses the server again when
    the server goes on."""
    server.freeze()
    try:
        assert hosts(reader) == set()
        before = calls()
        for _ in range(20):
            assert hosts(reader) == set()
        assert calls() <= before + 1  # a probe
    finally:
        server.thaw()
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cells')


def test_a_request_reads_again_after_a_cut_connection(databases, reader):
    """A request whose connection is cut reads the rows again."""
    engine = databases.engines['cell1']
    dialect = engine.dialect.name
    with ThreadPoolExecutor(1) as pool, locked(engine, 'services') as admin:
        request = pool.submit(hosts, reader)
        wait_until(lambda: bool(waiting(engine)), SECONDS, 'query')

        [first] = waiting(engine)
        admin.exec_driver_sql(KILL[dialect].format(first))
        wait_until(lambda: bool(waiting(engine) - {first}), SECONDS, 'second query')

        admin.exec_driver_sql(UNLOCK[dialect])
        assert request.result() == BOTH


@ON_POSTGRESQL
def test_a_given_up_request_leaves_no_lock_wait_on_postgresql(databases, reader):
    """After a request has given up, the server has no process of the request that waits
    for the end of a migration."""
    engine = databases.engines['cell1']
    with ThreadPoolExecutor(1) as pool, locked(engine, 'compute_nodes'):
        request = pool.submit(hosts, reader)
        wait_until(lambda: bool(waiting(engine)), SECONDS, 'query')
        assert request.result() == {'h2'}

        reader.cells.close()  # otherwise probes would wait too
        wait_until(lambda: not waiting(engine), SECONDS, 'end of what waits')


@ON_MARIADB
def test_a_cell_with_a_locked_table_stays_unused(databases, reader):
    """The server answers, but a probe of the locked table gets no answer, so that the
    cell stays unused until the table is unlocked."""
    probes = (
        'SELECT count(*) FROM information_schema.processlist'
        " WHERE info LIKE '%% LIMIT 1'"
    )
    cell1 = cell1_of(reader)
    with locked(databases.engines['cell1'], 'compute_nodes') as admin:

        def is_probed():
            return admin.exec_driver_sql(probes).scalar_one() > 0

        assert hosts(reader) == {'h2'}
        wait_until(is_probed, SECONDS, 'probe')
        assert hosts(reader) == {'h2'}

        with pytest.raises(DatabaseUnavailable) as left_alone:
            cell1.database.rows('services', ('id',))
        assert str(left_alone.value) in LEFT_ALONE
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cell')


@ON_MARIADB
def test_a_cell_without_free_connections_is_left_out(databases, caplog):
    """The request leaves out a cell whose server has no free connections, and logs the
    server's message."""
    name = databases.engines['cell1'].url.database
    admin = databases.engines['cell2']
    with admin.begin() as connection:
        connection.exec_driver_sql(
            "CREATE USER few IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 9"
        )
        connection.exec_driver_sql(f'GRANT SELECT ON `{name}`.* TO few')

    url = databases.engines['cell1'].url.set(username='few', password='x')
    mapping = tables.cell_mappings
    values = {'database_connection': url.render_as_string(False)}
    with databases.api.begin() as connection:
        connection.execute(
            sa.update(mapping).where(mapping.c.name == 'cell1').values(values)
        )

    with closing(databases.reader(cell_timeout=PATIENCE)) as reader:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with ExitStack() as connections:
            for _ in range(9):
                connections.enter_context(engine.connect())
            # On a busy machine, the other cell may also answer too late at first.
            wait_until(lambda: hosts(reader) == {'h2'}, SECONDS, 'answer of a cell')
            assert 'max_user_connections' in caplog.text
        wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'connection')


@pytest.mark.parametrize(
    ('server', 'databases'),
    [(MariaDB, ''), (PostgreSQL, 'psycopg2'), (PostgreSQL, 'psycopg')],
    indirect=True,
)
def test_requests_find_all_hosts_during_a_schema_migration(databases, caplog):
    """Columns go and come while requests read the columns, and digests of them. Every
    request finds all hosts, and a request after the migration sees the new values."""
    # A change of a table waits for its readers, and the readers wait for the change.
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
        """Run the migrations, with three requests after every statement."""
        for statement in migrations:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
            for _ in range(3):
                rounds.get(timeout=SECONDS)

    with closing(reader), ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate)
        while not migration.done():
            assert hosts(reader) == BOTH
            rounds.put(None)
        migration.result()

        cell1_of(reader).database.look_again()
        snapshot = reader.read(None, a_request())

    ratios = {host.host: host.cpu_allocation_ratio for host in snapshot.hosts.values()}
    assert ratios == {'h1': 7.0, 'h2': 4.0}
    # oslo.db warns of an error of PostgreSQL that it does not know; novasched does not.
    for record in caplog.records:
        if record.name.startswith('nova'):
            assert record.levelname != 'WARNING'


@ON_POSTGRESQL
@BOTH_DRIVERS
def test_every_change_is_seen_by_the_next_request(databases):
    """A request sees the same hosts as a full read at the same time."""

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
def test_a_request_reads_changed_rows_only(databases, reader):
    """A request reads changed rows only. Digests tell that the remaining rows are
    unchanged."""
    with databases.watched() as watched:
        assert hosts(reader) == BOTH

    statements = []
    for statement, _ in watched:
        if 'FROM compute_nodes' in statement or 'FROM services' in statement:
            statements.append(statement)
    heartbeats = [line for line in statements if 'last_seen_up' in line]
    digests = [line for line in statements if 'sum(hashtextextended' in line]
    assert (len(heartbeats), len(digests), len(statements)) == (2, 4, 4)


@pytest.fixture
def cloud_on_postgresql(server, nova, rabbitmq, placement, directory):
    """A cloud of two hosts in different availability zones, with nova's own schemas."""
    cloud = NovaCloud(
        nova,
        directory,
        amqp_url=rabbitmq.url,
        database_url=server.url,
        placement_url=placement.url,
        cells=('cell1',),
    )
    with closing(cloud):
        cloud.reset()
        for number in (1, 2):
            cloud.add_host(f'h{number}')
            cloud.add_aggregate(f'rack{number}', [f'h{number}'], zone=f'z{number}')
        yield cloud


@ON_POSTGRESQL
def test_the_daemon_places_instances_with_postgresql_databases(
    cloud_on_postgresql, nova
):
    """On PostgreSQL instances are placed, moved and grouped, hosts change, come and are
    mapped, and the service of the scheduler is up."""
    cloud = cloud_on_postgresql
    cell1 = cloud.cells['cell1']
    with (
        closing(NovaClient(nova, cloud.config('client'))) as client,
        Daemon(cloud, SOON) as daemon,
    ):
        servers = new_uuids(4)
        assert {*client.chosen(*servers)} == BOTH
        for server in servers:
            assert cloud.allocations(server)
        assert client.chosen(zone='z1') == ['h1']
        assert client.chosen(zone='z2') == ['h2']

        [server] = new_uuids()
        [first] = client.chosen(server)
        cloud.boot(server, first, Flavor())
        destination = {'cell': cloud.cell_uuids['cell1']}
        moved = client.chosen(ignore_hosts=[first], destination=destination)
        assert moved == [*(BOTH - {first})]
        group = Group('anti-affinity', members=[server], hosts=[first])
        assert client.chosen(group=group) == moved
        assert {*client.chosen(hints={'same_host': [server]})} < BOTH
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
        line = 'Discovered 1 new hosts: cell1:h3'
        wait_until(lambda: line in daemon.text(), SECONDS, 'discovery')
        assert cloud.api.rows('host_mappings', host='h3')
        assert 'Traceback' not in daemon.text()
        assert daemon.stop() == 0
