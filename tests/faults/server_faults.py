# SPDX-License-Identifier: Apache-2.0
"""Faults of RabbitMQ, of MariaDB with the API database, of the MariaDB of a cell, of
Placement, and of the machine of a scheduler."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pymysql
import sqlalchemy as sa

from tests.lab import proxy

from .fault import fault

TOO_MANY_CONNECTIONS = 1040  # an error of MariaDB
ATTEMPTS = 1000
MEMORY = '512MiB'
HOUR = 3600
HUGE = 100_000_000
OUTAGE_S = 8
PATIENCE_S = 4
CHANGES = ('PUT', 'POST')
CONFLICTS = {
    'a concurrent update': (
        'placement.concurrent_update',
        'Inventory changed while attempting to allocate: Another thread concurrently updated the data. Please retry your update',
    ),
    'a consumer generation': (
        'placement.concurrent_update',
        'consumer generation conflict - expected null but got 1',
    ),
    'no room': (
        'placement.undefined_code',
        'Unable to allocate inventory: Unable to create allocation for VCPU',
    ),
}


@contextmanager
def control(url):
    """A cursor whose connection survives :func:`cut`."""
    parsed = sa.make_url(url)
    connection = _connect(parsed)
    with closing(connection), connection.cursor() as cursor:
        yield cursor


def _connect(url):
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=str(url.password),
    )


def cut(cursor):
    """End all connections except the connection of the cursor, even during a query."""
    cursor.execute(
        'SELECT id FROM information_schema.processlist WHERE id != connection_id()'
    )
    for (number,) in cursor.fetchall():
        # A connection may have ended, or may belong to the server.
        with suppress(pymysql.err.Error):
            cursor.execute(f'KILL {number}')


def stopped(server):
    """A server that is upgraded."""
    server.stop()
    yield
    server.start()


def killed(server):
    """A server that crashes, for instance out of memory. Connections end in the middle
    of a request."""
    server.kill()
    yield
    server.start()


def crashed(server):
    """A database that crashes. Committed transactions stay, as in production: the
    servers of tests would lose transactions for the sake of speed."""
    with control(server.url) as cursor:
        cursor.execute('SET GLOBAL innodb_flush_log_at_trx_commit = 2')
        cursor.execute('FLUSH ENGINE LOGS')
    yield from killed(server)


def frozen(server):
    """A server without answers: a hanging disk, a moving virtual machine, or a partition
    for a while."""
    server.freeze()
    yield
    server.thaw()


def connections_cut(server):
    """A proxy in front of Galera that changes the node, again and again."""
    with control(server.url) as cursor:
        for _ in range(100):
            cut(cursor)
        yield


def connections_closed(rabbitmq):
    """A load balancer that restarts."""
    rabbitmq.control('close_all_connections', 'a test')
    yield


def out_of_memory(rabbitmq):
    """A broker that takes no messages from publishers."""
    rabbitmq.control('set_vm_memory_high_watermark', '0')
    yield
    rabbitmq.control('set_vm_memory_high_watermark', 'absolute', MEMORY)


def read_only(mariadb):
    """A replica that is not the primary yet. A user with all privileges could write all
    the same, and loses some privileges."""
    with control(mariadb.url) as cursor:
        cursor.execute('SET GLOBAL read_only = 1')
        cursor.execute("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM nova@'%'")
        cut(cursor)
        yield
        cursor.execute('SET GLOBAL read_only = 0')
        cursor.execute("GRANT ALL PRIVILEGES ON *.* TO nova@'%' WITH GRANT OPTION")
        cut(cursor)


def out_of_connections(mariadb):
    """A database whose connections are all taken by another client."""
    url = sa.make_url(mariadb.url)
    with control(mariadb.url) as cursor, ExitStack() as connections:
        cursor.execute('SELECT @@max_connections')
        [[before]] = cursor.fetchall()
        cursor.execute('SET GLOBAL max_connections = 10')
        cut(cursor)

        for _ in range(ATTEMPTS):
            try:
                connections.enter_context(closing(_connect(url)))
            except pymysql.err.OperationalError as error:
                if error.args[0] != TOO_MANY_CONNECTIONS:
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
    (
        'RabbitMQ closes its connections',
        'rabbitmq',
        connections_closed,
        {'refuses': True, 'varied': True},
    ),
    (
        'RabbitMQ out of memory',
        'rabbitmq',
        out_of_memory,
        {'refuses': True, 'quick': False},
    ),
    ('MariaDB stopped', 'mariadb', stopped, {'varied': True}),
    ('MariaDB killed', 'mariadb', crashed, {'seconds': 8, 'quick': False}),
    ('MariaDB frozen', 'mariadb', frozen, {'seconds': 8, 'quick': False}),
    (
        'connections to MariaDB cut',
        'mariadb',
        connections_cut,
        {'seconds': 1, 'varied': True},
    ),
    ('MariaDB read-only', 'mariadb', read_only, {}),
    ('MariaDB out of connections', 'mariadb', out_of_connections, {'quick': False}),
    ('database of a cell stopped', 'second', stopped, {'varied': True}),
    ('database of a cell killed', 'second', crashed, {'seconds': 8, 'quick': False}),
    (
        'database of a cell frozen',
        'second',
        frozen,
        {'seconds': 8, 'varied': True},
    ),  # longer than cell_timeout
    (
        'database of a cell frozen for 90 s',
        'second',
        frozen,
        {'seconds': 90, 'quick': False},
    ),  # whatever piles up
    (
        'connections to a cell cut',
        'second',
        connections_cut,
        {'seconds': 1, 'quick': False},
    ),
    ('Placement killed', 'placement', killed, {'seconds': OUTAGE_S, 'quick': False}),
)
"""The name of each fault, the server, the generator of the fault, and other fields of
:class:`tests.faults.fault.Fault`."""


def _of(server, happens):
    return lambda site: happens(getattr(site, server))


for name, server, happens, fields in TABLE:
    fault(name, **fields)(_of(server, happens))


@fault(
    'no room for the log',
    seconds=2,
    config=lambda _site: {'DEFAULT': {'log_file': '/dev/full'}},
)
def log_full(_site):
    """A disk without room for a single line of the log."""
    yield


@fault('clock jumps by an hour', environment=lambda site: site.clock.environment())
def clock_jumps(site):
    """A clock that jumps forward, and back again."""
    site.clock.jump(HOUR)
    yield
    site.clock.jump(0)


@fault('scheduler frozen', quick=False, varied=True)
def workers_frozen(site):
    """A virtual machine with a scheduler that is moved."""
    with site.frozen_workers():
        yield


@fault('scheduler reloads', seconds=0, quick=False)
def reloads(site):
    """Schedulers that receive SIGHUP ten times."""
    for _ in range(10):
        for daemon in site.daemons:
            os.kill(daemon.pid, signal.SIGHUP)
    yield


def conflict(kind):
    code, detail = CONFLICTS[kind]
    error = {'status': 409, 'title': 'Conflict', 'code': code, 'detail': detail}
    return proxy.answer(409, json.dumps({'errors': [error]}).encode())


@contextmanager
def following(site, rule):
    """Let the proxy of Placement follow a rule in a block."""
    site.proxy.faults = rule
    try:
        yield
    finally:
        site.proxy.faults = None
        site.proxy.release()


@fault('Placement stopped', seconds=OUTAGE_S, short=3, varied=True)
def placement_stopped(site):
    """An upgrade of Placement, which refuses connections meanwhile."""
    with site.proxy.down():
        yield from stopped(site.placement)


def _by_keystone(site):
    """Options with credentials that can expire."""
    endpoint = {'endpoint_override': site.proxy.url}
    return {'placement': {**endpoint, **site.keystone.options()}}


@fault('token expired', seconds=1, config=_by_keystone)
def token_expired(site):
    """A Placement that refuses the token until keystone has issued a new token."""
    before = site.keystone.tokens_issued

    def rule(_method, _path, _body):
        if site.keystone.tokens_issued == before:
            return proxy.answer(401)
        return None

    with following(site, rule):
        yield


LONG = {'seconds': OUTAGE_S, 'quick': False}
SHORT = {'seconds': OUTAGE_S, 'short': 2}
IMPATIENT = {'config': lambda _site: {'placement': {'timeout': 2}}}
REFUSED = {'refuses': True, 'quick': False}
GIVES_UP = {
    'config': lambda _site: {'novasched': {'placement_patience': PATIENCE_S}},
    'refuses': True,
}
Faulty = Callable[[], proxy.Fault]
ANSWERS: tuple[tuple[str, Faulty, dict[str, Any]], ...] = (
    (
        'slow by 10 s',
        lambda: proxy.slow(10),
        {'seconds': 12, 'patience': 60, 'quick': False},
    ),
    ('does nothing', proxy.hang, LONG),
    (
        'does nothing for longer than its timeout',
        lambda: proxy.hang(work=False),
        {**LONG, **IMPATIENT},
    ),
    ('answers 500', lambda: proxy.answer(500), SHORT),
    ('answers 501', lambda: proxy.answer(501), LONG),
    ('answers 401', lambda: proxy.answer(401), LONG),
    ('answers 403', lambda: proxy.answer(403), LONG),
    ('answers 504', lambda: proxy.answer(504), LONG),
    ('answers 503', lambda: proxy.answer(503), SHORT),
    ('drops connections', proxy.dropped, LONG),
    ('breaks off its answers', proxy.half, SHORT),
    ('answers 100 MB', lambda: proxy.huge(HUGE), {'quick': False}),
    ('answers no JSON', proxy.garbage, LONG),
    ('answers nothing', lambda: proxy.answer(200), LONG),
    (
        'answers 500 for longer than requests wait',
        lambda: proxy.answer(500),
        {**LONG, **GIVES_UP},
    ),
    (
        'answers 503 for longer than requests wait',
        lambda: proxy.answer(503),
        {**LONG, **GIVES_UP},
    ),
)
"""Faulty answers of Placement to all requests."""
CHANGES_ONLY: tuple[tuple[str, Faulty, dict[str, Any]], ...] = (
    (
        'answers 409: a concurrent update',
        lambda: conflict('a concurrent update'),
        REFUSED,
    ),
    (
        'answers 409: a consumer generation',
        lambda: conflict('a consumer generation'),
        REFUSED,
    ),
    ('answers 409: no room', lambda: conflict('no room'), REFUSED),
    ('claims, then no answer', proxy.lost, {'varied': True}),
    (
        'claims, then 504',
        lambda: proxy.answer(504, b'Gateway Timeout', True, 'text/html'),
        {},
    ),
)
"""Faulty answers of Placement to changes, for two seconds."""


def _answering(make_fault, methods):
    """A fault of the answers to some methods."""

    def happens(site):
        def rule(method, _path, _body):
            if method in methods:
                return make_fault()
            return None

        with following(site, rule):
            yield

    return happens


for name, make_fault, fields in ANSWERS:
    register = fault(f'Placement {name}', **fields)
    register(_answering(make_fault, ('GET', 'DELETE', *CHANGES)))
for name, make_fault, fields in CHANGES_ONLY:
    register = fault(f'Placement {name}', seconds=2, **fields)
    register(_answering(make_fault, CHANGES))
