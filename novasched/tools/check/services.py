# SPDX-License-Identifier: Apache-2.0
"""Connects to the databases (of ``[database]``, of the API, and of each cell), RabbitMQ
and Placement, and checks versions, credentials and rights."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import oslo_messaging
import sqlalchemy as sa
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1.discover import normalize_version_number
from kombu.connection import Connection
from oslo_config import cfg

from novasched.cells.database import DATABASE_ERRORS, Database, reason
from novasched.cells.engines import connect, filled
from novasched.cells.mappings import CELL0
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import Secrets, hide
from novasched.placement.api import MICROVERSION
from novasched.placement.client import PlacementClient
from novasched.rpc.oslo_messaging_internals import BROKER_ERRORS, broker_connection
from novasched.rpc.server import TOPIC, TRANSPORT_OPTION, make_transport
from novasched.scheduler.errors import (
    DatabaseUnavailable,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from novasched.service.build import (
    check_notification_queues,
    check_queues,
    http_adapter,
)
from novasched.tools.check.findings import Finding, Level, Question, answers
from novasched.tools.check.options import NovaConf

Findings = Iterator[Finding]

API_TABLES = (
    'cell_mappings',
    'host_mappings',
    'instance_mappings',
    'aggregates',
    'aggregate_hosts',
    'aggregate_metadata',
)
CELL_TABLES = ('compute_nodes', 'services', 'instances', 'migrations')
SCHEMAS = (('alembic_version', 'version_num'), ('migrate_version', 'version'))
"""Table and column with the version of a schema, in current and in older releases of
nova."""

PRODUCTS = {'mysql': 'MySQL', 'postgresql': 'PostgreSQL', 'sqlite': 'SQLite'}

Mapped = sa.Row[tuple[object, ...]]
"""A row of ``cell_mappings``."""


def check_database(group: str, nova_conf: NovaConf) -> Findings:
    """Check the database of ``[database]``, with the ``services`` row of novasched,
    or the API database.

    :param group: ``database`` or ``api_database``.
    """
    name = f'[{group}] connection'
    url = nova_conf.conf[group].connection
    if not url:
        yield Finding(Level.ERROR, name, 'not set; a database URL is required')
    elif group == 'database':
        yield _connect(nova_conf, group, url, name, _check_own_tables)
    else:
        yield _connect(nova_conf, group, url, name, _check_api_tables)


def check_cells(nova_conf: NovaConf) -> Findings:
    """Check the database of every cell at once, except cell0."""
    try:
        cells = _mappings(nova_conf.conf)
    except NovaschedError:
        # The check of the API database reports the error itself.
        yield Finding(Level.ERROR, 'cells', 'not known without the API database')
        return
    if not cells:
        text = 'there is no cell except cell0, so there is no host'
        yield Finding(Level.ERROR, 'cells', text)

    questions = []
    for cell in cells:
        if cell.disabled:
            text = 'disabled: no server is placed there'
            yield Finding(Level.NOTE, _name(cell), text)
        else:
            ask = functools.partial(_check_cell, nova_conf, cell)
            questions.append(Question(_name(cell), ask))

    secrets = Secrets(cell.database_connection for cell in cells)
    for finding in answers(questions, nova_conf.timeout):
        yield replace(finding, text=secrets.redact(finding.text))


def _check_cell(nova_conf: NovaConf, cell: Mapped) -> Findings:
    name = _name(cell)
    url = filled(cell.database_connection, nova_conf.conf.database.connection, name)
    if '{' in url:
        text = (
            'its URL is a template, and [database] connection cannot be read to fill it'
        )
        yield Finding(Level.ERROR, name, text)
    else:
        yield _connect(nova_conf, 'database', url, name, _check_cell_tables)


def _name(cell: Mapped) -> str:
    return f'cell {cell.name or cell.uuid}'


def _mappings(conf: cfg.ConfigOpts) -> Sequence[Mapped]:
    """The rows of all cells except cell0."""
    url = conf.api_database.connection or ''
    columns = ('uuid', 'name', 'disabled', 'database_connection')
    with closing(connect(conf.api_database, url, 'API database')) as api:
        return [row for row in api.rows('cell_mappings', columns) if row.uuid != CELL0]


def _connect(
    nova_conf: NovaConf,
    group: str,
    url: str,
    name: str,
    check_tables: Callable[[Database, bool], str],
) -> Finding:
    """Connect to a database once, without the retries of the daemon, and check its
    tables.

    :param group: group of the options of the connection.
    :param name: subject of the finding.
    :param check_tables: checks tables and rights, also for host discovery if its second
        argument is true, and returns a text about the schema.
    """
    settings = nova_conf.settings
    maps_hosts = (
        settings.periodic_enable and settings.discover_hosts_in_cells_interval >= 0
    )
    try:
        with closing(connect(nova_conf.conf[group], url, name)) as database:
            database.read(lambda connection: None)
            text = f'{_server(database)}, {check_tables(database, maps_hosts)}'
    except NovaschedError as error:
        text = str(error).removeprefix(f'{name}: ').removeprefix(f'{name} ')
        return Finding(Level.ERROR, name, text)
    return Finding(Level.OK, name, text)


def _check_own_tables(database: Database, maps_hosts: bool) -> str:
    table = database.table('services')
    update = _update(table, ['host'])
    insert = _insert(table, table.c.keys())
    _try_to_write(database, 'our row of services', update, insert)
    return _schema(database)


def _check_api_tables(database: Database, maps_hosts: bool) -> str:
    for name in API_TABLES:
        database.table(name)

    if maps_hosts:
        table = database.table('host_mappings')
        insert = _insert(table, ['created_at', 'cell_id', 'host'])
        _try_to_write(database, 'a mapping of a new host', insert)
    return _schema(database)


def _check_cell_tables(database: Database, maps_hosts: bool) -> str:
    for name in CELL_TABLES:
        database.table(name)

    table = database.table('compute_nodes')
    if maps_hosts:
        update = _update(table, ['mapped', 'updated_at'])
        _try_to_write(database, 'the mark of a mapped host', update)

    count = sa.select(sa.func.count()).select_from(table).where(table.c.deleted == 0)
    hosts = database.read(lambda connection: connection.execute(count).scalar_one())
    return f'{_schema(database)}, {hosts} compute nodes'


def _update(table: sa.Table, columns: Sequence[str]) -> sa.Update:
    """An update of no row, to try the right to update columns."""
    values = {name: table.c[name] for name in columns}
    return sa.update(table).where(sa.false()).values(values)


def _insert(table: sa.Table, columns: Sequence[str]) -> sa.Insert:
    """An insert of no row, to try the right to insert columns."""
    nothing = sa.select(*(table.c[name] for name in columns)).where(sa.false())
    return sa.insert(table).from_select(columns, nothing)


def _try_to_write(
    database: Database, subject: str, *statements: sa.Update | sa.Insert
) -> None:
    """Execute statements without an effect.

    :param subject: begins the text of the error.
    :raises DatabaseUnavailable: a statement is refused.
    """
    try:
        with database.engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)
    except DATABASE_ERRORS as error:
        text = f'{subject} cannot be written: {reason(error)}'
        raise DatabaseUnavailable(text) from None


def _server(database: Database) -> str:
    """The product and the version of a database server, as far as it reports them."""
    dialect = database.engine.dialect
    product = PRODUCTS.get(dialect.name, dialect.name)
    if getattr(dialect, 'is_mariadb', False):
        product = 'MariaDB'
    numbers = getattr(dialect, 'server_version_info', None) or ()
    version = '.'.join(map(str, numbers[:3]))
    return f'{product} {version}'.rstrip()


def _schema(database: Database) -> str:
    """The version of a schema; unknown to a user who may not read the table."""
    tables = sa.inspect(database.engine).get_table_names()
    for name, column in SCHEMAS:
        if name in tables:
            versions = [str(row[0]) for row in database.rows(name, [column])]
            return f'schema {", ".join(versions) or "of no version"}'
    return 'schema of no version'


RABBIT_PORT = 5672
NOTIFICATIONS_OPTION = '[oslo_messaging_notifications] transport_url'


def check_broker(nova_conf: NovaConf) -> Findings:
    """Connect to all hosts of the transport URL at once. If a host answers, failures of
    further hosts are warnings."""
    conf = nova_conf.conf
    try:
        transport = make_transport(conf)
        transport.cleanup()
        url = oslo_messaging.TransportURL.parse(conf)
    except ConfigError as error:
        yield Finding(Level.ERROR, error.option, str(error))
        return
    except ValueError:
        yield Finding(Level.ERROR, TRANSPORT_OPTION, 'it cannot be read as a URL')
        return

    if url.transport != 'rabbit':
        text = f'the driver {url.transport} is not checked'
        yield Finding(Level.NOTE, TRANSPORT_OPTION, text)
        return
    if not url.hosts:
        yield Finding(Level.ERROR, TRANSPORT_OPTION, 'it names no host')

    questions = []
    for host in url.hosts:
        name = f'{host.hostname or "localhost"}:{host.port or RABBIT_PORT}'
        ask = functools.partial(_ask_broker, transport, host, name)
        questions.append(Question(name, ask))
    findings = answers(questions, nova_conf.timeout)
    is_served = any(finding.level is Level.OK for finding in findings)
    for finding in findings:
        if is_served and finding.level is Level.ERROR:
            yield replace(finding, level=Level.WARNING)
        else:
            yield finding

    if is_served:
        try:
            check_queues(conf, nova_conf.service.host)
        except ConfigError as error:
            yield Finding(Level.ERROR, error.option, str(error))


def _ask_broker(transport: Any, host: Any, name: str) -> Findings:
    try:
        with broker_connection(transport, host) as link:
            properties = link.connection.server_properties
            product = properties.get('product', '')
            version = properties.get('version', '')
            server = f'{product} {version}'.strip() or 'a broker without a name'
            yield Finding(Level.OK, name, f'{server}, {_queue(link)}')
    except ConfigError as error:
        yield Finding(Level.ERROR, error.option, str(error))
    except BROKER_ERRORS as error:
        text = ' '.join(hide(error).split()) or type(error).__name__
        yield Finding(Level.ERROR, name, text)


def _queue(link: Connection) -> str:
    """Count the consumers of the schedulers' queue, without declaring the queue."""
    try:
        queue = link.channel().queue_declare(TOPIC, passive=True)
    except link.channel_errors:
        return f'no queue {TOPIC} yet'
    return f'{queue.consumer_count} consumers of the queue {TOPIC}'


def check_notifications(nova_conf: NovaConf) -> Findings:
    """Check the queues of notifications. All findings are warnings, since requests are
    served without notifications."""
    ask = functools.partial(_ask_notification_broker, nova_conf)
    question = Question(NOTIFICATIONS_OPTION, ask)
    for finding in answers([question], nova_conf.timeout):
        yield replace(finding, level=Level.WARNING)


def _ask_notification_broker(nova_conf: NovaConf) -> Findings:
    try:
        check_notification_queues(nova_conf.conf, nova_conf.service)
    except ConfigError as error:
        text = f'{error}. Notifications will be lost'
        yield Finding(Level.WARNING, error.option, text)


def check_placement(nova_conf: NovaConf) -> Findings:
    """Check the microversion and the credentials of Placement."""
    try:
        http = http_adapter(nova_conf.conf, 'placement', nova_conf.service)
        newest = _newest(http)
    except ConfigError as error:
        yield Finding(Level.ERROR, error.option, str(error))
        return
    except NovaschedError as error:
        yield Finding(Level.ERROR, '[placement]', str(error))
        return

    if normalize_version_number(newest) < normalize_version_number(MICROVERSION):
        text = f'its newest microversion is {newest}; {MICROVERSION} is needed (Train)'
        yield Finding(Level.ERROR, 'microversion', text)
    else:
        text = f'up to {newest}; {MICROVERSION} is used'
        yield Finding(Level.OK, 'microversion', text)

    client = PlacementClient(nova_conf.settings, http)
    try:
        client.check()
        client.aggregates(CELL0)  # no resource provider has this UUID
    except PlacementUnauthorized as error:
        yield Finding(Level.ERROR, 'credentials', f'not accepted: {error}')
    except PlacementUnavailable as error:
        yield Finding(Level.ERROR, 'credentials', f'not checked: {error}')
    else:
        yield Finding(Level.OK, 'credentials', 'accepted')


def _newest(http: adapter.Adapter) -> str:
    """The newest microversion, from Placement's root, which needs no credentials.

    :raises PlacementUnavailable: Placement does not answer, or the answer is not
        Placement's.
    :raises PlacementUnauthorized: keystone refuses the credentials, so its catalog
        cannot be read.
    """
    try:
        response = http.get('/', authenticated=False, raise_exc=False)
    except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
        raise PlacementUnauthorized(hide(error)) from None
    except (ks_exc.ClientException, OSError) as error:
        # An OSError is that of a missing file for TLS.
        raise PlacementUnavailable(hide(error)) from None

    try:
        newest = str(response.json()['versions'][0]['max_version'])
        normalize_version_number(newest)
    except (ValueError, KeyError, IndexError, TypeError):
        text = f'the server there (status {response.status_code}) is not Placement'
        raise PlacementUnavailable(text) from None
    return newest
