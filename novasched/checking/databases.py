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
    conf = nova_conf.conf
    return [
        *(
            Question(AREA, name, functools.partial(_configured, conf[group], name, look))
            for group, name, look in (
                ('database', '[database] connection', _look_at_own),
                ('api_database', '[api_database] connection', _look_at_api),
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
        Question(AREA, _name(cell), functools.partial(_cell, conf, cell)) for cell in enabled
    ]
    hidden = Secrets.of(cell.database_connection for cell in enabled)
    for each in answers(several, nova_conf.timeout):
        yield replace(each, text=hidden.hide(each.text))


def _cell(conf: cfg.ConfigOpts, cell: Mapped) -> Iterator[Finding]:
    url = filled(cell.database_connection, conf.database.connection, _name(cell))
    if '{' in url:
        text = 'its URL is a template, and [database] connection cannot be read to fill it'
        yield Finding(AREA, Level.ERROR, _name(cell), text)
    else:
        yield _look(conf.database, url, _name(cell), _look_at_cell)


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
            with database.transaction():
                pass
            return Finding(AREA, Level.OK, name, f'{_server(database)}, {look(database)}')
        finally:
            dispose(database)
    except NovaschedError as error:
        text = str(error).removeprefix(f'{name}: ').removeprefix(f'{name} ')
        return Finding(AREA, Level.ERROR, name, text)


def _look_at_own(database: Database) -> str:
    _may_write(database)
    return _schema(database)


def _look_at_api(database: Database) -> str:
    for name in API_TABLES:
        database.table(name)
    return _schema(database)


def _look_at_cell(database: Database) -> str:
    for name in CELL_TABLES:
        database.table(name)
    table = database.table('compute_nodes')
    count = sa.select(sa.func.count()).select_from(table).where(table.c.deleted == 0)
    with database.transaction() as connection:
        hosts = connection.execute(count).scalar_one()
    return f'{_schema(database)}, {hosts} compute nodes'


def _may_write(database: Database) -> None:
    """See that we may write our row of ``services``, by statements that change no row.

    :raises DatabaseUnavailable: we may not.
    """
    table = database.table('services')
    nothing = sa.select(table).where(sa.false())
    try:
        with database.engine.begin() as connection:
            connection.execute(sa.update(table).where(sa.false()).values(host=table.c.host))
            connection.execute(sa.insert(table).from_select(table.c.keys(), nothing))
    except DATABASE_ERRORS as error:
        text = f'our row of services cannot be written: {reason(error)}'
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
