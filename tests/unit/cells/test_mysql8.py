# SPDX-License-Identifier: Apache-2.0
"""MySQL 8's default authentication on a connection without TLS."""

import socket
import struct
import threading
from contextlib import closing

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


class FakeMySQL:
    """Speaks the handshake as MySQL 8 does to a user whom it does not have in its cache, and
    says, in the error with which it ends, whether the password was the right one."""

    def __init__(self, switches, password):
        self.switches, self.password = switches, password
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(10)

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, connection.makefile('rwb') as line:
                try:
                    self.greet(line)
                except (EOFError, OSError):
                    continue  # the client has left

    def greet(self, line):
        first = b'mysql_native_password\0' if self.switches else PLUGIN
        low, high = CAPABILITIES & 0xFFFF, CAPABILITIES >> 16
        send(line, 0, b'\x0a8.4.0\0' + struct.pack('<I', 1) + SALT[:8] + b'\0'
             + struct.pack('<HBHHB', low, 255, 2, high, 21) + bytes(10) + SALT[8:] + b'\0' + first)  # fmt: skip
        number, _ = receive(line)
        if self.switches:
            send(line, number + 1, b'\xfe' + PLUGIN + SALT + b'\0')
            number, _ = receive(line)
        send(line, number + 1, FULL_AUTHENTICATION)
        number, asked = receive(line)
        assert asked == ITS_KEY
        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        send(line, number + 1, b'\x01' + public)
        number, encrypted = receive(line)
        sha1 = hashes.SHA1()
        plain = self.key.decrypt(encrypted, padding.OAEP(padding.MGF1(sha1), sha1, None))
        mask = (SALT * 9)[: len(plain)]
        password = bytes(a ^ b for a, b in zip(plain, mask, strict=True)).rstrip(b'\0').decode()
        said = 'right' if password == self.password else 'wrong'
        send(line, number + 1, b'\xff' + struct.pack('<H', 1045) + b'#28000' + said.encode())


def send(line, number, payload):
    line.write(struct.pack('<I', len(payload))[:3] + bytes([number]) + payload)
    line.flush()


def receive(line):
    header = line.read(4)
    if len(header) < 4:
        raise EOFError
    return header[3], line.read(int.from_bytes(header[:3], 'little'))


@pytest.fixture(params=[False, True], ids=['at once', 'by a switch'])
def server(request):
    with closing(FakeMySQL(request.param, 's3cret')) as made:
        yield made


def ask(server):
    """What comes of asking it."""
    url = f'mysql+pymysql://nova:s3cret@127.0.0.1:{server.port}/nova'
    database = connect(database_options(), url, '[database] connection', patience=10)
    with closing(database), pytest.raises(DatabaseUnavailable) as raised:
        database.read(lambda connection: None)
    return str(raised.value)


def test_with_the_package(server):
    """The password goes over the wire encrypted."""
    assert ask(server) == "[database] connection: (1045, 'right')"


def test_without_the_package(server, monkeypatch):
    """One line says which option it is about, and what to do."""
    monkeypatch.setattr(pymysql._auth, '_have_cryptography', False)
    assert ask(server) == (
        "[database] connection: (2059, 'MySQL checks the password of this user with "
        'caching_sha2_password or sha256_password: install PyMySQL[rsa], or have the URL ask for '
        "TLS (?ssl_ca=...)')"
    )
