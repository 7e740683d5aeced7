# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl check`` against real servers, whatever is wrong with one of them."""

import json
import socket
import sys
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from novasched.cmd import novaschedctl
from tests.lab.compute_rows import Compute
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import API_TABLES, CELL_TABLES
from tests.lab.nova_release import Config
from tests.lab.placement_api import TOKEN
from tests.lab.processes import Failed, free_port
from tests.lab.servers import create_database, drop_database

SECRET = 'a-word-that-nobody-may-read'


class Report:
    def __init__(self, status, output):
        self.status = status
        self._report = json.loads(output)
        assert self._report['fit'] is (status == 0)

    def of(self, area):
        """The findings of an area: {subject: (level, text)}."""
        return {
            each['subject']: (each['level'], each['text'])
            for each in self._report['findings']
            if each['area'] == area
        }

    def errors(self):
        """What must be mended: (area, subject)."""
        return [
            (each['area'], each['subject'])
            for each in self._report['findings']
            if each['level'] == 'error'
        ]


@pytest.fixture
def check(small_cloud, capsys, caplog):
    """Run it with some options changed; whatever it prints or logs, the word is not in
    it."""

    def run(overrides=None, *arguments):
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
        return Report(status, captured.out)

    return run


@pytest.fixture
def mapped(small_cloud):
    """Changes the URL of cell2's database, until the end of the test."""
    yield lambda url: small_cloud.map_cell('cell2', database_connection=url)
    small_cloud.restore_cells()


def test_all_is_well(check, small_cloud):
    """Every server is named with its version; the exit status is 0, and nothing is
    written."""
    with Daemon(small_cloud) as daemon:
        report = check()
    rows = small_cloud.service_rows('nova-scheduler')
    assert {row['host'] for row in rows} == {daemon.host}
    assert report.status == 0
    assert report.errors() == []
    databases = report.of('databases')
    assert list(databases) == [OWN, API, 'cell cell1', 'cell cell2']
    for level, text in databases.values():
        assert level == 'ok'
        assert text.startswith(('MariaDB 1', 'MySQL '))
        assert ', schema ' in text
    assert databases['cell cell1'][1].endswith(', 1 compute nodes')
    assert report.of('Placement') == {
        'microversion': ('ok', 'up to 1.39; 1.36 is used'),
        'credentials': ('ok', 'accepted'),
    }
    assert report.of('aggregates') == SAME_MEMBERS
    [(level, text)] = report.of('RabbitMQ').values()
    assert level == 'ok'
    assert text.startswith('RabbitMQ ')
    assert text.endswith(', 1 consumers of the queue scheduler')


SAME_MEMBERS = {'members': ('ok', 'the same in Placement, in all aggregates (0)')}
ZONES = '[scheduler] query_placement_for_availability_zone'


@pytest.fixture
def zone(small_cloud):
    """Three hosts, the second in the other cell, and a zone of which Placement knows
    nothing yet: its UUID."""
    for number in (2, 3):
        small_cloud.add_host(f'host-{number}', f'cell{4 - number}')
    uuid = str(uuid4())
    hosts = ['host-1', 'host-2']
    small_cloud.add_aggregate_rows('zone', uuid, {'availability_zone': 'zone'}, hosts)
    yield uuid
    small_cloud.reset()
    small_cloud.add_host('host-1')


def everything(cloud):
    """What a check might have written: rows about hosts, and what Placement has of
    them."""
    rows = [cloud.api.rows(name) for name in API_TABLES]
    bases = (cloud.cell0, *cloud.cells.values())
    rows += [base.rows(name) for base in bases for name in CELL_TABLES]
    call = cloud.placement.call
    providers = call('GET', '/resource_providers')['resource_providers']
    paths = [f'/resource_providers/{each["uuid"]}/aggregates' for each in providers]
    return rows, providers, [call('GET', path) for path in paths]


def test_members_of_aggregates(check, small_cloud, zone):
    """Both ways of drifting apart are told, and nothing is written. nova-manage mends
    the one, and who takes the aggregate from a provider the other."""
    stranger = small_cloud.computes['host-3'].uuid
    small_cloud.placement.put(stranger, aggregates=[zone])
    before = everything(small_cloud)
    report = check()
    assert everything(small_cloud) == before
    assert report.errors() == [('aggregates', ZONES)]
    _, text = report.of('aggregates')[ZONES]
    assert 'missing in Placement: 2 (host-1 of zone, host-2 of zone), ' in text
    assert 'in Placement alone: 1 (host-3 of zone), ' in text
    manage = small_cloud.config('manage')
    small_cloud.nova.manage(manage, 'placement', 'sync_aggregates')
    _, text = check().of('aggregates')[ZONES]
    assert text.startswith('in Placement alone: 1 (host-3 of zone), ')
    small_cloud.placement.put(stranger, aggregates=[])
    assert list(check().of('aggregates').values()) == [
        ('ok', 'the same in Placement, in all aggregates (1)')
    ]


def test_members_that_nova_manage_cannot_mend(check, small_cloud, zone, mapped):
    """Hosts without a mapping it tells at its end; at the first without a provider it
    ends. Hosts of a cell that is away are left alone."""
    manage = small_cloud.config('manage'), 'placement', 'sync_aggregates'
    [row] = small_cloud.api.rows('aggregates', uuid=zone)
    small_cloud.join_aggregate(row['id'], ['host-5'])
    with pytest.raises(Failed, match='Missing: host-5'):
        small_cloud.nova.manage(*manage)
    small_cloud.add_rows([Compute('host-4', 'cell1')])
    small_cloud.join_aggregate(row['id'], ['host-4'])
    with pytest.raises(Failed, match=small_cloud.computes['host-4'].uuid):
        small_cloud.nova.manage(*manage)
    found = check().of('aggregates')
    assert {
        subject: text.partition(':')[0] for subject, (_, text) in found.items()
    } == {
        'hosts of no cell': '1 (host-5)',
        'hosts without a provider': '1 (host-4)',
    }
    mapped(nowhere('mysql+pymysql'))
    found = check().of('aggregates')
    assert found['hosts of other cells'][1].startswith('1 (host-2): ')
    assert ZONES not in found


def test_other_files(check, small_cloud, tmp_path):
    """nova-scheduler's own beside nova.conf, and Placement's, which may be named."""
    path = small_cloud.directory / 'nova-scheduler.conf'
    path.write_text(f'[scheduler]\nmax_attempts = 7\n[x]\npassword = {SECRET}\n')
    placement_conf = tmp_path / 'placement.conf'
    placement_conf.write_text(
        f'[placement_database]\nconnection = mysql://x:{SECRET}@db/x\n'
    )
    try:
        report = check(None, '--placement-config', str(placement_conf))
    finally:
        path.unlink()
    level, text = report.of('files')[str(path)]
    assert level == 'warning'
    assert ' does not: [scheduler] max_attempts would be lost; ' in text
    assert (
        report.of('placement.conf')['[placement] allocation_conflict_retry_count'][0]
        == 'warning'
    )
    assert report.status == 0
    placement_conf.unlink()
    config = str(small_cloud.config('check'))
    arguments = ['--config-file', config, '--placement-config', str(placement_conf)]
    assert novaschedctl.main(['check', *arguments]) == 2


def nowhere(scheme, path='/nova'):
    """A URL where nobody listens, with a password."""
    return f'{scheme}://nova:{SECRET}@127.0.0.1:{free_port()}{path}'


def away(option, url, *further):
    """The URL of a database, and what it makes wrong."""
    group = option.split(']')[0][1:]
    return {group: {'connection': url}}, [('databases', option), *further]


def no_broker(url):
    """The same of a URL of the broker."""
    return {'DEFAULT': {'transport_url': url}}, [
        ('RabbitMQ', '[DEFAULT] transport_url')
    ]


OWN = '[database] connection'
API = '[api_database] connection'
KEYSTONE = {
    'auth_type': 'password',
    'auth_url': f'http://nova:{SECRET}@127.0.0.1:{free_port()}/v3',
    'username': 'nova',
    'password': SECRET,
    'project_name': 'service',
}
PLACEMENT = [('Placement', '[placement]')]
MISTAKES: dict[str, tuple[Config, list[Any]]] = {
    'own database is away': away(OWN, nowhere('mysql+pymysql')),
    'API database is away': away(API, nowhere('mysql+pymysql'), ('databases', 'cells')),
    'no URL of a database': away(OWN, f'mysql+pymysql//nova:{SECRET}@h/x'),
    'two hosts of a database': away(
        OWN, f'mysql+pymysql://nova:a@{SECRET}@127.0.0.1:1/x'
    ),
    'Placement is away': (
        {'placement': {'endpoint': f'http://nova:{SECRET}@127.0.0.1:{free_port()}'}},
        PLACEMENT,
    ),
    'wrong token': ({'placement': {'token': SECRET}}, [('Placement', 'credentials')]),
    'no such auth type': (
        {'placement': {'auth_type': 'nonsense', 'password': SECRET}},
        PLACEMENT,
    ),
    'keystone is away': ({'placement': KEYSTONE}, PLACEMENT),
    'no URL of a broker': no_broker(f'rabbit//nova:{SECRET}@h'),
    'hash in the password of a broker': no_broker(
        f'rabbit://nova:x#{SECRET}@127.0.0.1/'
    ),
    'comma in the password of a broker': no_broker(
        f'rabbit://nova:{SECRET},{SECRET}@127.0.0.1/'
    ),
    'no such kind of broker': no_broker(f'nosuch://nova:{SECRET}@127.0.0.1/'),
    'unknown filter': (
        {'filter_scheduler': {'enabled_filters': 'ComputeFilter,NoSuchFilter'}},
        [('plugins', 'filter NoSuchFilter')],
    ),
    'bad value': (
        {'scheduler': {'workers': 'many'}},
        [('values', '[scheduler] workers')],
    ),
}


@pytest.mark.parametrize(('overrides', 'errors'), MISTAKES.values(), ids=MISTAKES)
def test_one_thing_is_wrong(check, overrides, errors):
    """It is told, nothing else is, and no secret."""
    report = check(overrides)
    assert report.status == 1
    assert report.errors() == errors
    assert all(report.of(area) for area in ('databases', 'Placement', 'RabbitMQ'))


def test_wrong_passwords(check, small_cloud):
    """The servers' own words are shown, the passwords are not."""
    right = urlsplit(small_cloud.api.url)
    amqp = urlsplit(small_cloud.amqp_url)
    database = right._replace(
        netloc=f'nova:{SECRET}@{right.hostname}:{right.port}'
    ).geturl()
    broker = amqp._replace(
        netloc=f'guest:{SECRET}@{amqp.hostname}:{amqp.port}'
    ).geturl()
    report = check({
        'DEFAULT': {'transport_url': broker}, 'api_database': {'connection': database},
    })  # fmt: skip
    assert 'Access denied' in report.of('databases')[API][1]
    [(level, text)] = report.of('RabbitMQ').values()
    assert level == 'error'
    assert 'ACCESS_REFUSED' in text


def test_one_of_two_brokers_is_away(check, small_cloud):
    """The other serves, so that it is a warning."""
    good = urlsplit(small_cloud.amqp_url).netloc
    url = f'rabbit://nova:{SECRET}@127.0.0.1:{free_port()},{good}/'
    report = check({'DEFAULT': {'transport_url': url}})
    assert [level for level, _ in report.of('RabbitMQ').values()] == ['warning', 'ok']
    assert report.status == 0


def test_a_cell_is_away(check, mapped):
    """It is told under its name; the other cell is fine."""
    for url, why in (
        (nowhere('mysql+pymysql'), "Can't connect"),
        (f'mysql+pymysql://nova:{SECRET}@127.0.0.1:{SECRET}/x', 'unusable'),
    ):
        mapped(url)
        report = check()
        assert report.errors() == [('databases', 'cell cell2')]
        assert why in report.of('databases')['cell cell2'][1]
        assert report.of('databases')['cell cell1'][0] == 'ok'


def test_a_template_of_a_cell(check, small_cloud, mapped):
    """Its holes are filled from [database] connection."""
    path = urlsplit(small_cloud.cells['cell2'].url).path
    mapped(f'{{scheme}}://{{username}}:{{password}}@{{hostname}}:{{port}}{path}')
    assert check().errors() == []
    broken = f'mysql+pymysql://nova:x@127.0.0.1:{SECRET}/x'
    report = check({'database': {'connection': broken}})
    assert ('databases', 'cell cell2') in report.errors()


def test_nobody_answers(check):
    """Servers that keep silent hang nothing."""
    with socket.create_server(('127.0.0.1', 0)) as silent:
        at = f'127.0.0.1:{silent.getsockname()[1]}'
        overrides = {
            'DEFAULT': {'transport_url': f'rabbit://nova:{SECRET}@{at}/'},
            'database': {'connection': f'mysql+pymysql://nova:{SECRET}@{at}/x'},
            'placement': {'endpoint': f'http://{at}'},
        }
        report = check(overrides, '--timeout', '2')
    assert report.errors() == [
        ('databases', OWN),
        ('Placement', '[placement]'),
        ('RabbitMQ', at),
    ]
    assert report.of('Placement')['[placement]'][1] == 'no answer within 2 s'


def test_somebody_else_answers(check, small_cloud):
    """What is no Placement is not taken for one."""
    report = check(
        {'placement': {'endpoint': f'{small_cloud.placement_url}/resource_providers'}}
    )
    assert report.errors() == [('Placement', '[placement]')]
    assert 'is not Placement' in report.of('Placement')['[placement]'][1]


def test_the_row_of_services_cannot_be_written(check, small_cloud):
    """A database that may only be read is no use to a daemon that shows that it is
    alive."""
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
    assert report.errors() == [('databases', OWN)]
    assert 'services cannot be written' in report.of('databases')[OWN][1]


def test_secrets_everywhere(check):
    """Whatever option holds one, known or not, in whatever group."""
    names = (
        'password',
        'token',
        'connection',
        'transport_url',
        'admin_password',
        'zzz',
    )
    groups = (
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
    every = dict.fromkeys(names, f'http://u:{SECRET}@127.0.0.1:1/')
    assert check(dict.fromkeys(groups, every)).status == 1


def test_the_table(small_cloud, capsys):
    """For people: one table, the verdict last."""
    config = small_cloud.config('check')
    capsys.readouterr()
    assert novaschedctl.main(['check', '--config-file', str(config)]) == 0
    said = capsys.readouterr()
    assert said.err == ''
    lines = said.out.splitlines()
    assert [cell.strip() for cell in lines[1].split('|')[1:-1]] == [
        'area', 'level', 'subject', 'finding',
    ]  # fmt: skip
    assert lines[-1] == '0 errors, 0 warnings: ready for the switch.'
    assert TOKEN not in said.out


@pytest.mark.parametrize(
    'arguments',
    [
        '--config-file /no/such/file',
        '--timeout 0',
        '--timeout soon',
        '--no-such-option',
        '--format xml',
    ],
)
def test_usage(capsys, arguments):
    """What is no check at all has a status of its own, and one line."""
    with pytest.raises(SystemExit) as ended:
        sys.exit(novaschedctl.main(['check', *arguments.split()]))
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ''
    assert len(said.err.splitlines()) == 1


def test_a_file_that_breaks_off(tmp_path, tool):
    """One finding, and nothing of the line in it."""
    path = tmp_path / 'nova.conf'
    path.write_text(f'[DEFAULT]\n{SECRET}\n')
    status, report = tool('check', path)
    [finding] = report['findings']
    assert status == 1
    assert 'line 2' in finding['text']
    assert SECRET not in str(report)
