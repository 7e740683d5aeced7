# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl check`` against real servers, with a mistake in one place."""

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
        findings = {}
        for finding in self._report['findings']:
            if finding['area'] == area:
                findings[finding['subject']] = (finding['level'], finding['text'])
        return findings

    def errors(self):
        """The area and the subject of all errors."""
        errors = []
        for finding in self._report['findings']:
            if finding['level'] == 'error':
                errors.append((finding['area'], finding['subject']))
        return errors


@pytest.fixture
def check(small_cloud, capsys, caplog):
    """A function that runs the check with overrides of nova.conf, and asserts that the
    output and the log do not contain the secret."""

    def run(overrides=None, *arguments):
        capsys.readouterr()
        path = small_cloud.config('check', overrides)
        status = novaschedctl.main(
            ['check', '--config-file', str(path), '--format', 'json', *arguments]
        )
        captured = capsys.readouterr()
        print(captured.out)

        everything = captured.out + captured.err
        for record in caplog.records:
            if record.name.startswith(('nova', 'novasched')):
                everything += record.getMessage()
        assert SECRET not in everything
        assert SECRET.title() not in everything
        return Report(status, captured.out)

    return run


@pytest.fixture
def map_cell2(small_cloud):
    """A function that changes the URL of cell2's database until the end of the test."""
    yield lambda url: small_cloud.map_cell('cell2', database_connection=url)
    small_cloud.restore_cells()


def test_the_check_passes_on_a_correct_configuration(check, small_cloud):
    """The report names every server with its version. The exit status is 0, and the
    check writes nothing."""
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
    """Three hosts, the second in the second cell, and an availability zone that
    Placement does not know yet; the UUID of the zone's aggregate."""
    for number in (2, 3):
        small_cloud.add_host(f'host-{number}', f'cell{4 - number}')
    uuid = str(uuid4())
    hosts = ['host-1', 'host-2']
    small_cloud.add_aggregate_rows('zone', uuid, {'availability_zone': 'zone'}, hosts)
    yield uuid
    small_cloud.reset()
    small_cloud.add_host('host-1')


def test_the_check_lists_metadata_that_only_mariadb_takes_for_equal(check, small_cloud):
    """The check lists metadata that matches a project or a trait only on MariaDB, and
    says nothing of metadata that matches exactly."""
    options = {
        'limit_tenants_to_placement_aggregate': True,
        'enable_isolated_aggregate_filtering': True,
    }
    for name, pairs in {
        'good': {'trait:CUSTOM_X': 'required', 'filter_tenant_id': 'project-1'},
        'licensed': {'trait:CUSTOM_X': 'Required'},
        'reserved': {'filter_tenant_id': 'Project-1 '},
    }.items():
        small_cloud.add_aggregate(name, [], metadata=pairs)
    small_cloud.map_server(str(uuid4()), 'cell1', 'project-1')

    level, text = check({'scheduler': options}).of('aggregates')['metadata']
    small_cloud.reset()
    small_cloud.add_host('host-1')

    assert level == 'warning'
    assert text.startswith(
        "2 ('filter_tenant_id=Project-1 ' of reserved is project project-1,"
        " 'trait:CUSTOM_X=Required' of licensed is required trait CUSTOM_X): "
    )


def snapshot(cloud):
    """The rows about hosts and Placement's providers, where a check must not write."""
    rows = [cloud.api.rows(name) for name in API_TABLES]
    for database in (cloud.cell0, *cloud.cells.values()):
        rows += [database.rows(name) for name in CELL_TABLES]

    call = cloud.placement.call
    providers = call('GET', '/resource_providers')['resource_providers']
    aggregates = []
    for provider in providers:
        path = f'/resource_providers/{provider["uuid"]}/aggregates'
        aggregates.append(call('GET', path))
    return rows, providers, aggregates


def test_the_check_compares_hosts_of_aggregates_with_placement(
    check, small_cloud, zone
):
    """The check reports hosts that are missing in Placement's aggregate, and hosts that
    only Placement has in the aggregate, and writes nothing. nova-manage repairs the
    former; the operator removes the latter from the aggregate."""
    stranger = small_cloud.computes['host-3'].uuid
    small_cloud.placement.put(stranger, aggregates=[zone])

    before = snapshot(small_cloud)
    report = check()
    assert snapshot(small_cloud) == before
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


def test_the_check_reports_hosts_that_nova_manage_cannot_repair(
    check, small_cloud, zone, map_cell2
):
    """nova-manage fails at hosts without a mapping and at hosts without a provider; the
    check reports these hosts. The check does not judge hosts of a cell that is away."""
    manage = small_cloud.config('manage'), 'placement', 'sync_aggregates'
    [aggregate] = small_cloud.api.rows('aggregates', uuid=zone)
    small_cloud.join_aggregate(aggregate['id'], ['host-5'])
    with pytest.raises(Failed, match='Missing: host-5'):
        small_cloud.nova.manage(*manage)

    small_cloud.add_rows([Compute('host-4', 'cell1')])
    small_cloud.join_aggregate(aggregate['id'], ['host-4'])
    with pytest.raises(Failed, match=small_cloud.computes['host-4'].uuid):
        small_cloud.nova.manage(*manage)

    findings = check().of('aggregates')
    hosts = {subject: text.partition(':')[0] for subject, (_, text) in findings.items()}
    assert hosts == {
        'hosts of no cell': '1 (host-5)',
        'hosts without a provider': '1 (host-4)',
    }

    map_cell2(nowhere('mysql+pymysql'))
    findings = check().of('aggregates')
    assert findings['hosts of other cells'][1].startswith('1 (host-2): ')
    assert ZONES not in findings


def test_the_check_reads_nova_scheduler_conf_and_placement_conf(
    check, small_cloud, tmp_path
):
    """The check reads nova-scheduler.conf beside nova.conf, and a named file of
    Placement. The exit status is 2 if the named file does not exist."""
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
    findings = report.of('placement.conf')
    level, _ = findings['[placement] allocation_conflict_retry_count']
    assert level == 'warning'
    assert report.status == 0

    placement_conf.unlink()
    config = str(small_cloud.config('check'))
    arguments = ['--config-file', config, '--placement-config', str(placement_conf)]
    assert novaschedctl.main(['check', *arguments]) == 2


def nowhere(scheme, path='/nova'):
    """A URL with a password and a port without a listener."""
    return f'{scheme}://nova:{SECRET}@127.0.0.1:{free_port()}{path}'


def database_mistake(option, url, *further):
    """Overrides with a wrong URL of a database, and the expected errors."""
    group = option.split(']')[0][1:]
    return {group: {'connection': url}}, [('databases', option), *further]


def broker_mistake(url):
    """Overrides with a wrong URL of the broker, and the expected errors."""
    errors = [('RabbitMQ', '[DEFAULT] transport_url')]
    return {'DEFAULT': {'transport_url': url}}, errors


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
    'own database is away': database_mistake(OWN, nowhere('mysql+pymysql')),
    'API database is away': database_mistake(
        API, nowhere('mysql+pymysql'), ('databases', 'cells')
    ),
    'no URL of a database': database_mistake(OWN, f'mysql+pymysql//nova:{SECRET}@h/x'),
    'two hosts of a database': database_mistake(
        OWN, f'mysql+pymysql://nova:a@{SECRET}@127.0.0.1:1/x'
    ),
    'Placement is away': (
        {'placement': {'endpoint': f'http://nova:{SECRET}@127.0.0.1:{free_port()}'}},
        PLACEMENT,
    ),
    'wrong token': ({'placement': {'token': SECRET}}, [('Placement', 'credentials')]),
    'no such auth type': (
        {'placement': {'auth_type': 'nonsense', 'password': SECRET}},
        [('Placement', '[placement] auth_type')],
    ),
    'keystone is away': ({'placement': KEYSTONE}, PLACEMENT),
    'no URL of a broker': broker_mistake(f'rabbit//nova:{SECRET}@h'),
    'hash in the password of a broker': broker_mistake(
        f'rabbit://nova:x#{SECRET}@127.0.0.1/'
    ),
    'comma in the password of a broker': broker_mistake(
        f'rabbit://nova:{SECRET},{SECRET}@127.0.0.1/'
    ),
    'no such kind of broker': broker_mistake(f'nosuch://nova:{SECRET}@127.0.0.1/'),
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
def test_the_check_reports_exactly_the_errors_of_a_mistake(check, overrides, errors):
    """The report has exactly the errors of the mistake, and no secret."""
    report = check(overrides)
    assert report.status == 1
    assert report.errors() == errors
    for area in ('databases', 'Placement', 'RabbitMQ'):
        assert report.of(area)


def test_the_check_reports_refused_passwords_without_secrets(check, small_cloud):
    """The report shows the servers' messages without the passwords."""
    api = urlsplit(small_cloud.api.url)
    amqp = urlsplit(small_cloud.amqp_url)
    database = api._replace(netloc=f'nova:{SECRET}@{api.hostname}:{api.port}')
    broker = amqp._replace(netloc=f'guest:{SECRET}@{amqp.hostname}:{amqp.port}')

    report = check({
        'DEFAULT': {'transport_url': broker.geturl()},
        'api_database': {'connection': database.geturl()},
    })  # fmt: skip

    assert 'Access denied' in report.of('databases')[API][1]
    [(level, text)] = report.of('RabbitMQ').values()
    assert level == 'error'
    assert 'ACCESS_REFUSED' in text


def test_the_check_warns_if_a_broker_of_two_is_away(check, small_cloud):
    """A missing broker is a warning if a second broker serves."""
    good = urlsplit(small_cloud.amqp_url).netloc
    url = f'rabbit://nova:{SECRET}@127.0.0.1:{free_port()},{good}/'

    report = check({'DEFAULT': {'transport_url': url}})
    assert [level for level, _ in report.of('RabbitMQ').values()] == ['warning', 'ok']
    assert report.status == 0


def test_the_check_names_the_cell_that_is_away(check, map_cell2):
    """The report names the cell that is away; the second cell is ok."""
    for url, reason in (
        (nowhere('mysql+pymysql'), "Can't connect"),
        (f'mysql+pymysql://nova:{SECRET}@127.0.0.1:{SECRET}/x', 'unusable'),
    ):
        map_cell2(url)
        report = check()
        assert report.errors() == [('databases', 'cell cell2')]
        assert reason in report.of('databases')['cell cell2'][1]
        assert report.of('databases')['cell cell1'][0] == 'ok'


def test_the_check_fills_the_url_template_of_a_cell(check, small_cloud, map_cell2):
    """The check fills the template of a cell from [database] connection."""
    path = urlsplit(small_cloud.cells['cell2'].url).path
    map_cell2(f'{{scheme}}://{{username}}:{{password}}@{{hostname}}:{{port}}{path}')
    assert check().errors() == []
    broken = f'mysql+pymysql://nova:x@127.0.0.1:{SECRET}/x'
    report = check({'database': {'connection': broken}})
    assert ('databases', 'cell cell2') in report.errors()


def test_the_check_does_not_hang_on_silent_services(check):
    """The check does not hang if servers are silent."""
    with socket.create_server(('127.0.0.1', 0)) as silent:
        address = f'127.0.0.1:{silent.getsockname()[1]}'
        overrides = {
            'DEFAULT': {'transport_url': f'rabbit://nova:{SECRET}@{address}/'},
            'database': {'connection': f'mysql+pymysql://nova:{SECRET}@{address}/x'},
            'placement': {'endpoint': f'http://{address}'},
        }
        report = check(overrides, '--timeout', '10')
    assert report.errors() == [
        ('databases', OWN),
        ('Placement', '[placement]'),
        ('RabbitMQ', address),
    ]
    assert report.of('Placement')['[placement]'][1] == 'no answer within 10 s'


def test_the_check_notices_an_endpoint_that_is_not_placement(check, small_cloud):
    """The report says so if the endpoint of Placement is not Placement."""
    report = check(
        {'placement': {'endpoint': f'{small_cloud.placement_url}/resource_providers'}}
    )
    assert report.errors() == [('Placement', '[placement]')]
    assert 'is not Placement' in report.of('Placement')['[placement]'][1]


def test_the_check_reports_an_unwritable_services_table(check, small_cloud):
    """The report has an error if the services table cannot be written, since the daemon
    would be down in nova's eyes."""
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


def test_the_check_shows_no_secret_of_any_option(check):
    """The report shows no secret of any option in any group."""
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
    values = dict.fromkeys(names, f'http://u:{SECRET}@127.0.0.1:1/')
    assert check(dict.fromkeys(groups, values)).status == 1


def test_the_check_prints_a_table_and_a_verdict(small_cloud, capsys):
    """The output for operators is a table, followed by the verdict."""
    config = small_cloud.config('check')
    capsys.readouterr()

    assert novaschedctl.main(['check', '--config-file', str(config)]) == 0

    captured = capsys.readouterr()
    assert captured.err == ''
    lines = captured.out.splitlines()
    columns = [cell.strip() for cell in lines[1].split('|')[1:-1]]
    assert columns == ['area', 'level', 'subject', 'finding']
    assert lines[-1] == '0 errors, 0 warnings: ready for the switch.'
    assert TOKEN not in captured.out


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
def test_a_wrong_command_line_of_the_check_exits_with_status_2(capsys, arguments):
    """A wrong command line exits with status 2 and prints one line."""
    with pytest.raises(SystemExit) as ended:
        sys.exit(novaschedctl.main(['check', *arguments.split()]))

    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ''
    assert len(captured.err.splitlines()) == 1


def test_the_check_reports_a_broken_file_without_the_broken_line(tmp_path, tool):
    """The report on a broken file has a single finding, without the text of the broken
    line."""
    path = tmp_path / 'nova.conf'
    path.write_text(f'[DEFAULT]\n{SECRET}\n')

    status, report = tool('check', path)
    [finding] = report['findings']
    assert status == 1
    assert 'line 2' in finding['text']
    assert SECRET not in str(report)
