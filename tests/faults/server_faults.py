# SPDX-License-Identifier: Apache-2.0
"""What happens to RabbitMQ and to MariaDB, to the one with nearly everything and to a cell's own;
and to the machine that a scheduler runs on."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pymysql
import sqlalchemy as sa

from .fault import fault
from .site import Site

TOO_MANY = 1040  # the server's error for one connection more than it allows
ATTEMPTS = 1000
MEMORY = '512MiB'
HOUR = 3600


@contextmanager
def control(url: str) -> Iterator[Any]:
    """A cursor of a connection that no fault cuts."""
    parsed = sa.make_url(url)
    connection = _connect(parsed)
    with closing(connection), connection.cursor() as cursor:
        yield cursor


def _connect(url: sa.URL) -> Any:
    return pymysql.connect(
        host=url.host, port=url.port or 3306, user=url.username, password=str(url.password)
    )


def cut(cursor: Any) -> None:
    """End every connection but this, in mid-query or not."""
    cursor.execute('SELECT id FROM information_schema.processlist WHERE id != connection_id()')
    for (number,) in cursor.fetchall():
        with suppress(pymysql.err.Error):  # it has gone by itself, or is the server's own
            cursor.execute(f'KILL {number}')


def stopped(server: Any) -> Iterator[None]:
    """An upgrade."""
    server.stop()
    yield
    server.start()


def killed(server: Any) -> Iterator[None]:
    """A crash: out of memory, for instance."""
    server.kill()
    yield
    server.start()


def crashed(server: Any) -> Iterator[None]:
    """A crash of a database. What it has committed stays, as in production: the tests' own
    servers are faster than that."""
    with control(server.url) as cursor:
        cursor.execute('SET GLOBAL innodb_flush_log_at_trx_commit = 2')
        cursor.execute('FLUSH ENGINE LOGS')
    yield from killed(server)


def frozen(server: Any) -> Iterator[None]:
    """It takes connections and says nothing: a disk that hangs, a virtual machine that is moved,
    or a partition that heals."""
    server.freeze()
    yield
    server.thaw()


def connections_cut(server: Any) -> Iterator[None]:
    """A proxy in front of Galera that changes the node, again and again."""
    with control(server.url) as cursor:
        for _ in range(100):
            cut(cursor)
        yield


def connections_closed(rabbitmq: Any) -> Iterator[None]:
    """A load balancer that restarts."""
    rabbitmq.control('close_all_connections', 'a test')
    yield


def out_of_memory(rabbitmq: Any) -> Iterator[None]:
    """It takes no messages from anybody who sends."""
    rabbitmq.control('set_vm_memory_high_watermark', '0')
    yield
    rabbitmq.control('set_vm_memory_high_watermark', 'absolute', MEMORY)


def read_only(mariadb: Any) -> Iterator[None]:
    """A replica that is not the primary yet. Who may do everything may write all the same,
    so the privilege goes away, too."""
    with control(mariadb.url) as cursor:
        cursor.execute('SET GLOBAL read_only = 1')
        cursor.execute("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM nova@'%'")
        cut(cursor)
        yield
        cursor.execute('SET GLOBAL read_only = 0')
        cursor.execute("GRANT ALL PRIVILEGES ON *.* TO nova@'%' WITH GRANT OPTION")
        cut(cursor)


def out_of_connections(mariadb: Any) -> Iterator[None]:
    """Somebody else has all that it allows."""
    url = sa.make_url(mariadb.url)
    with control(mariadb.url) as cursor, ExitStack() as held:
        cursor.execute('SELECT @@max_connections')
        [[before]] = cursor.fetchall()
        cursor.execute('SET GLOBAL max_connections = 10')
        cut(cursor)
        for _ in range(ATTEMPTS):
            try:
                held.enter_context(closing(_connect(url)))
            except pymysql.err.OperationalError as error:
                if error.args[0] != TOO_MANY:
                    raise
                break
        yield
        cursor.execute(f'SET GLOBAL max_connections = {before}')


BROKER = {'refuses': True, 'forgets': True}
Happens = Callable[[Any], Iterator[None]]
TABLE: tuple[tuple[str, str, Happens, dict[str, Any]], ...] = (
    ('RabbitMQ stopped', 'rabbitmq', stopped, {**BROKER, 'varied': True}),
    ('RabbitMQ killed', 'rabbitmq', killed, {**BROKER, 'quick': False}),
    ('RabbitMQ frozen', 'rabbitmq', frozen, {'refuses': True, 'quick': False}),
    ('RabbitMQ closes its connections', 'rabbitmq', connections_closed, {'refuses': True, 'varied': True}),
    ('RabbitMQ out of memory', 'rabbitmq', out_of_memory, {'refuses': True, 'quick': False}),
    ('MariaDB stopped', 'mariadb', stopped, {'varied': True}),
    ('MariaDB killed', 'mariadb', crashed, {'seconds': 8, 'quick': False}),
    ('MariaDB frozen', 'mariadb', frozen, {'seconds': 8, 'quick': False}),
    ('connections to MariaDB cut', 'mariadb', connections_cut, {'seconds': 1, 'varied': True}),
    ('MariaDB read-only', 'mariadb', read_only, {}),
    ('MariaDB out of connections', 'mariadb', out_of_connections, {'quick': False}),
    ('database of a cell stopped', 'second', stopped, {'varied': True}),
    ('database of a cell killed', 'second', crashed, {'seconds': 8, 'quick': False}),
    ('database of a cell frozen', 'second', frozen, {'seconds': 8, 'varied': True}),  # longer than cell_timeout
    ('database of a cell frozen for 90 s', 'second', frozen, {'seconds': 90, 'quick': False}),  # whatever piles up
    ('connections to a cell cut', 'second', connections_cut, {'seconds': 1, 'quick': False}),
)  # fmt: skip
"""The name of each fault, whose it is, what happens, and how."""


def _of(server: str, happens: Happens) -> Callable[[Site], Iterator[None]]:
    return lambda site: happens(getattr(site, server))


for name, server, happens, how in TABLE:
    fault(name, **how)(_of(server, happens))


@fault(
    'no room for the log', seconds=2, config=lambda _site: {'DEFAULT': {'log_file': '/dev/full'}}
)
def log_full(_site: Site) -> Iterator[None]:
    """Each write of a line fails, from the first to the last."""
    yield


@fault('clock jumps by an hour', environment=lambda site: site.clock.environment())
def clock_jumps(site: Site) -> Iterator[None]:
    """Forward, and back again."""
    site.clock.jump(HOUR)
    yield
    site.clock.jump(0)


@fault('scheduler frozen', quick=False, varied=True)
def frozen(site: Site) -> Iterator[None]:
    """A virtual machine that is moved."""
    with site.frozen_workers():
        yield


@fault('scheduler reloads', seconds=0, quick=False)
def reloads(site: Site) -> Iterator[None]:
    """SIGHUP, ten times."""
    for _ in range(10):
        for daemon in site.daemons:
            os.kill(daemon.pid, signal.SIGHUP)
    yield
