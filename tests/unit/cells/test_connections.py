# SPDX-License-Identifier: Apache-2.0
import gc
import socket
import ssl
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from novasched.cells.connections import SharedContextConnection, TrackedConnections
from novasched.cells.database import Database
from novasched.scheduler.errors import DatabaseUnavailable

SECONDS = 10
MYSQL = 'mysql+pymysql'
PSYCOPG2 = 'postgresql+psycopg2'
PSYCOPG = 'postgresql+psycopg'


@pytest.fixture
def server():
    """A silent server with open connections."""
    with socket.create_server(('127.0.0.1', 0)) as made:
        yield made


def engine(server, driver=MYSQL, query=''):
    url = f'{driver}://u:p@127.0.0.1:{server.getsockname()[1]}/db{query}'
    return sa.create_engine(url, poolclass=sa.NullPool)


def tracked(asked, seconds=60):
    connections = TrackedConnections(seconds)
    connections.track(asked)
    return connections


@pytest.mark.parametrize('said', [b'', b'\xff\xff\x00\x00x'])
def test_abort_ends_the_wait_for_a_silent_database_server(server, said):
    """abort() ends a wait for a silent server, and for a server in the middle of an
    answer."""
    asked = engine(server)
    connections = tracked(asked)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked.connect)
        connection, _ = server.accept()
        with closing(connection):
            connection.sendall(said)
            while not waiting.done():  # it may not have begun to wait
                connections.abort()
        with pytest.raises(sa_exc.OperationalError):
            waiting.result(SECONDS)


def said(kind, content):
    """A message of the PostgreSQL protocol."""
    return kind + struct.pack('>I', len(content) + 4) + content


GREETING = said(b'R', bytes(4)) + b''.join(
    said(b'S', f'{name}\0{value}\0'.encode())
    for name, value in {
        'server_version': '15.0', 'client_encoding': 'UTF8', 'DateStyle': 'ISO, MDY',
        'standard_conforming_strings': 'on',
    }.items()
) + said(b'Z', b'I')  # fmt: skip
"""Welcome, whoever you are."""


@pytest.mark.parametrize('driver', [PSYCOPG2, PSYCOPG])
def test_a_failed_probe_aborts_postgresql_operations_in_progress(server, driver):
    """A probe may fail by libpq's connect_timeout before the timeout of probes. The
    probe aborts the operations in progress then, too: PostgreSQL drivers have no
    timeout for an answer."""
    asked = engine(
        server, driver, '?sslmode=disable&gssencmode=disable&connect_timeout=2'
    )
    with (
        closing(Database(asked, 'cell1', patience=2)) as base,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(base.read, lambda connection: None)
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(1000)
            connection.sendall(GREETING)
            assert connection.recv(1000)  # SQLAlchemy's first question
            with pytest.raises(sa_exc.OperationalError, match='timeout'):
                base._probe()
            with pytest.raises(DatabaseUnavailable):
                waiting.result(SECONDS)


@pytest.mark.parametrize('driver', [MYSQL, PSYCOPG2, PSYCOPG])
def test_an_operation_past_the_timeout_opens_no_connection(server, driver):
    """After its timeout, an operation opens no connection, not even the first."""
    asked = engine(server, driver)
    error = pytest.raises(sa_exc.OperationalError, match='no answer within 0 s')
    with tracked(asked, seconds=0).operation(), error:
        asked.connect()


def test_a_missing_package_for_mysql_passwords_is_named(server, monkeypatch):
    """MySQL 8 requires PyMySQL to encrypt passwords on connections without TLS. If the
    package for the encryption is missing, the error names it."""
    monkeypatch.setattr(pymysql._auth, '_have_cryptography', False)
    encrypt = pymysql._auth.sha2_rsa_encrypt
    monkeypatch.setattr(
        pymysql.Connection, 'connect', lambda self: encrypt(b'', b'', b'')
    )
    asked = engine(server)
    _connections = tracked(asked)
    with pytest.raises(
        sa_exc.OperationalError, match=r'2059.*install PyMySQL\[rsa\], or have'
    ):
        asked.connect()


def test_a_failed_connection_is_freed_without_the_garbage_collector():
    """A connection that fails is freed at once, without the garbage collector."""
    with socket.create_server(('127.0.0.1', 0)) as away:
        asked = engine(away)
    _connections = tracked(asked)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(sa_exc.OperationalError):
            asked.connect()
        left = []
        for each in gc.get_objects():
            if isinstance(each, pymysql.Connection):
                left.append(each)
    finally:
        gc.enable()
    assert left == []


def test_connections_without_tls_parameters_share_a_tls_context():
    """Connections share a TLS context unless the URL has TLS parameters."""
    one = SharedContextConnection(defer_connect=True)
    two = SharedContextConnection(defer_connect=True)
    assert one.ctx is two.ctx
    assert one.ctx.verify_mode is ssl.CERT_NONE

    told = SharedContextConnection(defer_connect=True, ssl_verify_cert=True)
    assert told.ctx is not one.ctx
    assert told.ctx.verify_mode is ssl.CERT_REQUIRED


def test_a_nested_operation_belongs_to_the_outer_operation():
    """An operation within an operation of the same thread belongs to the outer
    operation. Operations of other threads do not."""
    connections = TrackedConnections(60)
    seen = []

    def ask():
        with connections.operation() as first:
            seen.append(first)

    with connections.operation() as outer:
        ask()
        other = threading.Thread(target=ask)
        other.start()
        other.join()
    ask()

    assert (outer, seen) == (True, [False, True, True])
