# SPDX-License-Identifier: Apache-2.0
"""Strangers at a port of HTTP: many, rude and slow.

``python -m tests.lab.http_flood HOST:PORT`` floods until a line comes on its input, and
says how often it sent something.
"""

import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from novasched.conf.options import parse_address

PATIENCE = 2.0
ASKING = 8
SLOW = 30
"""So many threads ask or send garbage; so many connections are held open by each of a
few."""
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
    """It, as long as the block lasts; the list gets what has been sent.

    :param bind: HOST:PORT.
    """
    address = parse_address(bind)
    done = list[bytes]()
    over = threading.Event()

    def connected():
        return socket.create_connection((address.host, address.port), PATIENCE)

    def ask():
        for sent in itertools.cycle(SENT):
            if over.is_set():
                return
            with contextlib.suppress(OSError), connected() as made:
                made.sendall(sent)
                while made.recv(65_536):
                    pass
            done.append(sent)

    def trickle():
        held: list[socket.socket] = []
        while not over.wait(0.1):
            with contextlib.suppress(OSError):
                if len(held) < SLOW:
                    held.append(connected())
            for each in [*held]:
                try:
                    each.sendall(
                        b'GET /metrics HTTP/1.1\r\nX: ' if each is held[-1] else b'x'
                    )
                except OSError:
                    each.close()
                    held.remove(each)
        for each in held:
            each.close()

    work: list[Callable[[], None]] = [*[ask] * ASKING, trickle, trickle]
    with ThreadPoolExecutor(len(work)) as pool:
        asking = [pool.submit(each) for each in work]
        try:
            yield done
        finally:
            over.set()
    for each in asking:
        each.result()


if __name__ == '__main__':
    with flood(sys.argv[1]) as it:
        print('begun', flush=True)
        sys.stdin.readline()
    print(len(it))
