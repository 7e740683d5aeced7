# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide
from novasched.conf.settings import Address, SocketFile
from novasched.observe.web.server import listen
from tests.lab.processes import free_port

BIND = 'metrics_bind'
HEALTH = 'health_bind'
ENDPOINT = 'tracing_endpoint'
WHY = {
    BIND: 'expected HOST:PORT or [::1]:PORT',
    HEALTH: 'expected unix:/PATH, HOST:PORT or [::1]:PORT',
    ENDPOINT: 'expected http[s]://HOST[:PORT][/PATH]',
}


@pytest.fixture
def read(load):
    """The value of an option of this text in nova.conf."""

    def _read(option, text):
        return getattr(
            loading.service_settings(load(f'[novasched]\n{option} = {text}\n')), option
        )

    return _read


@pytest.mark.parametrize(
    ('option', 'text', 'value'),
    [
        (BIND, '127.0.0.1:18774', Address('127.0.0.1', 18774)),
        (BIND, 'controller-1.example.org:1', Address('controller-1.example.org', 1)),
        (BIND, '[::1]:65535', Address('::1', 65535)),
        (BIND, '[fe80::1]:80', Address('fe80::1', 80)),
        (BIND, '', None),
        (HEALTH, '', None),
        (HEALTH, '[::1]:9102', Address('::1', 9102)),
        (HEALTH, 'unix:/run/x.sock', SocketFile('/run/x.sock')),
        (HEALTH, 'unix:$state_path/x', SocketFile('/var/lib/nova/x')),
        (ENDPOINT, '', None),
        (ENDPOINT, 'http://collector:4318', 'http://collector:4318/v1/traces'),
        (ENDPOINT, 'http://collector:4318/', 'http://collector:4318/v1/traces'),
        (ENDPOINT, 'https://collector', 'https://collector/v1/traces'),
        (ENDPOINT, 'http://[::1]:4318', 'http://[::1]:4318/v1/traces'),
        (
            ENDPOINT,
            'http://collector/otlp/v1/traces',
            'http://collector/otlp/v1/traces',
        ),
        (
            ENDPOINT,
            'http://me:Kraken77@collector',
            'http://me:Kraken77@collector/v1/traces',
        ),
    ],
)
def test_values(read, option, text, value):
    """An address is shown as it is written. A URL without a path gets the one at which
    collectors listen. What is empty is none."""
    found = read(option, text)
    assert found == value
    assert not isinstance(found, Address) or str(found) == text


@pytest.mark.parametrize(
    ('option', 'text'),
    [
        *(
            (BIND, text)
            for text in (
                '18774',
                'localhost',
                ':18774',
                '::1:18774',
                '[::1]',
                '[::1]18774',
                'a:b',
                'a:0',
                'a:65536',
                'a:-1',
                'a b:1',
                'user:word@a:1',
                'http://a:1',
                'a:1/metrics',
                '[a]:1',
                'a:٣',
            )
        ),
        *((HEALTH, text) for text in ('unix:', 'unix:x', '/run/x.sock')),
        *(
            (ENDPOINT, text)
            for text in (
                'collector:4318',
                'localhost',
                'true',
                'grpc://collector:4317',
                'http://',
                'http:///v1/traces',
                'http://collector:0',
                'http://collector:99999',
                'http://collector:port',
                'http://[::1',
                'http://one two',
                'http://collector/?token=x',
                'http://collector/#x',
            )
        ),
    ],
)
def test_values_that_cannot_be(read, option, text):
    """They stop the start, with the option, the value and why in one line."""
    with pytest.raises(ConfigError) as error:
        read(option, text)
    assert str(error.value) == f'[novasched] {option} = {text}: {WHY[option]}'


@pytest.mark.parametrize(
    ('text', 'path'),
    [
        ('', '/var/lib/nova'),
        ('state_path = /x', '/x'),
        ('state_path = $pybasedir\npybasedir=/y', '/y'),
    ],
)
def test_where_probes_ask_by_default(load, text, path):
    """Below nova's folder of state, also where that is as in nova's sample
    configuration."""
    found = loading.service_settings(load(f'[DEFAULT]\n{text}\n')).health_bind
    assert found == SocketFile(f'{path}/novasched/health.sock')


@pytest.mark.parametrize('text', ['http://me:Kraken77@col:port', 'http://Kraken77@h:0'])
def test_a_password_in_a_value_that_cannot_be(read, text):
    """It is not shown."""
    with pytest.raises(ConfigError) as error:
        read(ENDPOINT, text)
    assert 'tracing_endpoint' in hide(error.value)
    assert 'Kraken77' not in hide(error.value)


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '::1'])
def test_listening(host):
    """Names and numbers of either family can be listened on."""
    if host == '::1' and not socket.has_dualstack_ipv6():
        pytest.skip('no IPv6 here')
    address = Address(host, free_port())
    with listen(address, 'option'), socket.create_connection((host, address.port), 5):
        pass
