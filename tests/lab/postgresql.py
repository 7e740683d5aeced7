# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL on a loopback port."""

import os
import shutil
import signal
from pathlib import Path

import psycopg2
import sqlalchemy as sa

from tests.lab.known_secrets import a_secret

from .processes import SEARCH, START, Process, install, run
from .servers import Server

USER = 'postgres'
"""The user of Debian's package. The server refuses to run as root."""


class PostgreSQL(Server):
    """A database server whose only user, nova, has all privileges."""

    name = 'postgresql'

    def __init__(self):
        super().__init__()
        self._programs = _programs()
        self._password = a_secret()
        self.url = f'postgresql+psycopg2://nova:{self._password}@127.0.0.1:{self.port}'
        self._install()

    def start(self):
        options = {
            'listen_addresses': '127.0.0.1',
            'unix_socket_directories': str(self.directory),
            'max_connections': '300',
            'shared_buffers': '32MB',
            # The server does not wait for the disk: the data is worth nothing after a
            # power cut.
            'fsync': 'off',
            'full_page_writes': 'off',
            'synchronous_commit': 'off',
        }
        command = [*_as_its_user(), str(self._programs / 'postgres')]
        command += ['-D', str(self.directory / 'data'), '-p', str(self.port)]
        for name, value in options.items():
            command += ['-c', f'{name}={value}']
        self._process = Process(command, self.log, cwd=self.directory)
        self._process.ready(self._accepts, START, 'PostgreSQL')

    def stop(self, seconds=START):
        """Stop the server in an orderly way, without waiting for clients; the exit
        status."""
        os.kill(self.pid, signal.SIGINT)
        return self.process.wait(seconds)

    def kill(self):
        """Let the server crash. The next start recovers the data."""
        if self._process is not None and self.alive():
            os.kill(self.pid, signal.SIGQUIT)
            self.process.wait(START)

    def _install(self):
        secret = self.directory / 'password'
        secret.touch(0o600)
        secret.write_text(self._password)
        if os.geteuid() == 0:
            for path in (self.directory, secret):
                shutil.chown(path, USER, USER)
        command = [
            *_as_its_user(),
            str(self._programs / 'initdb'),
            *('-D', str(self.directory / 'data'), '-U', 'nova', '-A', 'scram-sha-256'),
            *(f'--pwfile={secret}', '--encoding=UTF8', '--locale=C', '--no-sync'),
        ]
        run(command, cwd=self.directory)

    def _accepts(self):
        try:
            connection = psycopg2.connect(
                host='127.0.0.1',
                port=self.port,
                user='nova',
                password=self._password,
                dbname='postgres',
            )
        except psycopg2.OperationalError:
            return False
        connection.close()
        return True


def dump(url):
    """The SQL that makes the tables of a database with their rows."""
    command = [str(_programs() / 'pg_dump'), '--no-owner', '--inserts']
    lines = run(command, env=_environment(url)).splitlines()
    # Lines with a backslash are commands of psql.
    statements = [line for line in lines if not line.startswith(('--', '\\'))]
    return ['\n'.join(statements)]


def _environment(url):
    """The environment in which PostgreSQL's programs use a database."""
    parsed = sa.make_url(url)
    return {
        **os.environ,
        'PGHOST': str(parsed.host),
        'PGPORT': str(parsed.port),
        'PGUSER': str(parsed.username),
        'PGPASSWORD': str(parsed.password),
        'PGDATABASE': str(parsed.database),
    }


def _programs():
    """The directory of the programs of the newest version. Debian has a directory for
    each version, outside of PATH."""

    def find():
        on_path = shutil.which('initdb', path=SEARCH)
        if on_path:
            return [Path(on_path).resolve().parent]
        paths = Path('/usr/lib/postgresql').glob('*/bin/initdb')
        return [path.parent for path in sorted(paths, key=_version)]

    if not find():
        install('postgresql')
    return find()[-1]


def _version(path):
    return float(path.parts[-3])


def _as_its_user():
    if os.geteuid() != 0:
        return []
    # A change of the user clears the signal that Process has set with prctl(2).
    user = ['setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups']
    return [*user, '--pdeathsig', 'INT', '--']
