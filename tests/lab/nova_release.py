# SPDX-License-Identifier: Apache-2.0
"""nova as it is released, in a virtualenv of its own: its Python and its
nova-manage."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
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
    """Both, section by section; overrides win."""
    return {
        s: {**base.get(s, {}), **overrides.get(s, {})} for s in {**base, **overrides}
    }


def write_config(path, config):
    """An oslo.config file that only its owner may read: it holds passwords. An option
    with several lines has a list."""
    path.touch(0o600)
    lines: list[str] = []
    for section, options in config.items():
        lines.append(f'[{section}]')
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            lines.extend(f'{name} = {each}' for each in values)
    path.write_text('\n'.join(lines) + '\n')
    return path


@dataclass(frozen=True)
class NovaRelease:
    """The nova that the tests compare with and borrow the client from."""

    python: Path
    version: str
    service_version: int

    @classmethod
    def find(cls):
        """The one that the environment names; without it the run ends with one line."""
        return cls.of(named_python(PYTHON_VARIABLE, 'nova'))

    @classmethod
    def of(cls, python):
        """The nova of a virtualenv.

        :raises Failed: there is none that works.
        """
        version, service_version = json.loads(
            run([str(python), '-c', _FACTS]).splitlines()[-1]
        )
        return cls(python, version, service_version)

    def script(self, name):
        return str(self.python.parent / name)

    def manage(self, config, *arguments):
        """Run nova-manage and return its output."""
        return run(
            [self.script('nova-manage'), '--config-file', str(config), *arguments]
        )


def named_python(variable, what):
    """The Python of a virtualenv that the environment names; without it the run ends
    with one line."""
    named = os.environ.get(variable)
    if not named or not Path(named).exists():
        pytest.exit(
            f"these tests need {what}: set {variable} to its virtualenv's python", 3
        )
    # Not resolved: a virtualenv's python is known by its place, not by its target.
    return Path(named).absolute()


def run(command):
    return processes.run(command, env={**os.environ, **ENVIRONMENT})


class Schemas:
    """nova's schemas: made by nova-manage the first time, copied from then on.

    Kept for one nova version in the directory that the environment names, else for this
    run only. Only the schema is kept: the cells' mappings hold URLs of servers that are
    gone by the next run.
    """

    SYNC = {'api': ('api_db', 'sync'), 'cell': ('db', 'sync', '--local_cell')}

    def __init__(self, nova, directory):
        self._nova = nova
        self._directory = Path(os.environ.get(CACHE_VARIABLE) or directory)

    def make(self, kind, config, url):
        """Fill an empty database; the configuration file names it to nova-manage."""
        kept = self._directory / f'nova-schema-{self._nova.version}-{kind}.json'
        if is_postgresql(url):
            kept = kept.with_stem(f'{kept.stem}-postgresql')
        if kept.exists():
            _load_schema(url, json.loads(kept.read_text()))
            return
        self._nova.manage(config, *self.SYNC[kind])
        self._directory.mkdir(parents=True, exist_ok=True)
        whole = kept.with_suffix(f'.{os.getpid()}')
        whole.write_text(json.dumps(_dump_schema(url), indent=1))
        whole.rename(kept)


def _dump_schema(url):
    if is_postgresql(url):
        from . import postgresql  # whose driver the other tests can do without

        return postgresql.dump(url)
    with _connected(url) as connection:
        tables = connection.exec_driver_sql('SHOW TABLES').scalars().all()
        statements = [
            connection.exec_driver_sql(f'SHOW CREATE TABLE `{table}`').one()[1]
            for table in tables
        ]
        # Alembic's mark is the only row of a fresh schema; releases before it have
        # another.
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
        # The tables come in the order of their names, not of their references.
        connection.exec_driver_sql('SET FOREIGN_KEY_CHECKS = 0')
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


def _connected(url):
    return sa.create_engine(url, poolclass=sa.NullPool).connect()
