# SPDX-License-Identifier: Apache-2.0
import math
import re
import socket
import sys

import pytest

from novasched.cells.engines import connect, filled
from novasched.conf.errors import ConfigError
from novasched.scheduler.errors import DatabaseUnavailable
from tests.lab.nova_databases import database_options

OWN = 'mysql+pymysql://nova:s3cret@db.example:3307/nova?charset=utf8'
TWO = 'rabbit://u1:p1@h1:5672,u2:p2@[fd00::2]:5673/vhost'


@pytest.mark.parametrize(
    ('template', 'own', 'url', 'why'),
    [
        (
            '{scheme}://{username}:{password}@{hostname}:{port}/cell1?{query}',
            OWN,
            'mysql+pymysql://nova:s3cret@db.example:3307/cell1?charset=utf8',
            None,
        ),
        (
            '{hostname1}:{port1},{username2}:{password2}@[{hostname2}]:{port2}',
            TWO,
            'h1:5672,u2:p2@[fd00::2]:5673',
            None,
        ),
        ('plain', None, 'plain', None),
        (
            '{hostname}',
            None,
            '{hostname}',
            'is a template, and [database] connection is not set',
        ),
        (
            '{unknown}:{password}',
            OWN,
            '{unknown}:{password}',
            'cannot be filled: KeyError',
        ),
        *(
            (template, own, template, 'cannot be filled: ValueError')
            for template, own in [
                ('{}', OWN),
                ('{', OWN),
                ('{scheme.__class__}', OWN),
                ('{scheme[0]}', OWN),
                ('{password!r}', OWN),
                ('{port:999999999}', OWN),
                ('{scheme:{port}}', OWN),
                ('{hostname}', 'mysql://u:s3cret@h1:1,h2:2,/db'),
            ]
        ),
    ],
)
def test_url_templates_are_filled_from_the_database_connection(
    template, own, url, why, caplog
):
    """Templates are filled as in nova (``functional/test_cells.py`` compares the two).
    An invalid template stays unfilled: the log names the cell and the mistake, without
    secrets."""
    assert filled(template, own, 'cell c1') == url
    messages = []
    if why:
        messages.append(f'The URL of cell c1 {why}')
    assert caplog.messages == messages


@pytest.mark.parametrize(
    ('url', 'patience', 'query'),
    [
        (
            'mysql+pymysql://u:p%40@h/db',
            2.5,
            {'connect_timeout': '3', 'read_timeout': '3', 'write_timeout': '3'},
        ),
        (
            'mysql+pymysql://u:p%40@h/db?read_timeout=7&ssl_cipher=AES',
            0.1,
            {
                'connect_timeout': '1',
                'read_timeout': '7',
                'write_timeout': '1',
                'ssl_cipher': 'AES',
            },
        ),
        (
            'mysql+pymysql://u:p%40@h/db',
            60.0,
            {'connect_timeout': '10', 'read_timeout': '60', 'write_timeout': '60'},
        ),
        ('mysql+pymysql://u:p%40@h/db', math.inf, {}),
        (
            'postgresql+psycopg2://u:p%40@h/db',
            2.5,
            {
                'connect_timeout': '3',
                'options': '-c statement_timeout=3000',
                'tcp_user_timeout': '3000',
                'keepalives_idle': '1',
                'keepalives_interval': '1',
                'keepalives_count': '3',
            },
        ),
        (
            'postgresql+psycopg://u:p%40@h/db'
            '?options=-c%20lock_timeout%3D5&keepalives_idle=7',
            60.0,
            {
                'connect_timeout': '10',
                'options': '-c lock_timeout=5 -c statement_timeout=60000',
                'tcp_user_timeout': '60000',
                'keepalives_idle': '7',
                'keepalives_interval': '10',
                'keepalives_count': '3',
            },
        ),
        (
            'postgresql+psycopg2://u:p%40@h/db'
            '?options=-cstatement_timeout%3D9&connect_timeout=1',
            60.0,
            {
                'connect_timeout': '1',
                'options': '-cstatement_timeout=9',
                'tcp_user_timeout': '60000',
                'keepalives_idle': '30',
                'keepalives_interval': '10',
                'keepalives_count': '3',
            },
        ),
        ('postgresql+psycopg2://u:p%40@h/db', math.inf, {}),
        ('sqlite:///db', 2.5, {}),
    ],
)
def test_drivers_get_timeouts_except_for_timeouts_in_the_url(url, patience, query):
    """Drivers get timeouts in whole seconds. Timeouts in the URL stay."""
    engine = connect(database_options(), url, 'cell c1', patience=patience).engine
    assert dict(engine.url.query) == query
    password = 'p@'
    if 'sqlite' in url:
        password = None
    assert engine.url.password == password


@pytest.mark.parametrize(
    'driver', ['postgresql+psycopg2', 'postgresql+psycopg', 'mysql+pymysql']
)
def test_a_refused_connection_is_retried_max_retries_times(driver, caplog):
    """The connection is retried max_retries times."""
    with socket.create_server(('127.0.0.1', 0)) as away:
        url = f'{driver}://u:s3cret@127.0.0.1:{away.getsockname()[1]}/db'
    options = database_options(max_retries=2, retry_interval=0)
    with pytest.raises(DatabaseUnavailable, match='refused'):
        connect(options, url, 'cell c1', wait=True, patience=5)
    assert len(caplog.messages) == 2
    assert 's3cret' not in caplog.text


@pytest.mark.parametrize(
    ('url', 'driver', 'why'),
    [
        (
            'postgresql+psycopg2://u:s3cret@h/db',
            'psycopg2',
            'install psycopg2 (pip install novasched[postgresql])',
        ),
        (
            'postgresql+psycopg://u:s3cret@h/db',
            'psycopg',
            'install psycopg (pip install novasched[postgresql])',
        ),
        ('mysql+mysqldb://u:s3cret@h/db', 'MySQLdb', 'install MySQLdb'),
    ],
)
def test_the_error_of_a_missing_driver_names_the_package(url, driver, why, monkeypatch):
    """The error names the driver, and the extra that installs it."""
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(
        ConfigError, match=re.escape(f'cell c1 = (not shown): unusable: {why}')
    ):
        connect(database_options(), url, 'cell c1')
