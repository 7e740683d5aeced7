# SPDX-License-Identifier: Apache-2.0
import gc
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from novasched.cells.lines import Connection, Lines

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
    lines, asked = Lines(60), engine(server)
    lines.watch(asked)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked.connect)
        connection, _ = server.accept()
        with closing(connection):
            connection.sendall(said)
            while not waiting.done():  # it may not have begun to wait
                lines.cut()
        with pytest.raises(sa_exc.OperationalError):
            waiting.result(SECONDS)


def test_nobody_begins_anew_whose_time_is_over(server):
    """Not even the first connection is tried that would come too late."""
    lines, asked = Lines(0), engine(server)
    lines.watch(asked)
    with lines.asking(), pytest.raises(sa_exc.OperationalError, match='no answer within 0 s'):
        asked.connect()


def test_nothing_is_left_of_a_failure():
    """What a connection needs is free when it could not be made, not with the next garbage."""
    with socket.create_server(('127.0.0.1', 0)) as away:
        asked = engine(away)
    lines = Lines(60)
    lines.watch(asked)
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
    one, two = Connection(defer_connect=True), Connection(defer_connect=True)
    assert one.ctx is two.ctx
    assert one.ctx.verify_mode is ssl.CERT_NONE
    told = Connection(defer_connect=True, ssl_verify_cert=True)
    assert told.ctx is not one.ctx
    assert told.ctx.verify_mode is ssl.CERT_REQUIRED


def test_what_is_asked_meanwhile():
    """It belongs to what the same thread asked first, and to nothing of another thread."""
    lines = Lines(60)
    seen = []

    def ask():
        with lines.asking() as first:
            seen.append(first)

    with lines.asking() as outer:
        ask()
        other = threading.Thread(target=ask)
        other.start()
        other.join()
    ask()
    assert (outer, seen) == (True, [False, True, True])
