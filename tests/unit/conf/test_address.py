# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from novasched.conf.address import Address, AddressType
from novasched.web.server import listening
from tests.functional.processes import free_port

READ = AddressType()


@pytest.mark.parametrize(
    ('text', 'address'),
    [
        ('127.0.0.1:9101', Address('127.0.0.1', 9101)),
        ('controller-1.example.org:1', Address('controller-1.example.org', 1)),
        ('[::1]:65535', Address('::1', 65535)),
        (' [fe80::1]:80 ', Address('fe80::1', 80)),
    ],
)
def test_addresses(text, address):
    """A host and a port, which are shown as they are written."""
    assert READ(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize('text', ['', '  ', None])
def test_none(text):
    """What is empty is none."""
    assert READ(text) is None


@pytest.mark.parametrize(
    'text',
    [
        '9101', 'localhost', ':9101', '::1:9101', '[::1]', '[::1]9101', 'a:b', 'a:0', 'a:65536',
        'a:-1', 'a b:1', 'user:word@a:1', 'http://a:1', 'a:1/metrics', '[a]:1', 'a:1\nb:2', 'a:٣',
    ],
)  # fmt: skip
def test_what_is_no_address(text):
    """It is refused, and nothing is guessed."""
    with pytest.raises(ValueError, match=r'HOST:PORT or \[::1\]:PORT is wanted'):
        READ(text)


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '::1'])
def test_listening(host):
    """Names and numbers of either family can be listened on."""
    if host == '::1' and not socket.has_dualstack_ipv6():
        pytest.skip('no IPv6 here')
    address = Address(host, free_port())
    with listening(address, 'option'), socket.create_connection((host, address.port), 5):
        pass
