# SPDX-License-Identifier: Apache-2.0
"""The databases: our own, the API's, and each cell's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa
from oslo_config import cfg

from novasched.cells.database import DATABASE_ERRORS, Database, reason
from novasched.cells.engines import connect, filled
from novasched.cells.mappings import CELL0
from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import Secrets
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.tools.check.findings import Finding, Level, Question, answers
from novasched.tools.check.options import NovaConf

API_TABLES = (
    'cell_mappings', 'host_mappings', 'instance_mappings',
    'aggregates', 'aggregate_hosts', 'aggregate_metadata',
)  # fmt: skip
CELL_TABLES = ('compute_nodes', 'services', 'instances', 'migrations')
SCHEMAS = (('alembic_version', 'version_num'), ('migrate_version', 'version'))
"""Where the version of a schema is written, by today's and by older releases of nova."""
PRODUCTS = {'mysql': 'MySQL', 'postgresql': 'PostgreSQL', 'sqlite': 'SQLite'}

Mapped = sa.Row[tuple[object, ...]]
"""A row of ``cell_mappings``."""
Probe = Callable[[Database, bool], str]
"""Text on a database that answers, given whether this process maps the hosts of new computes.

:raises NovaschedError: it cannot be used.
"""


def check(group: str, nova_conf: NovaConf) -> Iterator[Finding]:
    """Look at our own database, in which our row of services is written, or at the API's."""
    probe = _look_at_own if group == 'database' else _look_at_api
    name, url = f'[{group}] connection', nova_conf.conf[group].connection
    if url:
        yield _look(nova_conf, group, url, name, probe)
    else:
        yield Finding(Level.ERROR, name, 'not set; the URL of a database is needed')


def check_cells(nova_conf: NovaConf) -> Iterator[Finding]:
    """Every cell that the API database maps; its own troubles are told by its own check."""
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


def _check_cell(nova_conf: NovaConf, cell: Mapped) -> Iterator[Finding]:
    name = _name(cell)
    url = filled(cell.database_connection, nova_conf.conf.database.connection, name)
    if '{' in url:
        text = 'its URL is a template, and [database] connection cannot be read to fill it'
        yield Finding(Level.ERROR, name, text)
    else:
        yield _look(nova_conf, 'database', url, name, _look_at_cell)


def _name(cell: Mapped) -> str:
    return f'cell {cell.name or cell.uuid}'


def _mappings(conf: cfg.ConfigOpts) -> Sequence[Mapped]:
    """The rows of all cells but cell0."""
    api = connect(conf.api_database, conf.api_database.connection or '', 'API database')
    try:
        wanted = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        return [row for row in api.rows('cell_mappings', wanted) if row.uuid != CELL0]
    finally:
        api.close()


def _look(nova_conf: NovaConf, group: str, url: str, name: str, probe: Probe) -> Finding:
    """Connect once, without the retries of a daemon that waits for its database."""
    settings = nova_conf.settings
    maps_hosts = settings.periodic_enable and settings.discover_hosts_in_cells_interval >= 0
    try:
        database = connect(nova_conf.conf[group], url, name)
        try:
            database.read(lambda connection: None)
            text = f'{_server(database)}, {probe(database, maps_hosts)}'
        finally:
            database.close()
    except NovaschedError as error:
        text = str(error).removeprefix(f'{name}: ').removeprefix(f'{name} ')
        return Finding(Level.ERROR, name, text)
    return Finding(Level.OK, name, text)


def _look_at_own(database: Database, maps_hosts: bool) -> str:
    table = database.table('services')
    change, add = _update(table, ['host']), _insert(table, table.c.keys())
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
    return sa.update(table).where(sa.false()).values({name: table.c[name] for name in columns})


def _insert(table: sa.Table, columns: Sequence[str]) -> sa.Insert:
    """One that adds no row."""
    nothing = sa.select(*(table.c[name] for name in columns)).where(sa.false())
    return sa.insert(table).from_select(columns, nothing)


def _may_write(database: Database, what: str, *statements: sa.Update | sa.Insert) -> None:
    """See that something may be written.

    :raises DatabaseUnavailable: it may not.
    """
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
