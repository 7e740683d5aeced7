# SPDX-License-Identifier: Apache-2.0
"""Passwords of every kind, in every place, with every trouble: none of them is told.

The daemon tells whatever it and its libraries have to tell, at the level DEBUG.
"""

import re
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, is_reference, new_uuids
from tests.lab.known_secrets import lines_showing_secret
from tests.lab.processes import free_port, wait_until
from tests.lab.rpc_load import Caller
from tests.lab.servers import as_user
from tests.lab.wire import CALLS, context_of

from .signals import reload, report

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler tells them')

MARK = 'Kraken7'
"""In each piece of each secret that a wrong parse could make."""
HOST = '127.0.0.1'
PORT = free_port()
LIBRARIES = (
    'amqp', 'keystoneauth', 'kombu', 'oslo.messaging', 'oslo_config', 'oslo_db',
    'oslo_messaging', 'oslo_service', 'requests', 'sqlalchemy', 'stevedore', 'urllib3',
)  # fmt: skip
LOUD = {
    'debug': True,
    'log_options': True,
    'default_log_levels': ','.join(f'{name}=DEBUG' for name in LIBRARIES),
}
PASSWORDS = {
    'plain': f'{MARK}a',
    'at': f'{MARK}a@{MARK}b',
    'slash': f'{MARK}a/{MARK}b',
    'question': f'{MARK}a?{MARK}b',
    'colon': f'{MARK}a:{MARK}b',
    'dollar': f'a${MARK}',
    'bracket': f'{MARK}a[{MARK}b',
    'percent': f'{MARK}a%40{MARK}b',
}
LAST = 60.0


def url_of(scheme, password):
    """Where nobody listens."""
    return f'{scheme}://nova:{password}@{HOST}:{PORT}/nova'


def told(daemon):
    """The lines in which a secret stands."""
    return [line for line in daemon.text().splitlines() if MARK.lower() in line.lower()]


def loud(overrides):
    """The overrides, with all that there is to tell."""
    return {**overrides, 'DEFAULT': {**LOUD, **overrides.get('DEFAULT', {})}}


def told_until(cloud, overrides, text):
    """The lines in which a secret stands once the log has what an expression says."""
    daemon = Daemon(cloud, loud(overrides))
    process = daemon.launch()
    try:
        said = lambda: re.search(text, daemon.text()) is not None  # noqa: E731
        wait_until(lambda: not process.alive() or said(), LAST, text)
        assert said()
        return told(daemon)
    finally:
        daemon.close()


SERVERS = {
    'database': ('connection', 'mysql+pymysql', r'novasched: \[database\] connection'),
    'DEFAULT': (
        'transport_url',
        'rabbit',
        r'novasched: \[DEFAULT\] transport_url|Connection refused',
    ),
    'placement': (
        'endpoint',
        'http',
        r'novasched: \[placement\]|ontinuing with startup',
    ),
}
"""The option of each group that names a server, the scheme of its URL, and the words
with which the start ends or goes on."""


@pytest.mark.parametrize('password', PASSWORDS.values(), ids=PASSWORDS)
@pytest.mark.parametrize('group', SERVERS)
def test_a_server_that_is_not_there(small_cloud, group, password):
    """The start ends for a database, or for a URL that is none; the broker is tried
    again and again, and Placement may come later."""
    option, scheme, text = SERVERS[group]
    # No pause before a database is tried again.
    overrides = {group: {option: url_of(scheme, password), 'retry_interval': 0}}
    assert told_until(small_cloud, overrides, text) == []


def test_wrong_passwords(small_cloud):
    """Those who answer, and refuse."""
    at = urlsplit(small_cloud.api.url)
    wrong = at._replace(netloc=f'nova:{MARK}@{at.hostname}:{at.port}').geturl()
    at = urlsplit(small_cloud.amqp_url)
    user = at._replace(netloc=f'guest:{MARK}@{at.hostname}:{at.port}').geturl()
    cases = [
        ({'database': {'connection': wrong, 'retry_interval': 0}}, 'Access denied'),
        ({'api_database': {'connection': wrong, 'retry_interval': 0}}, 'Access denied'),
        ({'DEFAULT': {'transport_url': user}}, 'ACCESS_REFUSED'),
        ({'placement': {'token': MARK}}, r'novasched: \[placement\]'),
    ]
    for overrides, text in cases:
        assert told_until(small_cloud, overrides, text) == []


def test_a_keystone_that_is_not_there(small_cloud):
    """Its URL may have credentials too."""
    group = {
        'auth_type': 'password',
        'username': 'nova',
        'password': MARK,
        'project_name': 'service',
        'user_domain_name': 'Default',
        'project_domain_name': 'Default',
    }
    for auth_url in (f'http://me:{MARK}@{HOST}:{PORT}', f'http://{HOST}:{PORT}'):
        overrides = {'placement': {**group, 'auth_url': auth_url}}
        assert told_until(small_cloud, overrides, 'ontinuing with startup') == []


@pytest.mark.parametrize(
    'line', [MARK, f'  {MARK}', f'[{MARK}'], ids=['word', 'more', 'section']
)
def test_a_broken_file(small_cloud, line):
    """The start ends with the file and the line's number, and so does nothing that is
    told when the file breaks later."""
    daemon = Daemon(small_cloud, loud({}))
    whole = daemon.config.read_text()
    daemon.config.write_text(
        f'[DEFAULT]\n{line}\n{whole}' if line[0] == ' ' else f'{line}\n{whole}'
    )
    assert daemon.run_to_end() != 0
    assert 'novasched: --config-file = ' in daemon.text()
    assert told(daemon) == []


def test_what_comes_by_sighup(small_cloud, client):
    """Databases of a cell, whose URLs the API's alone knows, while the host of another
    cell is left; and a file that breaks."""
    overrides = loud({'database': {'connection_debug': 100}})
    small_cloud.refresh_services()
    with Daemon(small_cloud, overrides) as daemon:
        for kind in ('plain', 'at', 'slash', 'percent'):
            url = url_of('mysql+pymysql', PASSWORDS[kind])
            small_cloud.map_cell('cell2', database_connection=url)
            reload(daemon)
            assert len(client.select_destinations(new_uuids(), Flavor())) == 1
        daemon.config.write_text(f'{MARK}\n{daemon.config.read_text()}')
        reload(daemon, 'SIGHUP: options not reloaded')
        assert told(daemon) == []
    small_cloud.restore_cells()


WORD = 'nova'
STRONG = 'kG7bQz2mXw9RtLp4'
SEARCHED = (
    r' DEBUG nova\.scheduler\.manager .*Starting to schedule for instances: ',
    r' DEBUG nova\.filters .*Starting with 1 host\(s\)',
    r' DEBUG nova\.filters .*Filter ComputeFilter returned 1 host\(s\)',
    r' INFO nova\.filters .*Filter ComputeCapabilitiesFilter returned 0 hosts',
    r' INFO nova\.filters .*Filtering removed all hosts for the request with instance ID ',
    r' DEBUG nova\.scheduler\.manager .*Selected host: ',
    r'weight_classes += \[\'nova\.scheduler\.weights\.all_weighers\'\]',
    r'control_exchange += nova$',
)
"""Lines that operators search for, and options that they look up."""


@pytest.fixture(params=[WORD, STRONG], ids=['a word', 'a strong one'])
def own_user(request, small_cloud, mariadb):
    """The password of a user of all databases, who is the one that the cells' URLs
    name."""
    password = request.param
    engine = sa.create_engine(mariadb.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE OR REPLACE USER scheduler@'%%' IDENTIFIED BY '{password}'"
        )
        connection.exec_driver_sql("GRANT ALL PRIVILEGES ON *.* TO scheduler@'%%'")
    for name, database in small_cloud.cells.items():
        small_cloud.map_cell(
            name, database_connection=as_user(database.url, 'scheduler', password)
        )
    yield password
    small_cloud.restore_cells()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS scheduler@'%%'")
    engine.dispose()


def test_lines_that_operators_search_for(small_cloud, client, mariadb, own_user):
    """Whatever the password is, it is shown nowhere as one, and they stay as they are;
    so it is when databases refuse the password, and say so."""
    overrides = {
        'api_database': {
            'connection': as_user(small_cloud.api.url, 'scheduler', own_user)
        },
        'database': {
            'connection': as_user(small_cloud.cell0.url, 'scheduler', own_user),
            'connection_debug': 100,
        },
    }
    none = Flavor(extra_specs={'capabilities:hypervisor_type': 'none'})
    small_cloud.refresh_services()
    with Daemon(small_cloud, loud(overrides)) as daemon:
        assert len(client.select_destinations(new_uuids(), Flavor())) == 1
        with pytest.raises(Refused):
            client.select_destinations(new_uuids(), none)
        report(daemon, daemon.pid)
        engine = sa.create_engine(mariadb.url)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "ALTER USER scheduler@'%%' IDENTIFIED BY 'another'"
            )
            for [number] in connection.exec_driver_sql(
                "SELECT id FROM information_schema.processlist WHERE user = 'scheduler'"
            ).all():
                connection.exec_driver_sql(f'KILL {number}')
        engine.dispose()
        wait_until(lambda: 'Access denied' in daemon.text(), LAST, 'refusal')
        assert daemon.stop() == 0
    text = daemon.text()
    assert lines_showing_secret(text, own_user) == []
    if own_user == STRONG:
        assert own_user not in text
    assert [line for line in SEARCHED if not re.search(line, text, re.MULTILINE)] == []
    # Nothing of ours is hidden but in URLs and after the names of secrets.
    eaten = re.compile(
        r' (DEBUG|INFO|WARNING|ERROR) nova\S* .*(?<!://)(?<!= )(?<!\*)\*\*\*(?!\*)'
    )
    assert [line for line in text.splitlines() if eaten.search(line)] == []


def test_nothing_goes_wrong(small_cloud):
    """Passwords that are right, and the token of a caller, are not told either."""
    overrides = {
        'neutron': {
            'auth_type': 'admin_token',
            'endpoint': url_of('http', MARK),
            'token': MARK,
        },
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
    }
    context = {**context_of(CALLS['boot']), 'auth_token': MARK}
    with (
        Daemon(small_cloud, loud(overrides)) as daemon,
        Caller(daemon.config) as caller,
    ):
        for arguments in (CALLS['boot']['args'], {'spec_obj': 7}):
            caller.select(daemon.host, arguments, context)
        assert 'Starting to schedule' in daemon.text()
        report(daemon, daemon.pid)
        assert told(daemon) == []
        assert str(urlsplit(small_cloud.api.url).password) not in daemon.text()
