# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl check`` against real servers, whatever is wrong with one of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from novasched.cmd import novaschedctl
from tests.lab.client import NovaClient
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config
from tests.lab.placement_api import TOKEN
from tests.lab.processes import free_port
from tests.lab.servers import create_database, drop_database

SECRET = 'a-word-that-nobody-may-read'

Check = Callable[..., 'Report']


class Report:
    """What one run came to."""

    def __init__(self, status: int, output: str, everything: str) -> None:
        self.status = status
        self.everything = everything
        self._report = json.loads(output)
        assert self._report['fit'] is (status == 0)

    def of(self, area: str) -> dict[str, tuple[str, str]]:
        """The findings of an area: {subject: (level, text)}."""
        return {
            each['subject']: (each['level'], each['text'])
            for each in self._report['findings']
            if each['area'] == area
        }

    def errors(self) -> list[tuple[str, str]]:
        """What must be mended: (area, subject)."""
        return [
            (each['area'], each['subject'])
            for each in self._report['findings']
            if each['level'] == 'error'
        ]


@pytest.fixture(scope='module')
def small_cloud(cloud: NovaCloud) -> NovaCloud:
    """Two hosts in one of two cells."""
    cloud.reset()
    cloud.add_host('host-1')
    cloud.add_host('host-2')
    return cloud


@pytest.fixture
def check(
    small_cloud: NovaCloud,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Check:
    """Run it with some options changed; whatever it prints or logs, the word is not in it."""

    def run(overrides: Config | None = None, *arguments: str) -> Report:
        capsys.readouterr()
        path = small_cloud.config('check', overrides)
        status = novaschedctl.main(
            ['check', '--config-file', str(path), '--format', 'json', *arguments]
        )
        captured = capsys.readouterr()
        print(captured.out)
        logged = ''.join(
            record.getMessage()
            for record in caplog.records
            if record.name.startswith(('nova', 'novasched'))
        )
        everything = captured.out + captured.err + logged
        assert SECRET not in everything
        assert SECRET.title() not in everything
        return Report(status, captured.out, everything)

    return run


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def mapped(small_cloud: NovaCloud) -> Iterator[Callable[[str], None]]:
    """Changes the URL of cell2's database, until the end of the test."""
    uuid = small_cloud.cell_uuids['cell2']
    [before] = small_cloud.api.rows('cell_mappings', uuid=uuid)

    def change(url: str) -> None:
        small_cloud.api.update('cell_mappings', {'database_connection': url}, uuid=uuid)

    yield change
    change(before['database_connection'])


def test_all_is_well(check: Check, small_cloud: NovaCloud, client: NovaClient) -> None:
    """Every server is named with its version; the exit status is 0."""
    with Daemon(small_cloud):
        report = check()
    assert report.status == 0
    assert report.errors() == []
    databases = report.of('databases')
    assert list(databases) == [
        '[database] connection',
        '[api_database] connection',
        'cell cell1',
        'cell cell2',
    ]
    for level, text in databases.values():
        assert level == 'ok'
        assert text.startswith(('MariaDB 1', 'MySQL '))
        assert ', schema ' in text
    assert databases['cell cell1'][1].endswith(', 2 compute nodes')
    assert report.of('Placement') == {
        'microversion': ('ok', 'up to 1.39; 1.36 is used'),
        'credentials': ('ok', 'accepted'),
    }
    [(level, text)] = report.of('RabbitMQ').values()
    assert level == 'ok'
    assert text.startswith('RabbitMQ ')
    assert text.endswith(', 1 consumers of the queue scheduler')


def nowhere(scheme: str, path: str = '/nova') -> str:
    """A URL where nobody listens, with a password."""
    return f'{scheme}://nova:{SECRET}@127.0.0.1:{free_port()}{path}'


@pytest.mark.parametrize(
    ('overrides', 'errors'),
    [
        pytest.param(
            {'database': {'connection': nowhere('mysql+pymysql')}},
            [('databases', '[database] connection')],
            id='own database is away',
        ),
        pytest.param(
            {'api_database': {'connection': nowhere('mysql+pymysql')}},
            [('databases', '[api_database] connection'), ('databases', 'cells')],
            id='API database is away',
        ),
        pytest.param(
            {'database': {'connection': ''}},
            [('databases', '[database] connection')],
            id='own database is not named',
        ),
        pytest.param(
            {'database': {'connection': f'mysql+pymysql//nova:{SECRET}@h/x'}},
            [('databases', '[database] connection')],
            id='no URL of a database',
        ),
        pytest.param(
            {'database': {'connection': f'nosuch://nova:{SECRET}@127.0.0.1/x'}},
            [('databases', '[database] connection')],
            id='no such kind of database',
        ),
        pytest.param(
            {'database': {'connection': f'mysql+pymysql://nova:a@{SECRET}@127.0.0.1:1/x'}},
            [('databases', '[database] connection')],
            id='at sign in the password of a database',
        ),
        pytest.param(
            {'database': {'connection': f'mysql+pymysql://nova:a${SECRET}@127.0.0.1/x'}},
            [('values', '[database] connection'), ('databases', '[database] connection')],
            id='dollar in the password of a database',
        ),
        pytest.param(
            {'placement': {'endpoint': f'http://nova:{SECRET}@127.0.0.1:{free_port()}'}},
            [('Placement', '[placement]')],
            id='Placement is away',
        ),
        pytest.param(
            {'placement': {'token': SECRET}}, [('Placement', 'credentials')], id='wrong token'
        ),
        pytest.param(
            {'placement': {'auth_type': 'nonsense', 'password': SECRET}},
            [('Placement', '[placement]')],
            id='no such auth type',
        ),
        pytest.param(
            {
                'placement': {
                    'auth_type': 'password',
                    'auth_url': f'http://nova:{SECRET}@127.0.0.1:{free_port()}/v3',
                    'username': 'nova',
                    'password': SECRET,
                    'project_name': 'service',
                }
            },
            [('Placement', '[placement]')],
            id='keystone is away',
        ),
        pytest.param(
            {'DEFAULT': {'transport_url': f'rabbit//nova:{SECRET}@h'}},
            [('RabbitMQ', '[DEFAULT] transport_url')],
            id='no URL of a broker',
        ),
        pytest.param(
            {'DEFAULT': {'transport_url': f'rabbit://nova:x#{SECRET}@127.0.0.1/'}},
            [('RabbitMQ', '[DEFAULT] transport_url')],
            id='hash in the password of a broker',
        ),
        pytest.param(
            {'DEFAULT': {'transport_url': f'rabbit://nova:{SECRET},{SECRET}@127.0.0.1/'}},
            [('RabbitMQ', '[DEFAULT] transport_url')],
            id='comma in the password of a broker',
        ),
        pytest.param(
            {'DEFAULT': {'transport_url': f'nosuch://nova:{SECRET}@127.0.0.1/'}},
            [('RabbitMQ', '[DEFAULT] transport_url')],
            id='no such kind of broker',
        ),
        pytest.param(
            {'filter_scheduler': {'enabled_filters': 'ComputeFilter,NoSuchFilter'}},
            [('plugins', 'filter NoSuchFilter')],
            id='unknown filter',
        ),
        pytest.param(
            {'scheduler': {'workers': 'many'}}, [('values', '[scheduler] workers')], id='bad value'
        ),
    ],
)
def test_one_thing_is_wrong(check: Check, overrides: Config, errors: list[Any]) -> None:
    """It is told, nothing else is, and no secret."""
    report = check(overrides)
    assert report.status == 1
    assert report.errors() == errors
    assert all(report.of(area) for area in ('databases', 'Placement', 'RabbitMQ'))


def test_wrong_passwords(check: Check, small_cloud: NovaCloud) -> None:
    """The servers' own words are shown, the passwords are not."""
    right = urlsplit(small_cloud.api.url)
    database = f'{right.scheme}://nova:{SECRET}@{right.hostname}:{right.port}{right.path}'
    amqp = urlsplit(small_cloud.amqp_url)
    report = check(
        {
            'DEFAULT': {'transport_url': f'rabbit://guest:{SECRET}@127.0.0.1:{amqp.port}/'},
            'api_database': {'connection': database},
        }
    )
    assert 'Access denied' in report.of('databases')['[api_database] connection'][1]
    [(level, text)] = report.of('RabbitMQ').values()
    assert level == 'error'
    assert 'ACCESS_REFUSED' in text


def test_one_of_two_brokers_is_away(check: Check, small_cloud: NovaCloud) -> None:
    """The other serves, so that it is a warning."""
    amqp = urlsplit(small_cloud.amqp_url)
    good = amqp.netloc
    report = check(
        {'DEFAULT': {'transport_url': f'rabbit://nova:{SECRET}@127.0.0.1:{free_port()},{good}/'}}
    )
    assert [level for level, _ in report.of('RabbitMQ').values()] == ['warning', 'ok']
    assert report.status == 0


@pytest.mark.parametrize(
    ('url', 'why'),
    [
        (nowhere('mysql+pymysql'), "Can't connect"),
        (f'nosuch://nova:{SECRET}@127.0.0.1/x', 'unusable'),
        (f'mysql+pymysql://nova:x@{SECRET}@127.0.0.1/x', "Can't connect"),
        (f'mysql+pymysql://nova:{SECRET}@127.0.0.1:{SECRET}/x', 'unusable'),
        (f'{SECRET}', 'unusable'),
    ],
    ids=['nobody', 'no driver', 'two hosts', 'no port', 'no URL'],
)
def test_a_cell_is_away(check: Check, mapped: Callable[[str], None], url: str, why: str) -> None:
    """It is told under its name; the other cell is fine."""
    mapped(url)
    report = check()
    assert report.errors() == [('databases', 'cell cell2')]
    assert why in report.of('databases')['cell cell2'][1]
    assert report.of('databases')['cell cell1'][0] == 'ok'


def test_a_template_of_a_cell(
    check: Check, small_cloud: NovaCloud, mapped: Callable[[str], None]
) -> None:
    """Its holes are filled from [database] connection."""
    path = urlsplit(small_cloud.cells['cell2'].url).path
    mapped(f'{{scheme}}://{{username}}:{{password}}@{{hostname}}:{{port}}{path}')
    assert check().errors() == []
    broken = f'mysql+pymysql://nova:x@127.0.0.1:{SECRET}/x'
    report = check({'database': {'connection': broken}})
    assert ('databases', 'cell cell2') in report.errors()


def test_nobody_answers(check: Check, silent_port: int) -> None:
    """Servers that keep silent hang nothing."""
    report = check(
        {
            'DEFAULT': {'transport_url': f'rabbit://nova:{SECRET}@127.0.0.1:{silent_port}/'},
            'database': {'connection': f'mysql+pymysql://nova:{SECRET}@127.0.0.1:{silent_port}/x'},
            'placement': {'endpoint': f'http://127.0.0.1:{silent_port}'},
        },
        '--timeout',
        '2',
    )
    assert report.errors() == [
        ('databases', '[database] connection'),
        ('Placement', '[placement]'),
        ('RabbitMQ', f'127.0.0.1:{silent_port}'),
    ]
    assert report.of('Placement')['[placement]'][1] == 'no answer within 2 s'


def test_somebody_else_answers(check: Check, small_cloud: NovaCloud) -> None:
    """What is no Placement is not taken for one."""
    report = check({'placement': {'endpoint': f'{small_cloud.placement_url}/resource_providers'}})
    assert report.errors() == [('Placement', '[placement]')]
    assert 'is not Placement' in report.of('Placement')['[placement]'][1]


def test_the_row_of_services_cannot_be_written(check: Check, small_cloud: NovaCloud) -> None:
    """A database that may only be read is no use to a daemon that shows that it is alive."""
    server, _, cell0 = small_cloud.cell0.url.rpartition('/')
    url = create_database(server, f'{cell0}_view')
    try:
        with small_cloud.cell0.engine.begin() as connection:
            connection.exec_driver_sql(
                f'CREATE VIEW `{cell0}_view`.services AS SELECT DISTINCT * FROM services'
            )
        report = check({'database': {'connection': url}})
    finally:
        drop_database(server, f'{cell0}_view')
    assert report.errors() == [('databases', '[database] connection')]
    assert 'services cannot be written' in report.of('databases')['[database] connection'][1]


def test_nothing_is_written(check: Check, small_cloud: NovaCloud) -> None:
    """A check leaves no trace."""
    before = small_cloud.service_rows('nova-scheduler')
    check()
    assert small_cloud.service_rows('nova-scheduler') == before


def test_secrets_everywhere(check: Check) -> None:
    """Whatever option holds one, known or not, in whatever group."""
    name_of = ('password', 'token', 'connection', 'transport_url', 'admin_password', 'zzz')
    report = check(
        {
            group: dict.fromkeys(name_of, f'http://u:{SECRET}@127.0.0.1:1/')
            for group in (
                'placement',
                'keystone_authtoken',
                'neutron',
                'scheduler',
                'filter_scheduler',
                'oslo_messaging_rabbit',
                'oslo_messaging_notifications',
                'database',
                'api_database',
            )
        }
    )
    assert report.status == 1


def test_table_of_the_console_script(small_cloud: NovaCloud) -> None:
    """For people: one table, the verdict last."""
    path = small_cloud.config('check')
    done = run_script('check', '--config-file', str(path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ''
    lines = done.stdout.splitlines()
    assert [cell.strip() for cell in lines[1].split('|')[1:-1]] == [
        'area',
        'level',
        'subject',
        'finding',
    ]
    assert lines[-1] == '0 errors, 0 warnings: ready for the switch.'
    assert TOKEN not in done.stdout


@pytest.mark.parametrize(
    'arguments',
    [
        ['--config-file', '/no/such/file'],
        ['--timeout', '0'],
        ['--timeout', 'soon'],
        ['--no-such-option'],
        ['--format', 'xml'],
    ],
)
def test_usage(arguments: list[str]) -> None:
    """What is no check at all has a status of its own, and one line."""
    done = run_script('check', *arguments)
    assert done.returncode == 2
    assert done.stdout == ''
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    """One finding, and nothing of the line in it."""
    path = tmp_path / 'nova.conf'
    path.write_text(f'[DEFAULT]\n{SECRET}\n')
    done = run_script('check', '--config-file', str(path), '--format', 'json')
    assert done.returncode == 1
    [finding] = json.loads(done.stdout)['findings']
    assert 'line 2' in finding['text']
    assert SECRET not in done.stdout + done.stderr


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as a user does."""
    return subprocess.run(
        [sys.executable, '-m', 'novasched.cmd.novaschedctl', *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
