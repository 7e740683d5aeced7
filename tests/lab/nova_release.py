# SPDX-License-Identifier: Apache-2.0
"""Releases of nova in virtualenvs, and nova's database schemas."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from . import processes
from .servers import is_postgresql

PYTHON_VARIABLE = 'NOVASCHED_NOVA_PYTHON'
CACHE_VARIABLE = 'NOVASCHED_TEST_CACHE'

# nova's services and tools then use native threads.
ENVIRONMENT = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true', 'PYTHONWARNINGS': 'ignore'}

_FACTS = """
import importlib.metadata, json
from nova.objects import service
print(json.dumps([importlib.metadata.version('nova'), service.SERVICE_VERSION]))
"""

Config = Mapping[str, Mapping[str, object]]


def merged(base, overrides):
    """The options of a base with overrides."""
    config = {section: dict(options) for section, options in base.items()}
    for section, options in overrides.items():
        config[section] = {**config.get(section, {}), **options}
    return config


def write_config(path, config):
    """Write a configuration file that only its owner may read, since the file has
    passwords. An option with several lines is a list."""
    path.touch(0o600)
    lines: list[str] = []
    for section, options in config.items():
        lines.append(f'[{section}]')
        for name, value in options.items():
            values = [value]
            if isinstance(value, list):
                values = value
            lines += [f'{name} = {item}' for item in values]
    path.write_text('\n'.join(lines) + '\n')
    return path


@dataclass(frozen=True)
class NovaRelease:
    """The release of nova that tests compare novasched with."""

    python: Path
    version: str
    service_version: int

    @classmethod
    def find(cls):
        """The nova that the environment names. Without a nova the run ends with a
        line."""
        return cls.of(named_python(PYTHON_VARIABLE, 'nova'))

    @classmethod
    def of(cls, python):
        """The nova of a virtualenv.

        :raises Failed: the virtualenv has no nova that works.
        """
        lines = run([str(python), '-c', _FACTS]).splitlines()
        version, service_version = json.loads(lines[-1])
        return cls(python, version, service_version)

    def script(self, name):
        return str(self.python.parent / name)

    def manage(self, config, *arguments):
        """The output of nova-manage."""
        return run(
            [self.script('nova-manage'), '--config-file', str(config), *arguments]
        )


def named_python(variable, what):
    """The Python of a virtualenv that the environment names. Without the virtualenv the
    test fails with a line.

    :param what: the program in the virtualenv.
    """
    path = os.environ.get(variable)
    if not path or not Path(path).exists():
        processes.refuse(
            f"these tests need {what}: set {variable} to its virtualenv's python"
        )
    # Not resolved: Python finds its virtualenv by the path of the link.
    return Path(path).absolute()


def run(command):
    return processes.run(command, env={**os.environ, **ENVIRONMENT})


class Schemas:
    """nova's schemas: made by nova-manage the first time, and copied later.

    The copies for a version of nova are kept in the directory that the environment
    names, or for this run only. Rows are not kept: the mappings of cells have URLs of
    servers that the next run does not have.
    """

    SYNC = {'api': ('api_db', 'sync'), 'cell': ('db', 'sync', '--local_cell')}

    def __init__(self, nova, directory):
        self._nova = nova
        self._directory = Path(os.environ.get(CACHE_VARIABLE) or directory)

    def make(self, kind, config, url):
        """Make the tables in an empty database.

        :param config: a configuration file with the database, for nova-manage.
        """
        path = self._directory / f'nova-schema-{self._nova.version}-{kind}.json'
        if is_postgresql(url):
            path = path.with_stem(f'{path.stem}-postgresql')
        if path.exists():
            _load_schema(url, json.loads(path.read_text()))
            return

        self._nova.manage(config, *self.SYNC[kind])
        self._directory.mkdir(parents=True, exist_ok=True)
        # Another run may read the file: it is renamed when it is complete.
        partial = path.with_suffix(f'.{os.getpid()}')
        partial.write_text(json.dumps(_dump_schema(url), indent=1))
        partial.rename(path)


def _dump_schema(url):
    """The statements that make the tables of a database."""
    if is_postgresql(url):
        # Other tests run without the driver of PostgreSQL.
        from . import postgresql

        return postgresql.dump(url)

    with _connected(url) as connection:
        tables = connection.exec_driver_sql('SHOW TABLES').scalars().all()
        statements = []
        for table in tables:
            row = connection.exec_driver_sql(f'SHOW CREATE TABLE `{table}`').one()
            statements.append(row[1])
        # The revision of Alembic is the only row of a new schema. Releases before
        # Alembic have another table for the revision.
        if 'alembic_version' not in tables:
            return statements
        revision = connection.exec_driver_sql(
            'SELECT version_num FROM alembic_version'
        ).scalar()
    return [*statements, f"INSERT INTO alembic_version VALUES ('{revision}')"]


def _load_schema(url, statements):
    with _connected(url) as connection:
        if is_postgresql(url):
            connection.exec_driver_sql(statements[0].replace('%', '%%'))
            connection.commit()
            return
        # The tables have the order of their names, not of their references.
        connection.exec_driver_sql('SET FOREIGN_KEY_CHECKS = 0')
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


def _connected(url):
    return sa.create_engine(url, poolclass=sa.NullPool).connect()
