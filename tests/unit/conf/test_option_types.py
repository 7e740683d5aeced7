# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.options import ADDRESS
from novasched.conf.redaction import hide
from novasched.conf.settings import Address
from novasched.observe.web.wiring import listen
from tests.lab.processes import free_port


@pytest.mark.parametrize(
    ('text', 'address'),
    [
        ('127.0.0.1:9101', Address('127.0.0.1', 9101)),
        ('controller-1.example.org:1', Address('controller-1.example.org', 1)),
        ('[::1]:65535', Address('::1', 65535)),
        (' [fe80::1]:80 ', Address('fe80::1', 80)),
        ('  ', None),
        (None, None),
    ],
)
def test_addresses(text, address):
    """A host and a port, which are shown as they are written; what is empty is none."""
    assert ADDRESS(text) == address
    assert address is None or str(address) == text.strip()


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
        ADDRESS(text)


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '::1'])
def test_listening(host):
    """Names and numbers of either family can be listened on."""
    if host == '::1' and not socket.has_dualstack_ipv6():
        pytest.skip('no IPv6 here')
    address = Address(host, free_port())
    with listen(address, 'option'), socket.create_connection((host, address.port), 5):
        pass


@pytest.fixture
def read(load):
    """The URL that a nova.conf with this value gives."""

    def _read(text):
        conf = load(f'[novasched]\ntracing_endpoint = {text}\n')
        return loading.service_settings(conf).tracing_endpoint

    return _read


@pytest.mark.parametrize(
    ('text', 'url'),
    [
        ('', None),
        ('http://collector:4318', 'http://collector:4318/v1/traces'),
        ('http://collector:4318/', 'http://collector:4318/v1/traces'),
        ('https://collector', 'https://collector/v1/traces'),
        ('http://[::1]:4318', 'http://[::1]:4318/v1/traces'),
        ('http://collector/otlp/v1/traces', 'http://collector/otlp/v1/traces'),
        ('http://me:Kraken77@collector', 'http://me:Kraken77@collector/v1/traces'),
    ],
)
def test_the_url_in_full(read, text, url):
    """Without a path it is the one at which collectors listen; without a value there is none."""
    assert read(text) == url


@pytest.mark.parametrize(
    'text',
    [
        'collector:4318', 'localhost', 'true', 'grpc://collector:4317', 'http://',
        'http:///v1/traces', 'http://collector:0', 'http://collector:99999',
        'http://collector:port', 'http://[::1', 'http://one two', 'http://collector/?token=x',
        'http://collector/#x',
    ],
)  # fmt: skip
def test_a_value_that_cannot_be(read, text):
    """It stops the start, with the option, the value and why in one line."""
    with pytest.raises(ConfigError) as error:
        read(text)
    why = 'http[s]://HOST[:PORT][/PATH] is wanted'
    assert str(error.value) == f'[novasched] tracing_endpoint = {text}: {why}'


@pytest.mark.parametrize('text', ['http://me:Kraken77@col:port', 'http://Kraken77@h:0'])
def test_a_password_in_a_value_that_cannot_be(read, text):
    """It is not shown."""
    with pytest.raises(ConfigError) as error:
        read(text)
    assert 'tracing_endpoint' in hide(error.value)
    assert 'Kraken77' not in hide(error.value)
