# SPDX-License-Identifier: Apache-2.0
"""MySQL 8's default authentication on a connection without TLS."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pymysql
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from novasched.cells.engines import connect
from novasched.scheduler.errors import DatabaseUnavailable
from tests.lab.nova_databases import database_options

SALT = bytes(range(1, 21))
PLUGIN = b'caching_sha2_password\0'
CAPABILITIES = 0xFFFF_F7FF  # all but TLS
FULL_AUTHENTICATION, ITS_KEY = b'\x01\x04', b'\x02'


def serve(listener, switches):
    """Speak the handshake as MySQL 8 does to a user whom it does not have in its cache; the error
    at the end says whether the password is the right one."""
    connection, _ = listener.accept()
    with connection, connection.makefile('rwb') as line, suppress(EOFError):  # the client leaves
        first = b'mysql_native_password\0' if switches else PLUGIN
        low, high = CAPABILITIES & 0xFFFF, CAPABILITIES >> 16
        send(line, 0, b'\x0a8.4.0\0' + struct.pack('<I', 1) + SALT[:8] + b'\0'
             + struct.pack('<HBHHB', low, 255, 2, high, 21) + bytes(10) + SALT[8:] + b'\0' + first)  # fmt: skip
        number, _ = receive(line)
        if switches:
            send(line, number + 1, b'\xfe' + PLUGIN + SALT + b'\0')
            number, _ = receive(line)
        send(line, number + 1, FULL_AUTHENTICATION)
        number, asked = receive(line)
        assert asked == ITS_KEY
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        send(line, number + 1, b'\x01' + public)
        number, encrypted = receive(line)
        sha1 = hashes.SHA1()
        plain = key.decrypt(encrypted, padding.OAEP(padding.MGF1(sha1), sha1, None))
        mask = (SALT * 9)[: len(plain)]
        password = bytes(a ^ b for a, b in zip(plain, mask, strict=True)).rstrip(b'\0')
        said = b'right' if password == b's3cret' else b'wrong'
        send(line, number + 1, b'\xff' + struct.pack('<H', 1045) + b'#28000' + said)


def send(line, number, payload):
    line.write(struct.pack('<I', len(payload))[:3] + bytes([number]) + payload)
    line.flush()


def receive(line):
    header = line.read(4)
    if len(header) < 4:
        raise EOFError
    return header[3], line.read(int.from_bytes(header[:3], 'little'))


@pytest.fixture(params=[False, True], ids=['at once', 'by a switch'])
def port(request):
    """That of a server."""
    with ThreadPoolExecutor(1) as pool, socket.create_server(('127.0.0.1', 0)) as listener:
        served = pool.submit(serve, listener, request.param)
        yield listener.getsockname()[1]
        served.result(10)


def ask(port):
    """What comes of asking it."""
    url = f'mysql+pymysql://nova:s3cret@127.0.0.1:{port}/nova'
    database = connect(database_options(), url, '[database] connection', patience=10)
    with closing(database), pytest.raises(DatabaseUnavailable) as raised:
        database.read(lambda connection: None)
    return str(raised.value)


def test_with_the_package(port):
    """The password goes over the wire encrypted."""
    assert ask(port) == "[database] connection: (1045, 'right')"


def test_without_the_package(port, monkeypatch):
    """One line says which option it is about, and what to do."""
    monkeypatch.setattr(pymysql._auth, '_have_cryptography', False)
    assert ask(port) == (
        "[database] connection: (2059, 'MySQL checks the password of this user with "
        'caching_sha2_password or sha256_password: install PyMySQL[rsa], or have the URL ask for '
        "TLS (?ssl_ca=...)')"
    )
