# SPDX-License-Identifier: Apache-2.0
"""The databases (our own, the API's, and each cell's), RabbitMQ and Placement: there,
new enough, and willing to talk to us."""

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
from novasched.rpc.server import TOPIC, make_transport
from novasched.scheduler.errors import (
    DatabaseUnavailable,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from novasched.service.build import http_adapter
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
"""Where the version of a schema is written, by today's and by older releases of
nova."""
PRODUCTS = {'mysql': 'MySQL', 'postgresql': 'PostgreSQL', 'sqlite': 'SQLite'}

Mapped = sa.Row[tuple[object, ...]]
"""A row of ``cell_mappings``."""


def check_database(group: str, nova_conf: NovaConf) -> Findings:
    """Look at our own database, in which our row of services is written, or at the
    API's."""
    probe = _look_at_own if group == 'database' else _look_at_api
    name = f'[{group}] connection'
    url = nova_conf.conf[group].connection
    if url:
        yield _look(nova_conf, group, url, name, probe)
    else:
        yield Finding(Level.ERROR, name, 'not set; the URL of a database is needed')


def check_cells(nova_conf: NovaConf) -> Findings:
    """Every cell that the API database maps; its own troubles are told by its own
    check."""
    try:
        cells = _mappings(nova_conf.conf)
    except NovaschedError:
        yield Finding(Level.ERROR, 'cells', 'not known without the API database')
        return
    if not cells:
        yield Finding(Level.ERROR, 'cells', 'there is none but cell0, so no host')
    questions = []
    for cell in cells:
        if cell.disabled:
            yield Finding(Level.NOTE, _name(cell), 'disabled: no server goes there')
        else:
            ask = functools.partial(_check_cell, nova_conf, cell)
            questions.append(Question(_name(cell), ask))
    hidden = Secrets(cell.database_connection for cell in cells)
    for each in answers(questions, nova_conf.timeout):
        yield replace(each, text=hidden.redact(each.text))


def _check_cell(nova_conf: NovaConf, cell: Mapped) -> Findings:
    name = _name(cell)
    url = filled(cell.database_connection, nova_conf.conf.database.connection, name)
    if '{' in url:
        text = (
            'its URL is a template, and [database] connection cannot be read to fill it'
        )
        yield Finding(Level.ERROR, name, text)
    else:
        yield _look(nova_conf, 'database', url, name, _look_at_cell)


def _name(cell: Mapped) -> str:
    return f'cell {cell.name or cell.uuid}'


def _mappings(conf: cfg.ConfigOpts) -> Sequence[Mapped]:
    """The rows of all cells but cell0."""
    url = conf.api_database.connection
    wanted = ('uuid', 'name', 'disabled', 'database_connection')
    with closing(connect(conf.api_database, url or '', 'API database')) as api:
        return [row for row in api.rows('cell_mappings', wanted) if row.uuid != CELL0]


def _look(
    nova_conf: NovaConf,
    group: str,
    url: str,
    name: str,
    probe: Callable[[Database, bool], str],
) -> Finding:
    """Connect once, without the retries of a daemon that waits for its database."""
    settings = nova_conf.settings
    maps_hosts = (
        settings.periodic_enable and settings.discover_hosts_in_cells_interval >= 0
    )
    try:
        with closing(connect(nova_conf.conf[group], url, name)) as database:
            database.read(lambda connection: None)
            text = f'{_server(database)}, {probe(database, maps_hosts)}'
    except NovaschedError as error:
        text = str(error).removeprefix(f'{name}: ').removeprefix(f'{name} ')
        return Finding(Level.ERROR, name, text)
    return Finding(Level.OK, name, text)


def _look_at_own(database: Database, maps_hosts: bool) -> str:
    table = database.table('services')
    change = _update(table, ['host'])
    add = _insert(table, table.c.keys())
    _may_write(database, 'our row of services', change, add)
    return _schema(database)


def _look_at_api(database: Database, maps_hosts: bool) -> str:
    for name in API_TABLES:
        database.table(name)
    if maps_hosts:
        table = database.table('host_mappings')
        add = _insert(table, ['created_at', 'cell_id', 'host'])
        _may_write(database, 'a mapping of a new host', add)
    return _schema(database)


def _look_at_cell(database: Database, maps_hosts: bool) -> str:
    for name in CELL_TABLES:
        database.table(name)
    if maps_hosts:
        change = _update(database.table('compute_nodes'), ['mapped', 'updated_at'])
        _may_write(database, 'that a host is mapped', change)
    table = database.table('compute_nodes')
    count = sa.select(sa.func.count()).select_from(table).where(table.c.deleted == 0)
    hosts = database.read(lambda connection: connection.execute(count).scalar_one())
    return f'{_schema(database)}, {hosts} compute nodes'


def _update(table: sa.Table, columns: Sequence[str]) -> sa.Update:
    """One that changes no row."""
    return (
        sa.update(table)
        .where(sa.false())
        .values({name: table.c[name] for name in columns})
    )


def _insert(table: sa.Table, columns: Sequence[str]) -> sa.Insert:
    """One that adds no row."""
    nothing = sa.select(*(table.c[name] for name in columns)).where(sa.false())
    return sa.insert(table).from_select(columns, nothing)


def _may_write(
    database: Database, what: str, *statements: sa.Update | sa.Insert
) -> None:
    try:
        with database.engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)
    except DATABASE_ERRORS as error:
        text = f'{what} cannot be written: {reason(error)}'
        raise DatabaseUnavailable(text) from None


def _server(database: Database) -> str:
    """The product and the version of a database server, as far as it says them."""
    dialect = database.engine.dialect
    product = PRODUCTS.get(dialect.name, dialect.name)
    if getattr(dialect, 'is_mariadb', False):
        product = 'MariaDB'
    numbers = getattr(dialect, 'server_version_info', None) or ()
    return ' '.join([product, *filter(None, ['.'.join(map(str, numbers[:3]))])])


def _schema(database: Database) -> str:
    tables = sa.inspect(database.engine).get_table_names()
    for name, column in SCHEMAS:
        if name in tables:
            rows = database.rows(name, [column])
            return f'schema {", ".join(str(row[0]) for row in rows) or "of no version"}'
    return 'schema of no version'


TRANSPORT_OPTION = '[DEFAULT] transport_url'
RABBIT_PORT = 5672


def check_broker(nova_conf: NovaConf) -> Findings:
    """Ask all hosts of the transport URL, at once."""
    conf = nova_conf.conf
    try:
        transport = make_transport(conf)
        transport.cleanup()
        url = oslo_messaging.TransportURL.parse(conf)
    except (ConfigError, ValueError) as error:
        if isinstance(error, ConfigError):
            text = str(error)
        else:
            text = 'it cannot be read as a URL'
        yield Finding(Level.ERROR, TRANSPORT_OPTION, text)
        return
    if url.transport != 'rabbit':
        text = f'the driver {url.transport} is not looked into'
        yield Finding(Level.NOTE, TRANSPORT_OPTION, text)
        return
    if not url.hosts:
        yield Finding(Level.ERROR, TRANSPORT_OPTION, 'it names no host')
    several = []
    for host in url.hosts:
        name = f'{host.hostname or "localhost"}:{host.port or RABBIT_PORT}'
        ask = functools.partial(_ask_broker, transport, host, name)
        several.append(Question(name, ask))
    found = answers(several, nova_conf.timeout)
    serves = any(each.level is Level.OK for each in found)
    for each in found:
        spared = serves and each.level is Level.ERROR
        yield replace(each, level=Level.WARNING) if spared else each


def _ask_broker(transport: Any, host: Any, name: str) -> Findings:
    try:
        with broker_connection(transport, host) as link:
            said = link.connection.server_properties
            product = ' '.join(
                str(said.get(key, '')) for key in ('product', 'version')
            ).strip()
            text = f'{product or "a broker without a name"}, {_queue(link)}'
            yield Finding(Level.OK, name, text)
    except BROKER_ERRORS as error:
        text = ' '.join(hide(error).split()) or type(error).__name__
        yield Finding(Level.ERROR, name, text)


def _queue(link: Connection) -> str:
    """Count the schedulers that take requests now, without declaring the queue."""
    try:
        found = link.channel().queue_declare(TOPIC, passive=True)
    except link.channel_errors:
        return f'no queue {TOPIC} yet'
    return f'{found.consumer_count} consumers of the queue {TOPIC}'


def check_placement(nova_conf: NovaConf) -> Findings:
    """See that Placement is new enough, and accepts our credentials."""
    try:
        http = http_adapter(nova_conf.conf, 'placement', nova_conf.service)
        newest = _newest(http)
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
        yield Finding(Level.ERROR, 'credentials', f'not tried out: {error}')
    else:
        yield Finding(Level.OK, 'credentials', 'accepted')


def _newest(http: adapter.Adapter) -> str:
    """The newest microversion, which Placement tells everybody at its root.

    :raises PlacementUnavailable: it does not answer, or somebody else does.
    :raises PlacementUnauthorized: keystone, which knows where it is, refuses us.
    """
    try:
        response = http.get('/', authenticated=False, raise_exc=False)
    except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
        raise PlacementUnauthorized(hide(error)) from None
    except (ks_exc.ClientException, OSError) as error:  # the latter of the files of TLS
        raise PlacementUnavailable(hide(error)) from None
    try:
        newest = str(response.json()['versions'][0]['max_version'])
        normalize_version_number(newest)
    except (ValueError, KeyError, IndexError, TypeError):
        text = f'what answers there ({response.status_code}) is not Placement'
        raise PlacementUnavailable(text) from None
    return newest
