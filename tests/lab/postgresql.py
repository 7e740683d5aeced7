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
"""The user whom Debian's package makes; the server refuses to run as root."""


class PostgreSQL(Server):
    """A database server with one user, nova, who may do everything."""

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
            # The data is worth nothing after a power cut: no waiting for the disk.
            'fsync': 'off',
            'full_page_writes': 'off',
            'synchronous_commit': 'off',
        }
        command = [
            *_as_its_user(),
            str(self._programs / 'postgres'),
            *('-D', str(self.directory / 'data'), '-p', str(self.port)),
            *(
                word
                for name, value in options.items()
                for word in ('-c', f'{name}={value}')
            ),
        ]
        self._process = Process(command, self.log, cwd=self.directory)
        self._process.ready(self._accepts, START, 'PostgreSQL')

    def stop(self, seconds=START):
        """End it in an orderly way, without waiting for its clients; its exit
        status."""
        os.kill(self.pid, signal.SIGINT)
        return self.process.wait(seconds)

    def kill(self):
        """End it as a crash would, which it mends when it is started."""
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
            psycopg2.connect(
                host='127.0.0.1', port=self.port, user='nova', password=self._password,
                dbname='postgres',
            ).close()  # fmt: skip
        except psycopg2.OperationalError:
            return False
        return True


def dump(url):
    """What makes the tables of a database, as it is."""
    command = [str(_programs() / 'pg_dump'), '--no-owner', '--inserts']
    printed = run(command, env=_environment(url))
    # What begins with a backslash is for psql.
    lines = [each for each in printed.splitlines() if not each.startswith(('--', '\\'))]
    return ['\n'.join(lines)]


def _environment(url):
    """What tells the programs of PostgreSQL which database is meant."""
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
    """Where the newest version's are; Debian has a folder for each, in nobody's
    PATH."""

    def find():
        on_path = shutil.which('initdb', path=SEARCH)
        there = sorted(Path('/usr/lib/postgresql').glob('*/bin/initdb'), key=_version)
        if on_path:
            return [Path(on_path).resolve().parent]
        return [each.parent for each in there]

    if not find():
        install('postgresql')
    return find()[-1]


def _version(path):
    return float(path.parts[-3])


def _as_its_user():
    if os.geteuid() != 0:
        return []
    # Whoever changes the user loses the signal that Process has asked for.
    user = ['setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups']
    return [*user, '--pdeathsig', 'INT', '--']
