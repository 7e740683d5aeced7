# SPDX-License-Identifier: Apache-2.0
"""The databases: our own, the API's, and each cell's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa
from oslo_config import cfg

from novasched.cells.engines import connect, dispose, filled
from novasched.cells.mappings import CELL0
from novasched.cells.schema import DATABASE_ERRORS, Database, reason
from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.checking.questions import Question, answers
from novasched.errors import DatabaseUnavailable, NovaschedError
from novasched.secrets import Secrets

AREA = 'databases'
API_TABLES = (
    'cell_mappings',
    'host_mappings',
    'aggregates',
    'aggregate_hosts',
    'aggregate_metadata',
)
CELL_TABLES = ('compute_nodes', 'services', 'instances')
SCHEMAS = (('alembic_version', 'version_num'), ('migrate_version', 'version'))
"""Where the version of a schema is written, by today's and by older releases of nova."""
PRODUCTS = {'mysql': 'MySQL', 'postgresql': 'PostgreSQL', 'sqlite': 'SQLite'}

Mapped = sa.Row[tuple[object, ...]]
"""A row of ``cell_mappings``."""
Look = Callable[[Database], str]
"""What a check says about a database that answers.

:raises NovaschedError: it cannot be used.
"""


def questions(nova_conf: NovaConf) -> list[Question]:
    """Our own database, the API's, and all cells in one."""
    conf, mapping = nova_conf.conf, _discovers(nova_conf)
    return [
        *(
            Question(AREA, name, functools.partial(_configured, conf[group], name, look))
            for group, name, look in (
                ('database', '[database] connection', _look_at_own),
                (
                    'api_database',
                    '[api_database] connection',
                    functools.partial(_look_at_api, mapping),
                ),
            )
        ),
        Question(AREA, 'cells', functools.partial(_cells, nova_conf), patience=2),
    ]


def _configured(group: cfg.ConfigOpts.GroupAttr, name: str, look: Look) -> Iterator[Finding]:
    if group.connection:
        yield _look(group, group.connection, name, look)
    else:
        yield Finding(AREA, Level.ERROR, name, 'not set; the URL of a database is needed')


def _cells(nova_conf: NovaConf) -> Iterator[Finding]:
    """Every cell that the API database maps; its own troubles are told by its own check."""
    conf = nova_conf.conf
    try:
        cells = _mappings(conf)
    except NovaschedError:
        yield Finding(AREA, Level.ERROR, 'cells', 'not known without the API database')
        return
    if not cells:
        yield Finding(AREA, Level.ERROR, 'cells', 'there is none but cell0, so no host')
    for cell in cells:
        if cell.disabled:
            yield Finding(AREA, Level.NOTE, _name(cell), 'disabled: no server goes there')
    enabled = [cell for cell in cells if not cell.disabled]
    several = [
        Question(AREA, _name(cell), functools.partial(_cell, nova_conf, cell)) for cell in enabled
    ]
    hidden = Secrets.of(cell.database_connection for cell in enabled)
    for each in answers(several, nova_conf.timeout):
        yield replace(each, text=hidden.hide(each.text))


def _cell(nova_conf: NovaConf, cell: Mapped) -> Iterator[Finding]:
    conf = nova_conf.conf
    url = filled(cell.database_connection, conf.database.connection, _name(cell))
    if '{' in url:
        text = 'its URL is a template, and [database] connection cannot be read to fill it'
        yield Finding(AREA, Level.ERROR, _name(cell), text)
    else:
        look = functools.partial(_look_at_cell, _discovers(nova_conf))
        yield _look(conf.database, url, _name(cell), look)


def _name(cell: Mapped) -> str:
    return f'cell {cell.name or cell.uuid}'


def _mappings(conf: cfg.ConfigOpts) -> Sequence[Mapped]:
    """The rows of all cells but cell0."""
    if not conf.api_database.connection:
        raise DatabaseUnavailable('[api_database] connection is not set')
    api = connect(conf.api_database, conf.api_database.connection, 'API database')
    try:
        wanted = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        rows = api.rows(api.select('cell_mappings', wanted))
        return [row for row in rows if row.uuid != CELL0]
    finally:
        dispose(api)


def _look(group: cfg.ConfigOpts.GroupAttr, url: str, name: str, look: Look) -> Finding:
    """Connect once, without the retries of a daemon that waits for its database."""
    try:
        database = connect(group, url, name)
        try:
            database.read(lambda connection: None)
            return Finding(AREA, Level.OK, name, f'{_server(database)}, {look(database)}')
        finally:
            dispose(database)
    except NovaschedError as error:
        text = str(error).removeprefix(f'{name}: ').removeprefix(f'{name} ')
        return Finding(AREA, Level.ERROR, name, text)


def _discovers(nova_conf: NovaConf) -> bool:
    """Whether hosts of new computes are mapped by us."""
    settings = nova_conf.settings
    return settings.periodic_enable and settings.discover_hosts_in_cells_interval >= 0


def _look_at_own(database: Database) -> str:
    table = database.table('services')
    change, add = _update(table, ['host']), _insert(table, table.c.keys())
    _may_write(database, 'our row of services', change, add)
    return _schema(database)


def _look_at_api(mapping: bool, database: Database) -> str:
    for name in API_TABLES:
        database.table(name)
    if mapping:
        table = database.table('host_mappings')
        add = _insert(table, ['created_at', 'cell_id', 'host'])
        _may_write(database, 'a mapping of a new host', add)
    return _schema(database)


def _look_at_cell(mapping: bool, database: Database) -> str:
    for name in CELL_TABLES:
        database.table(name)
    if mapping:
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
    """The server's product and version, as far as it says them."""
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
            table = database.table(name)
            rows = database.rows(sa.select(table.c[column]))
            return f'schema {", ".join(str(row[0]) for row in rows) or "of no version"}'
    return 'schema of no version'
