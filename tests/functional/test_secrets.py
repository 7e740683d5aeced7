# SPDX-License-Identifier: Apache-2.0
"""No secret is in the log: passwords of every kind, in every option, in every failure.

The daemon and its libraries log at the level DEBUG.
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
"""A word in all parts of a secret. A wrong parse of the secret shows the word."""
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
    """A URL without a listener."""
    return f'{scheme}://nova:{password}@{HOST}:{PORT}/nova'


def lines_with_secret(daemon):
    return [line for line in daemon.text().splitlines() if MARK.lower() in line.lower()]


def loud(overrides):
    """The overrides, with all logging enabled."""
    return {**overrides, 'DEFAULT': {**LOUD, **overrides.get('DEFAULT', {})}}


def secrets_logged_until(cloud, overrides, text):
    """Run a daemon until its log matches an expression; the lines with a secret."""
    daemon = Daemon(cloud, loud(overrides))
    process = daemon.launch()

    def matches():
        return re.search(text, daemon.text()) is not None

    try:
        wait_until(lambda: not process.alive() or matches(), LAST, text)
        assert matches()
        return lines_with_secret(daemon)
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
"""Group to an option with the URL of a server, the scheme of the URL, and the message
with which the start ends or goes on."""


@pytest.mark.parametrize('password', PASSWORDS.values(), ids=PASSWORDS)
@pytest.mark.parametrize('group', SERVERS)
def test_passwords_of_unreachable_services_are_not_logged(small_cloud, group, password):
    """A missing database and an invalid URL end the start; the daemon retries the
    broker, and goes on without Placement."""
    option, scheme, text = SERVERS[group]
    # No pause before the retries of a database.
    overrides = {group: {option: url_of(scheme, password), 'retry_interval': 0}}
    assert secrets_logged_until(small_cloud, overrides, text) == []


def test_refused_passwords_are_not_logged(small_cloud):
    """Servers answer, and refuse the password."""
    api = urlsplit(small_cloud.api.url)
    amqp = urlsplit(small_cloud.amqp_url)
    database = api._replace(netloc=f'nova:{MARK}@{api.hostname}:{api.port}')
    broker = amqp._replace(netloc=f'guest:{MARK}@{amqp.hostname}:{amqp.port}')
    connection = {'connection': database.geturl(), 'retry_interval': 0}
    for overrides, text in (
        ({'database': connection}, 'Access denied'),
        ({'api_database': connection}, 'Access denied'),
        ({'DEFAULT': {'transport_url': broker.geturl()}}, 'ACCESS_REFUSED'),
        ({'placement': {'token': MARK}}, r'novasched: \[placement\]'),
    ):
        assert secrets_logged_until(small_cloud, overrides, text) == []


def test_the_password_for_an_unreachable_keystone_is_not_logged(small_cloud):
    """A missing Keystone, with and without credentials in its URL."""
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
        text = 'ontinuing with startup'
        assert secrets_logged_until(small_cloud, overrides, text) == []


@pytest.mark.parametrize(
    'line', [MARK, f'  {MARK}', f'[{MARK}'], ids=['word', 'more', 'section']
)
def test_the_broken_line_of_a_config_file_is_not_logged(small_cloud, line):
    """A broken file ends the start; the log names the file and the number of the line,
    and does not show the line."""
    daemon = Daemon(small_cloud, loud({}))
    valid = daemon.config.read_text()
    broken = f'{line}\n{valid}'
    if line[0] == ' ':
        broken = f'[DEFAULT]\n{broken}'
    daemon.config.write_text(broken)

    assert daemon.run_to_end() != 0
    assert 'novasched: --config-file = ' in daemon.text()
    assert lines_with_secret(daemon) == []


def test_secrets_read_at_sighup_are_not_logged(small_cloud, client):
    """SIGHUP reads new URLs of a cell's database from the API database, and a broken
    file. Requests get hosts of the second cell meanwhile."""
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
        assert lines_with_secret(daemon) == []
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
"""Expressions for log lines and options that operators search for."""


@pytest.fixture(params=[WORD, STRONG], ids=['a word', 'a strong one'])
def own_user(request, small_cloud, mariadb):
    """The password of a database user for all databases. The cells' URLs name the
    user."""
    password = request.param
    engine = sa.create_engine(mariadb.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS scheduler@'%%'")
        connection.exec_driver_sql(
            f"CREATE USER scheduler@'%%' IDENTIFIED BY '{password}'"
        )
        connection.exec_driver_sql("GRANT ALL PRIVILEGES ON *.* TO scheduler@'%%'")
    for name, database in small_cloud.cells.items():
        url = as_user(database.url, 'scheduler', password)
        small_cloud.map_cell(name, database_connection=url)
    yield password
    small_cloud.restore_cells()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS scheduler@'%%'")
    engine.dispose()


def change_password(mariadb):
    """Change the password of the database user, and cut the user's connections."""
    engine = sa.create_engine(mariadb.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER USER scheduler@'%%' IDENTIFIED BY 'another'")
        ids = connection.exec_driver_sql(
            "SELECT id FROM information_schema.processlist WHERE user = 'scheduler'"
        )
        for [number] in ids.all():
            connection.exec_driver_sql(f'KILL {number}')
    engine.dispose()


def test_searched_log_lines_stay_unmasked_and_show_no_password(
    small_cloud, client, mariadb, own_user
):
    """The log shows no password, weak or strong, as a password, and masks nothing in
    the lines that operators search for. The same holds when databases refuse the
    password."""
    overrides = {
        'api_database': {
            'connection': as_user(small_cloud.api.url, 'scheduler', own_user)
        },
        'database': {
            'connection': as_user(small_cloud.cell0.url, 'scheduler', own_user),
            'connection_debug': 100,
        },
    }
    impossible = Flavor(extra_specs={'capabilities:hypervisor_type': 'none'})
    small_cloud.refresh_services()
    with Daemon(small_cloud, loud(overrides)) as daemon:
        assert len(client.select_destinations(new_uuids(), Flavor())) == 1
        with pytest.raises(Refused):
            client.select_destinations(new_uuids(), impossible)
        report(daemon, daemon.pid)

        change_password(mariadb)
        wait_until(lambda: 'Access denied' in daemon.text(), LAST, 'refusal')
        assert daemon.stop() == 0

    text = daemon.text()
    assert lines_showing_secret(text, own_user) == []
    if own_user == STRONG:
        assert own_user not in text
    for expression in SEARCHED:
        assert re.search(expression, text, re.MULTILINE), expression
    # novasched masks only passwords in URLs, and values of options with secrets.
    masked = re.compile(
        r' (DEBUG|INFO|WARNING|ERROR) nova\S* .*(?<!://)(?<!= )(?<!\*)\*\*\*(?!\*)'
    )
    assert [line for line in text.splitlines() if masked.search(line)] == []


def test_correct_passwords_and_tokens_are_not_logged(small_cloud):
    """Correct passwords, and the token of a caller, are not logged either."""
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
        assert lines_with_secret(daemon) == []
        assert str(urlsplit(small_cloud.api.url).password) not in daemon.text()
