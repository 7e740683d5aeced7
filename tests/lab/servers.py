# SPDX-License-Identifier: Apache-2.0
"""Private RabbitMQ, MariaDB and memcached on loopback ports.

Each server can be stopped, killed and started again on the same port, with its data.
"""

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pymysql
import sqlalchemy as sa

from tests.lab.known_secrets import a_secret

from .processes import START, Process, Service, free_port, program, run

AS_ROOT = ['--user=root'] if os.geteuid() == 0 else []
"""Servers run as root only with this option."""
DATABASE_OPTIONS = (
    '--bind-address=127.0.0.1',
    '--skip-name-resolve',
    '--skip-log-bin',
    '--performance-schema=OFF',
    '--innodb-flush-log-at-trx-commit=0',
    '--innodb-doublewrite=0',
    '--innodb-flush-method=nosync',
    '--innodb-buffer-pool-size=128M',
    '--innodb-log-file-size=64M',
    '--max-connections=500',
    '--character-set-server=utf8mb3',
)
"""The server does not wait for the disk: the data is worth nothing after a power cut."""


class Server(Service):
    """A private server with a port, and with a directory for data that survives a
    restart."""

    url: str
    """The URL for clients."""
    name = ''

    def __init__(self):
        # Not below pytest's directories: the path of a Unix socket has at most 107
        # bytes.
        self.directory = Path(tempfile.mkdtemp(prefix=f'novasched-{self.name}-'))
        self.log = self.directory / 'output.log'
        self.port = free_port()

    def close(self):
        """Kill the server, and remove its data."""
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


class RabbitMQ(Server):
    """A broker with one user, and with an epmd that ends with the broker.

    :ivar identity: with an identity the broker also speaks TLS, on another port, with
        clients that have a certificate. Tests may change the identity before a start.
    """

    name = 'rabbitmq'

    def __init__(self, identity=None, options=None):
        """:param options: additional options of rabbitmq.conf."""
        super().__init__()
        self.identity = identity
        self._options = options or {}
        self._tls_port = free_port()
        self._password = a_secret()
        prefix = f'rabbit://nova:{self._password}@127.0.0.1'
        self.url = f'{prefix}:{self.port}/'
        self.tls_url = f'{prefix}:{self._tls_port}/'
        self._command = program('rabbitmq-server', 'rabbitmq-server')
        self._epmd_command = program('erlang-base', 'epmd')
        self._epmd_port = free_port()
        self._dist_port = free_port()
        self._epmd: Process | None = None
        (self.directory / 'plugins').write_text('[].\n')

    def start(self):
        self._configure()
        env = self._environment()
        # A child of the tests: the epmd that Erlang starts would outlive the tests.
        command = [self._epmd_command, '-port', str(self._epmd_port)]
        command += ['-address', '127.0.0.1']
        self._epmd = Process(command, self.directory / 'epmd.log', env=env)
        self._epmd.ready(lambda: _listens(self._epmd_port), START, 'epmd')
        self._process = Process([self._command], self.log, env=env, cwd=self.directory)
        self._process.ready(lambda: _speaks_amqp(self.port), START, 'RabbitMQ')

    def stop(self, seconds=START):
        try:
            return super().stop(seconds)
        finally:
            self._end_epmd()

    def kill(self):
        super().kill()
        self._end_epmd()

    def control(self, *arguments):
        """Run rabbitmqctl."""
        command = [program('rabbitmq-server', 'rabbitmqctl'), *arguments]
        run(command, env=self._environment())

    def _end_epmd(self):
        if self._epmd is not None:
            self._epmd.kill()

    def _configure(self):
        options = {
            'listeners.tcp.local': f'127.0.0.1:{self.port}',
            'default_user': 'nova',
            'default_pass': self._password,
            'log.console': 'true',
            'log.console.level': 'warning',
            'vm_memory_high_watermark.absolute': '512MiB',
            'disk_free_limit.absolute': '1MB',
            **self._options,
        }
        if self.identity:
            options |= {
                'listeners.ssl.local': f'127.0.0.1:{self._tls_port}',
                'ssl_options.cacertfile': str(self.identity.authority),
                'ssl_options.certfile': str(self.identity.certificate),
                'ssl_options.keyfile': str(self.identity.key),
                'ssl_options.verify': 'verify_peer',
                'ssl_options.fail_if_no_peer_cert': 'true',
            }

        lines = [f'{name} = {value}\n' for name, value in options.items()]
        path = self.directory / 'rabbitmq.conf'
        path.touch(0o600)
        path.write_text(''.join(lines))

    def _environment(self):
        """The environment of the tests, with other variables of RabbitMQ and Erlang."""
        base = self.directory
        inherited = dict(os.environ)
        for name in os.environ:
            if name.startswith(('RABBITMQ_', 'ERL_')):
                del inherited[name]

        return {
            **inherited,
            # Erlang writes a cookie into HOME.
            'HOME': str(base),
            'ERL_EPMD_PORT': str(self._epmd_port),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'ERL_CRASH_DUMP': '/dev/null',
            # Without the node's host name every lookup is local.
            'RABBITMQ_NODENAME': f'novasched{self.port}@localhost',
            'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
            'RABBITMQ_DIST_PORT': str(self._dist_port),
            'RABBITMQ_BASE': str(base),
            'RABBITMQ_MNESIA_BASE': str(base / 'mnesia'),
            'RABBITMQ_LOG_BASE': str(base / 'log'),
            'RABBITMQ_LOGS': '-',
            'RABBITMQ_PID_FILE': str(base / 'pid'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(base / 'plugins'),
            'RABBITMQ_CONFIG_FILE': str(base / 'rabbitmq.conf'),
            'RABBITMQ_ADVANCED_CONFIG_FILE': str(base / 'advanced.config'),
            'RABBITMQ_GENERATED_CONFIG_DIR': str(base / 'config'),
            'RABBITMQ_CONF_ENV_FILE': str(base / 'rabbitmq-env.conf'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': (
                '-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 2:2'
            ),
        }


class MariaDB(Server):
    """A database server whose only user, nova, has all privileges.

    :ivar identity: with an identity the server also speaks TLS. Tests may change the
        identity before a start.
    """

    name = 'mariadb'

    def __init__(self, identity=None):
        super().__init__()
        self.identity = identity
        self._command = program('mariadb-server', 'mariadbd', 'mysqld')
        install = program('mariadb-server', 'mariadb-install-db', 'mysql_install_db')
        self._password = a_secret()
        self.url = f'mysql+pymysql://nova:{self._password}@127.0.0.1:{self.port}'
        # A server that starts removes all temporary tables from its directory, even the
        # tables of another server.
        self._temporary = self.directory / 'tmp'
        self._temporary.mkdir()
        self._install(install)

    def start(self):
        command = [
            self._command,
            '--no-defaults',
            *AS_ROOT,
            f'--datadir={self.directory / "data"}',
            f'--tmpdir={self._temporary}',
            f'--socket={self.directory / "socket"}',
            f'--pid-file={self.directory / "pid"}',
            f'--init-file={self.directory / "init.sql"}',
            f'--port={self.port}',
            *DATABASE_OPTIONS,
        ]
        if self.identity:
            command += [
                f'--ssl-ca={self.identity.authority}',
                f'--ssl-cert={self.identity.certificate}',
                f'--ssl-key={self.identity.key}',
            ]
        self._process = Process(command, self.log, cwd=self.directory)
        self._process.ready(self._accepts, START, 'MariaDB')

    def _install(self, command):
        # The server runs this SQL at each start: no command line shows the password,
        # and there is no user but nova.
        sql = self.directory / 'init.sql'
        sql.touch(0o600)
        sql.write_text(
            f"CREATE OR REPLACE USER nova@'%' IDENTIFIED BY '{self._password}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO nova@'%' WITH GRANT OPTION;\n"
            "DELETE FROM mysql.global_priv WHERE User NOT IN ('nova', 'mariadb.sys');\n"
            'FLUSH PRIVILEGES;\n'
        )
        run(
            [
                command,
                '--no-defaults',
                *AS_ROOT,
                f'--datadir={self.directory / "data"}',
                f'--tmpdir={self._temporary}',
                '--auth-root-authentication-method=normal',
                '--skip-test-db',
            ]
        )

    def _accepts(self):
        try:
            pymysql.connect(
                host='127.0.0.1', port=self.port, user='nova', password=self._password
            ).close()
        except pymysql.err.OperationalError:
            return False
        return True


class Memcached(Server):
    """A memcached, whose data ends with the process."""

    name = 'memcached'

    def __init__(self):
        super().__init__()
        self._command = program('memcached', 'memcached')
        self.url = f'127.0.0.1:{self.port}'

    def start(self):
        listen = ['-l', '127.0.0.1', '-p', str(self.port)]
        command = [self._command, *AS_ROOT, *listen, '-m', '16']
        self._process = Process(command, self.log, cwd=self.directory)
        self._process.ready(lambda: _listens(self.port), START, 'memcached')


def as_user(url, username, password):
    """The URL of a database with another user."""
    changed = sa.make_url(url).set(username=username, password=password)
    return changed.render_as_string(hide_password=False)


def create_database(server_url, name):
    _execute(server_url, f'CREATE DATABASE {name}', '', ' CHARACTER SET utf8mb3')
    return f'{server_url}/{name}'


def drop_database(server_url, name):
    _execute(server_url, f'DROP DATABASE IF EXISTS {name}', ' WITH (FORCE)', '')


def is_postgresql(url):
    return url.startswith('postgresql')


def _execute(server_url, statement, on_postgresql, on_mariadb):
    """Run a statement.

    :param on_postgresql: the end of the statement on PostgreSQL.
    :param on_mariadb: the end of the statement on MariaDB.
    """
    url = server_url
    ending = on_mariadb
    if is_postgresql(server_url):
        url = f'{server_url}/postgres'
        ending = on_postgresql
    engine = sa.create_engine(url, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(statement + ending)


def _listens(port):
    try:
        socket.create_connection(('127.0.0.1', port), 1).close()
    except OSError:
        return False
    return True


def _speaks_amqp(port):
    """True if the broker answers the protocol header. The port opens earlier."""
    try:
        with socket.create_connection(('127.0.0.1', port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(b'AMQP\x00\x00\x09\x01')
            return connection.recv(1) == b'\x01'
    except OSError:
        return False
