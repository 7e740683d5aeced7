# SPDX-License-Identifier: Apache-2.0
"""A flood of an HTTP port: many requests, garbage and slow requests.

``python -m tests.lab.http_flood HOST:PORT`` floods the port until a line comes on
standard input, and prints the number of requests.
"""

import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager

from novasched.conf.options import parse_address
from tests.lab.processes import in_threads

PATIENCE = 2.0
ASKING = 8
"""Number of threads that send requests and garbage."""
SLOW = 30
"""Number of connections that each thread of slow requests holds open."""
SENT = (
    b'GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    b'GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    b'POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n'
    + b'x' * 20_000,
    b'\x16\x03\x01' + bytes(range(256)) * 8 + b'\r\n\r\n',
    b'GET /' + b'%' * 20_000 + b' HTTP/1.1\r\n\r\n',
    b'nonsense\r\n\r\n',
)


@contextmanager
def flood(bind):
    """Flood a port in a block; the list of requests that were sent.

    :param bind: HOST:PORT.
    """
    address = parse_address(bind)
    requests = list[bytes]()
    is_over = threading.Event()

    def connect():
        return socket.create_connection((address.host, address.port), PATIENCE)

    def ask():
        for request in itertools.cycle(SENT):
            if is_over.is_set():
                return
            with contextlib.suppress(OSError), connect() as connection:
                connection.sendall(request)
                while connection.recv(65_536):
                    pass
            requests.append(request)

    def trickle():
        connections: list[socket.socket] = []
        while not is_over.wait(0.1):
            with contextlib.suppress(OSError):
                if len(connections) < SLOW:
                    connections.append(connect())
            for connection in [*connections]:
                piece = b'x'
                if connection is connections[-1]:
                    piece = b'GET /metrics HTTP/1.1\r\nX: '
                try:
                    connection.sendall(piece)
                except OSError:
                    connection.close()
                    connections.remove(connection)
        for connection in connections:
            connection.close()

    work: list[Callable[[], None]] = [*[ask] * ASKING, trickle, trickle]
    with in_threads(work, is_over):
        yield requests


if __name__ == '__main__':
    with flood(sys.argv[1]) as sent:
        print('begun', flush=True)
        sys.stdin.readline()
    print(len(sent))
