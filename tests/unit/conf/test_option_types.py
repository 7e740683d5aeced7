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
    """A function that reads an option of a text in nova.conf."""

    def read_option(option, text):
        conf = load(f'[novasched]\n{option} = {text}\n')
        return getattr(loading.service_settings(conf), option)

    return read_option


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
def test_addresses_sockets_and_urls_in_options_are_parsed(read, option, text, value):
    """The text of an address equals the text in nova.conf. A URL without a path gets the
    default path of collectors. An empty value is None."""
    setting = read(option, text)

    assert setting == value
    if isinstance(setting, Address):
        assert str(setting) == text


@pytest.mark.parametrize(
    ('option', 'text'),
    [
        (BIND, '18774'),
        (BIND, 'localhost'),
        (BIND, ':18774'),
        (BIND, '::1:18774'),
        (BIND, '[::1]'),
        (BIND, '[::1]18774'),
        (BIND, 'a:b'),
        (BIND, 'a:0'),
        (BIND, 'a:65536'),
        (BIND, 'a:-1'),
        (BIND, 'a b:1'),
        (BIND, 'user:word@a:1'),
        (BIND, 'http://a:1'),
        (BIND, 'a:1/metrics'),
        (BIND, '[a]:1'),
        (BIND, 'a:٣'),
        (HEALTH, 'unix:'),
        (HEALTH, 'unix:x'),
        (HEALTH, '/run/x.sock'),
        (ENDPOINT, 'collector:4318'),
        (ENDPOINT, 'localhost'),
        (ENDPOINT, 'true'),
        (ENDPOINT, 'grpc://collector:4317'),
        (ENDPOINT, 'http://'),
        (ENDPOINT, 'http:///v1/traces'),
        (ENDPOINT, 'http://collector:0'),
        (ENDPOINT, 'http://collector:99999'),
        (ENDPOINT, 'http://collector:port'),
        (ENDPOINT, 'http://[::1'),
        (ENDPOINT, 'http://one two'),
        (ENDPOINT, 'http://collector/?token=x'),
        (ENDPOINT, 'http://collector/#x'),
    ],
)
def test_the_error_of_an_invalid_value_names_option_and_reason(read, option, text):
    """An invalid value is an error with the option, the value and the reason in one
    line."""
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
def test_health_bind_defaults_to_a_socket_in_state_path(load, text, path):
    """The default is a socket in ``state_path``, also if ``state_path`` is set as in
    the sample configuration of nova."""
    service = loading.service_settings(load(f'[DEFAULT]\n{text}\n'))

    assert service.health_bind == SocketFile(f'{path}/novasched/health.sock')


@pytest.mark.parametrize('text', ['http://me:Kraken77@col:port', 'http://Kraken77@h:0'])
def test_a_password_in_an_invalid_value_is_hidden(read, text):
    """The error hides the password."""
    with pytest.raises(ConfigError) as error:
        read(ENDPOINT, text)

    assert 'tracing_endpoint' in hide(error.value)
    assert 'Kraken77' not in hide(error.value)


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '::1'])
def test_host_names_and_ip_addresses_can_be_listened_on(host):
    """Host names, IPv4 and IPv6 addresses can be listened on."""
    if host == '::1' and not socket.has_dualstack_ipv6():
        pytest.skip('no IPv6 here')

    address = Address(host, free_port())
    with listen(address, 'option'), socket.create_connection((host, address.port), 5):
        pass
