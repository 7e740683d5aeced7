# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.page.guard import is_local


@pytest.mark.parametrize(
    ('peer', 'host', 'local'),
    [
        ('127.0.0.1', '', True),
        ('127.0.0.1', 'localhost', True),
        ('127.0.0.1', 'localhost:9100', True),
        ('127.0.0.1', 'LOCALHOST:9100', True),
        ('127.0.0.1', '127.0.0.1:9100', True),
        ('127.9.9.9', '127.0.0.1', True),
        ('::1', '[::1]:9100', True),
        ('::ffff:127.0.0.1', '127.0.0.1', True),
        ('::ffff:10.0.0.1', '127.0.0.1', False),
        ('10.0.0.1', '127.0.0.1', False),
        ('127.0.0.1', 'evil.example.org', False),
        ('127.0.0.1', 'evil.example.org:9100', False),
        ('127.0.0.1', 'localhost.evil.example.org', False),
        ('127.0.0.1', 'localhost@evil.example.org', False),
        ('127.0.0.1', '10.0.0.1', False),
        ('127.0.0.1', '[', False),
        ('127.0.0.1', '\x00', False),
        ('', '', False),
        ('unix', 'localhost', False),
    ],
)
def test_who_is_local(peer, host, local):
    """This machine, under a name that nobody else can give it."""
    assert is_local(peer, host) is local
