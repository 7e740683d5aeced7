# SPDX-License-Identifier: Apache-2.0
"""Errors of broken configurations name the option, and no part of its value."""

import pymysql
import pytest
from oslo_config import cfg
from oslo_db import exception as db_exc

from novasched.cells.database import reason
from novasched.cells.engines import connect
from novasched.conf import loading, redaction
from novasched.conf.errors import ConfigError
from novasched.conf.settings import ServiceSettings, Settings
from novasched.neutron import Neutron
from novasched.placement.api import PlacementApi
from novasched.rpc.server import make_transport
from novasched.scheduler.errors import (
    BadPlugin,
    NetworkUnavailable,
    PlacementUnavailable,
)
from novasched.scheduler.plugin import Enabled, Plugin
from novasched.service.build import http_adapter

WORD = 'Kraken7'


def use(conf):
    """Load the URLs as the daemon does."""
    for group in (conf.database, conf.api_database):
        connect(group, group.connection or 'sqlite://', 'x')
    make_transport(conf)


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        (f'[DEFAULT]\n{WORD}\n', "line 2: No ':' or '=' found in assignment"),
        (f'[DEFAULT]\n  {WORD}\n', 'line 2: Unexpected continuation line'),
        (f'[{WORD}\n', 'line 1: Invalid section (must end with ])'),
        (f'= {WORD}\n', 'line 1: Key cannot be empty'),
        (f'password = {WORD}\n', 'line 1: Section must be started before assignment'),
    ],
)
def test_the_error_of_a_broken_line_names_file_and_line_number(
    load, tmp_path, text, why
):
    """The error names the file and the number of the line."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == f'--config-file = {tmp_path}/nova.conf: {why}'


@pytest.mark.parametrize(
    ('text', 'option'),
    [
        (f'[database]\nconnection = mysql://u:a${WORD}@h/', '[database] connection'),
        (
            f'[database]\nconnection = mysql://u:a${{{WORD}}}@h/',
            '[database] connection',
        ),
        (
            f'[database]\nconnection = mysql://u:a${{x.{WORD}}}@h/',
            '[database] connection',
        ),
        (
            f'[api_database]\nconnection = mysql://u:$database.{WORD}@h/',
            '[api_database] connection',
        ),
        (
            f'[DEFAULT]\ntransport_url = rabbit://u:a${WORD}@h/',
            '[DEFAULT] transport_url',
        ),
    ],
)
def test_the_error_of_an_unescaped_dollar_names_the_option(load, text, option):
    """The error names the option, and the spelling of a plain $."""
    conf = load(text)
    with pytest.raises(cfg.Error) as caught:
        use(conf)
    assert (
        loading.refusal(conf, caught.value)
        == f'{option} = (not shown): {loading.WHY_DOLLAR}'
    )


def test_the_error_of_a_bad_library_option_names_the_option(load):
    """The line about an option of a library has its name, and no code."""
    conf = load('[DEFAULT]\nlog_rotation_type = nonsense')
    with pytest.raises(cfg.Error) as caught:
        print(conf.log_rotation_type)
    assert loading.refusal(conf, caught.value) == (
        'option log_rotation_type: Valid values are [interval, size, none], but found '
        "'nonsense'"
    )


@pytest.mark.parametrize('password', ['a/b', 'a#b', 'a?b', 'a,b', 'a[b', 'a]b'])
def test_the_error_of_an_unreadable_transport_url_names_the_option(load, password):
    """The refusal of an unreadable URL names the option."""
    conf = load(f'[DEFAULT]\ntransport_url = rabbit://u:{password}@h/')
    with pytest.raises(ConfigError) as caught:
        make_transport(conf)
    assert str(caught.value).startswith(
        '[DEFAULT] transport_url = (not shown): it cannot be read'
    )


@pytest.mark.parametrize(
    ('url', 'why'),
    [
        (f'mysql+pymysql://u:x@h:{WORD}/n', '(not shown): unusable: ValueError'),
        (f'{WORD}', '(not shown): unusable: ArgumentError'),
        (f'{WORD}://u:x@h/n', '(not shown): unusable: NoSuchModuleError'),
    ],
)
def test_the_error_of_an_unusable_database_url_names_the_option(load, url, why):
    """The refusal of an unusable URL names the option."""
    with pytest.raises(ConfigError) as caught:
        connect(load('').database, url, '[database] connection')
    assert str(caught.value) == f'[database] connection = {why}'


def test_half_a_password_taken_for_a_host_is_hidden():
    """Half a password that a driver took for a host is hidden. The rest of the error
    stays."""
    redaction.learn([f'mysql://u:half@{WORD}@host/n'])
    text = f"Can't connect to MySQL server on '{WORD}@host' (Name or service not known)"
    error = db_exc.DBConnectionError(pymysql.OperationalError(2003, text))
    assert 'connect to MySQL server on' in reason(error)
    assert WORD not in reason(error)


@pytest.mark.parametrize(
    'url',
    [
        f'http://u:{WORD}@127.0.0.1:1',
        f'http://u:x@{WORD}@127.0.0.1:1',
        f'http://u:{WORD}#@h',
    ],
)
def test_credentials_in_service_urls_are_hidden_in_errors(load, url):
    """Credentials in the URL of Placement or Neutron are hidden, in lower case too."""
    lines = ('auth_type = admin_token', 'token = x', f'endpoint_override = {url}')
    conf = load('\n'.join(['[placement]', *lines, '[neutron]', *lines]))
    api = PlacementApi(http_adapter(conf, 'placement', ServiceSettings()))
    with pytest.raises(PlacementUnavailable) as caught:
        api.send('GET', '/')
    assert WORD.lower() not in str(caught.value).lower()
    neutron = Neutron(
        http_adapter(conf, 'neutron', ServiceSettings()), lambda _: frozenset()
    )
    with pytest.raises(NetworkUnavailable) as away:
        neutron.ports(['x'])
    assert WORD.lower() not in str(away.value).lower()


def test_a_secret_in_the_error_of_a_plugin_is_hidden():
    """The error of a plugin may quote a secret, which is hidden."""
    redaction.learn([WORD])
    plugin = Enabled(Plugin(Settings()))
    with pytest.raises(BadPlugin, match=r'Plugin raised KeyError: .\*\*\*'), plugin:
        raise KeyError(WORD)


def test_secrets_in_environment_variables_are_hidden(load, monkeypatch):
    """Secrets in environment variables are hidden like secrets in files."""
    monkeypatch.setenv('OS_PLACEMENT__PASSWORD', WORD)
    load('')
    assert redaction.hide(f'it is {WORD}') == 'it is ***'
