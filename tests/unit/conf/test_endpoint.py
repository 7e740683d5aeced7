# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched import conf
from novasched.errors import ConfigError
from novasched.secrets import hide

HOST = 'http://HOST:PORT or https://HOST:PORT is wanted'


@pytest.fixture
def read(tmp_path):
    """What a nova.conf with this value gives."""

    def _read(text):
        path = tmp_path / 'nova.conf'
        path.write_text(f'[novasched]\ntracing_endpoint = {text}\n')
        loaded = conf.load(['--config-file', str(path)], 'novasched')
        conf.settings(loaded)
        return conf.tracing_endpoint(loaded)

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


def test_nothing_is_set(tmp_path):
    """Then nothing is traced."""
    (tmp_path / 'nova.conf').write_text('')
    loaded = conf.load(['--config-file', str(tmp_path / 'nova.conf')], 'novasched')
    assert conf.tracing_endpoint(loaded) is None


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('collector:4318', HOST),
        ('localhost', HOST),
        ('true', HOST),
        ('grpc://collector:4317', HOST),
        ('http://', 'its host or port is none'),
        ('http:///v1/traces', 'its host or port is none'),
        ('http://collector:0', 'its host or port is none'),
        ('http://collector:99999', 'its host or port is none'),
        ('http://collector:port', 'its host or port is none'),
        ('http://[::1', 'its host or port is none'),
        ('http://one two', 'there is a blank in it'),
        ('http://collector/?token=x', 'it ends with the path, and has neither ? nor #'),
        ('http://collector/#x', 'it ends with the path, and has neither ? nor #'),
    ],
)
def test_a_value_that_cannot_be(read, text, why):
    """It stops the start, with the option, the value and why in one line."""
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value) == f'[novasched] tracing_endpoint = {text}: {why}'


@pytest.mark.parametrize('text', ['http://me:Kraken77@col:port', 'http://me:Kraken77@', 'http://Kraken77@h:0'])  # fmt: skip
def test_a_password_in_a_value_that_cannot_be(read, text):
    """It is not shown."""
    with pytest.raises(ConfigError) as error:
        read(text)
    assert 'tracing_endpoint' in hide(error.value)
    assert 'Kraken77' not in hide(error.value)
