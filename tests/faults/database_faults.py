# SPDX-License-Identifier: Apache-2.0
"""What happens to MariaDB: to the one with nearly everything, and to a cell's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pymysql
import sqlalchemy as sa

from .fault import fault
from .site import Site

TOO_MANY = 1040  # the server's error for one connection more than it allows
ATTEMPTS = 1000


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


@fault('MariaDB stopped', varied=True)
def stopped(site: Site) -> Iterator[None]:
    """An upgrade of the database server of everything but the second cell."""
    site.mariadb.stop()
    yield
    site.mariadb.start()


@fault('MariaDB killed', quick=False)
def killed(site: Site) -> Iterator[None]:
    """A crash of the same. What it has committed stays, as in production: the tests' own
    servers are faster than that."""
    with control(site.mariadb.url) as cursor:
        cursor.execute('SET GLOBAL innodb_flush_log_at_trx_commit = 2')
        cursor.execute('FLUSH ENGINE LOGS')
    site.mariadb.kill()
    yield
    site.mariadb.start()


@fault('MariaDB frozen', seconds=8, quick=False)
def frozen(site: Site) -> Iterator[None]:
    """It takes connections and says nothing: a disk that hangs."""
    site.mariadb.freeze()
    yield
    site.mariadb.thaw()


@fault('connections to MariaDB cut', seconds=1, varied=True)
def connections_cut(site: Site) -> Iterator[None]:
    """A proxy in front of Galera that changes the node, again and again."""
    with control(site.mariadb.url) as cursor:
        for _ in range(100):
            cut(cursor)
        yield


@fault('MariaDB read-only')
def read_only(site: Site) -> Iterator[None]:
    """A replica that is not the primary yet. Who may do everything may write all the same,
    so the privilege goes away, too."""
    with control(site.mariadb.url) as cursor:
        cursor.execute('SET GLOBAL read_only = 1')
        cursor.execute("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM nova@'%'")
        cut(cursor)
        yield
        cursor.execute('SET GLOBAL read_only = 0')
        cursor.execute("GRANT ALL PRIVILEGES ON *.* TO nova@'%' WITH GRANT OPTION")
        cut(cursor)


@fault('MariaDB out of connections', quick=False)
def out_of_connections(site: Site) -> Iterator[None]:
    """Somebody else has all that it allows."""
    url = sa.make_url(site.mariadb.url)
    with control(site.mariadb.url) as cursor, ExitStack() as held:
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


@fault('database of a cell stopped', varied=True)
def cell_stopped(site: Site) -> Iterator[None]:
    """One of two cells is gone."""
    site.second.stop()
    yield
    site.second.start()


@fault('database of a cell frozen', seconds=8, varied=True)
def cell_frozen(site: Site) -> Iterator[None]:
    """One of two cells says nothing for longer than cell_timeout."""
    site.second.freeze()
    yield
    site.second.thaw()


@fault('database of a cell frozen for 90 s', seconds=90, quick=False)
def cell_frozen_long(site: Site) -> Iterator[None]:
    """The same, long enough for whatever piles up."""
    site.second.freeze()
    yield
    site.second.thaw()


@fault('connections to a cell cut', seconds=1, quick=False)
def cell_cut(site: Site) -> Iterator[None]:
    """A proxy in front of the cell's Galera changes the node."""
    with control(site.second.url) as cursor:
        for _ in range(100):
            cut(cursor)
        yield
