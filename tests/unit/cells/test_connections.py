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


@pytest.fixture
def server():
    """It takes connections."""
    with socket.create_server(('127.0.0.1', 0)) as made:
        yield made


def engine(server):
    port = server.getsockname()[1]
    return sa.create_engine(f'mysql+pymysql://u@127.0.0.1:{port}/db', poolclass=sa.NullPool)


@pytest.mark.parametrize('said', [b'', b'\xff\xff\x00\x00x'])
def test_nobody_waits_on_a_line_that_is_cut(server, said):
    """Whether the server is silent or has begun to say something."""
    connections, asked = TrackedConnections(60), engine(server)
    connections.track(asked)
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
    """A message of PostgreSQL's protocol."""
    return kind + struct.pack('>I', len(content) + 4) + content


GREETING = said(b'R', bytes(4)) + b''.join(
    said(b'S', f'{name}\0{value}\0'.encode())
    for name, value in {
        'server_version': '15.0', 'client_encoding': 'UTF8', 'DateStyle': 'ISO, MDY',
        'standard_conforming_strings': 'on',
    }.items()
) + said(b'Z', b'I')  # fmt: skip
"""Welcome, whoever you are."""


@pytest.mark.parametrize('driver', ['psycopg2', 'psycopg'])
def test_nobody_waits_on_a_line_of_libpq_that_is_cut(server, driver):
    """PostgreSQL's drivers know of no time limit while they wait for an answer."""
    port = server.getsockname()[1]
    url = f'postgresql+{driver}://u:p@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable'
    connections, asked = TrackedConnections(60), sa.create_engine(url, poolclass=sa.NullPool)
    connections.track(asked)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked.connect)
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(1000)
            connection.sendall(GREETING)
            assert connection.recv(1000)  # SQLAlchemy's first question
            connections.abort()
            with pytest.raises(sa_exc.OperationalError):
                waiting.result(SECONDS)


@pytest.mark.parametrize('driver', ['psycopg2', 'psycopg'])
def test_a_probe_that_ends_early_ends_what_is_waited_for(server, driver):
    """The time limit that libpq has for a connection may be less than that of a probe."""
    port = server.getsockname()[1]
    url = f'postgresql+{driver}://u:p@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable'
    engine = sa.create_engine(f'{url}&connect_timeout=2', poolclass=sa.NullPool)
    with closing(Database(engine, 'cell1', patience=2)) as base, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(base.read, lambda connection: None)
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(1000)
            connection.sendall(GREETING)
            assert connection.recv(1000)
            with pytest.raises(sa_exc.OperationalError, match='timeout'):
                base._probe()
            with pytest.raises(DatabaseUnavailable):
                waiting.result(SECONDS)


@pytest.mark.parametrize('driver', ['mysql+pymysql', 'postgresql+psycopg2', 'postgresql+psycopg'])
def test_nobody_begins_anew_whose_time_is_over(server, driver):
    """Not even the first connection is tried that would come too late."""
    url = f'{driver}://u@127.0.0.1:{server.getsockname()[1]}/db'
    connections, asked = TrackedConnections(0), sa.create_engine(url, poolclass=sa.NullPool)
    connections.track(asked)
    with (
        connections.operation(),
        pytest.raises(sa_exc.OperationalError, match='no answer within 0 s'),
    ):
        asked.connect()


def test_nothing_is_left_of_a_failure():
    """What a connection needs is free when it could not be made, not with the next garbage."""
    with socket.create_server(('127.0.0.1', 0)) as away:
        asked = engine(away)
    connections = TrackedConnections(60)
    connections.track(asked)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(sa_exc.OperationalError):
            asked.connect()
        left = [each for each in gc.get_objects() if isinstance(each, pymysql.Connection)]
    finally:
        gc.enable()
    assert left == []


def test_what_tls_needs_is_made_once():
    """Connections share it, but for those whose URL has an opinion on TLS."""
    one, two = (
        SharedContextConnection(defer_connect=True),
        SharedContextConnection(defer_connect=True),
    )
    assert one.ctx is two.ctx
    assert one.ctx.verify_mode is ssl.CERT_NONE
    told = SharedContextConnection(defer_connect=True, ssl_verify_cert=True)
    assert told.ctx is not one.ctx
    assert told.ctx.verify_mode is ssl.CERT_REQUIRED


def test_what_is_asked_meanwhile():
    """It belongs to what the same thread asked first, and to nothing of another thread."""
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
