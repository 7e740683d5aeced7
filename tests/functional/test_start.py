# SPDX-License-Identifier: Apache-2.0
"""A configuration that stops the daemon, in one line of the daemon and of
``novaschedctl check``; and configurations that stop neither."""

import socket

import pytest

from tests.lab import broker
from tests.lab.daemon import Daemon, findings_of_check
from tests.lab.processes import free_port

from .test_check import SECRET

BROKEN_LOGGING = '[loggers]\nkeys = root\n'
RABBIT = 'oslo_messaging_rabbit'
STOPS = {
    'journal without bindings': (
        {'DEFAULT': {'use_journal': True}},
        '[DEFAULT] use_journal = True: the module systemd is missing; '
        'pip install novasched[journal]',
    ),
    'syslog facility': (
        {'DEFAULT': {'use_syslog': True, 'syslog_log_facility': 'nonsense'}},
        '[DEFAULT] syslog_log_facility = nonsense: syslog facility must be one of: ',
    ),
    'missing file of the log': (
        {'DEFAULT': {'log_config_append': '/no/such/file'}},
        '[DEFAULT] log_config_append = /no/such/file: ',
    ),
    'incomplete file of the log': (
        {'DEFAULT': {'log_config_append': '{folder}/logging.conf'}},
        '[DEFAULT] log_config_append = {folder}/logging.conf: ',
    ),
    'unknown handler of the log': (
        {'DEFAULT': {'log_config_append': '{folder}/handlers.conf'}},
        '[DEFAULT] log_config_append = {folder}/handlers.conf: ',
    ),
    'folder of the log': (
        {'DEFAULT': {'log_dir': '/no/such/folder'}},
        '[DEFAULT] log_dir = /no/such/folder: No such file or directory',
    ),
    'file of the log': (
        {'DEFAULT': {'log_file': '{folder}'}},
        '[DEFAULT] log_file = {folder}: Is a directory',
    ),
    'level of the log': (
        {'DEFAULT': {'default_log_levels': 'amqp=NONSENSE'}},
        "[DEFAULT] default_log_levels = amqp=NONSENSE: Unknown level: 'NONSENSE'",
    ),
    'file of the report': (
        {'oslo_reports': {'file_event_handler': '/no/such/file'}},
        '[oslo_reports] file_event_handler = /no/such/file: ',
    ),
    'port of metrics': (
        {'novasched': {'metrics_bind': '127.0.0.1:{port}'}},
        '[novasched] metrics_bind = 127.0.0.1:{port}: Address already in use',
    ),
    'port of health': (
        {'novasched': {'health_bind': '127.0.0.1:{port}'}},
        '[novasched] health_bind = 127.0.0.1:{port}: Address already in use',
    ),
    'socket of health': (
        {'novasched': {'health_bind': 'unix:/no/such/folder/health.sock'}},
        '[novasched] health_bind = unix:/no/such/folder/health.sock: No such file',
    ),
    'no memcached': (
        {'DEFAULT': {'servicegroup_driver': 'mc'}},
        '[cache] enabled = False: servicegroup_driver = mc keeps',
    ),
    'library of notifications': (
        {
            'oslo_messaging_notifications': {
                'driver': 'messagingv2',
                'transport_url': f'kafka://nova:{SECRET}@127.0.0.1:9092/',
            }
        },
        '[oslo_messaging_notifications] transport_url = (not shown): '
        'the module confluent_kafka is missing; ',
    ),
    'pools of connections': (
        {RABBIT: {'rpc_conn_pool_size': 1}},
        f'[{RABBIT}] rpc_conn_pool_size = 1: ',
    ),
    'release of TLS': (
        {RABBIT: {'ssl': True, 'ssl_version': 'nonsense'}},
        f'[{RABBIT}] ssl_version = nonsense: ',
    ),
    'streams without quorum queues': (
        {RABBIT: {'rabbit_stream_fanout': True}},
        f'[{RABBIT}] rabbit_stream_fanout = True: ',
    ),
    'certificate of Placement': (
        {'placement': {'cafile': '/no/such/file'}},
        '[placement] cafile = /no/such/file: No such file or directory',
    ),
    'no way into Placement': (
        {'placement': {'auth_type': 'nonsense'}},
        '[placement] auth_type = nonsense: The plugin nonsense could not be found',
    ),
}
"""Overrides of nova.conf, and the begin of the line."""


@pytest.fixture
def occupied(tmp_path):
    """A port in use, and files that are no configuration of a log, by name in braces."""
    (tmp_path / 'logging.conf').write_text(BROKEN_LOGGING)
    (tmp_path / 'handlers.conf').write_text(
        '[loggers]\nkeys = root\n[handlers]\nkeys = no\n[formatters]\nkeys =\n'
        '[logger_root]\nhandlers = no\n[handler_no]\nclass = NoSuchHandler\nargs = ()\n'
    )
    with socket.create_server(('127.0.0.1', 0)) as server:
        yield {'folder': tmp_path, 'port': server.getsockname()[1]}


def filled(overrides, values):
    """The overrides with names in braces replaced."""
    groups = {}
    for group, options in overrides.items():
        groups[group] = {name: str(text) for name, text in options.items()}
        for name, text in groups[group].items():
            for key, value in values.items():
                text = text.replace('{' + key + '}', str(value))
            groups[group][name] = text
    return groups


def checked(config, level='error'):
    """Run the check as a process; its findings of a level: {subject: text}."""
    status, findings = findings_of_check(config)
    assert SECRET not in str(findings)
    levels = [finding['level'] for finding in findings]
    assert status == ('error' in levels)

    texts = {}
    for finding in findings:
        if finding['level'] == level:
            texts[finding['subject']] = finding['text']
    return texts


def told(daemon):
    """The text of the daemon, whose log is in its file or on its standard output."""
    return [line for line in daemon.text().splitlines() if 'novasched: ' in line]


@pytest.mark.parametrize(('overrides', 'line'), STOPS.values(), ids=STOPS)
def test_a_wrong_option_stops_the_daemon_and_fails_the_check(
    small_cloud, occupied, overrides, line
):
    """The daemon ends with one line that names the option and the value, and status 1.
    The check has the same line as an error, and no further error."""
    expected = line
    for key, value in occupied.items():
        expected = expected.replace('{' + key + '}', str(value))
    daemon = Daemon(small_cloud, filled(overrides, occupied))

    assert daemon.run_to_end() == 1
    assert 'Traceback' not in daemon.text()
    [told_line] = told(daemon)
    told_line = told_line.partition('novasched: ')[2]
    assert told_line.startswith(expected)
    assert SECRET not in daemon.text()

    errors = checked(daemon.config)
    assert list(errors.values()) == [told_line]
    [subject] = errors
    assert subject == told_line.partition(' = ')[0]


QUORUM = {'durable': True, 'arguments': {'x-queue-type': 'quorum'}}
QUEUES = {
    'classic, and quorum queues are set': (
        {RABBIT: {'rabbit_quorum_queue': True}},
        {'durable': False},
        f'[{RABBIT}] rabbit_quorum_queue = True: ',
    ),
    'durable, and durable queues are not set': (
        {},
        {'durable': True},
        f'[{RABBIT}] amqp_durable_queues = False: ',
    ),
    'quorum, and nothing is set': (
        {},
        QUORUM,
        f'[{RABBIT}] amqp_durable_queues = False: ',
    ),
}
"""Overrides of nova.conf, the properties of an existing queue, and the begin of the
line."""


@pytest.mark.parametrize(('overrides', 'queue', 'line'), QUEUES.values(), ids=QUEUES)
def test_a_queue_of_another_type_stops_the_daemon(small_cloud, overrides, queue, line):
    """The daemon ends with a line about the option if the broker has its queue with
    other properties. The check has the same line, and makes no queue."""
    daemon = Daemon(small_cloud, overrides)
    name = f'{broker.TOPIC}.{daemon.host}'
    assert not broker.exists(small_cloud.amqp_url, name)

    with broker.connect(small_cloud.amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare(name, auto_delete=False, **queue)
        try:
            errors = checked(daemon.config)
            assert daemon.run_to_end() == 1
        finally:
            channel.queue_delete(name)
    assert 'Traceback' not in daemon.text()
    [told_line] = told(daemon)
    told_line = told_line.partition('novasched: ')[2]
    assert told_line.startswith(line)
    assert 'PRECONDITION_FAILED' in told_line
    assert list(errors.values()) == [told_line]


NOTIFICATIONS = 'oslo_messaging_notifications'
NOTIFICATION_QUEUES = {
    'quorum, legacy format': (
        {NOTIFICATIONS: {'topics': 'odd'}},
        QUORUM,
        f'[{RABBIT}] amqp_durable_queues = False: ',
    ),
    'durable, versioned format': (
        {
            'notifications': {
                'notification_format': 'versioned',
                'versioned_notifications_topics': 'odd',
            }
        },
        {'durable': True},
        f'[{RABBIT}] amqp_durable_queues = False: ',
    ),
    'transient, and durable queues are set': (
        {NOTIFICATIONS: {'topics': 'odd'}, RABBIT: {'amqp_durable_queues': True}},
        {'durable': False},
        f'[{RABBIT}] amqp_durable_queues = True: ',
    ),
}
"""Overrides of nova.conf, the properties of an existing queue of notifications, and the
begin of the warning. oslo.messaging accepts a transient queue for RPC in place of a
durable queue, but not for notifications."""


@pytest.mark.parametrize(
    ('overrides', 'queue', 'line'),
    NOTIFICATION_QUEUES.values(),
    ids=NOTIFICATION_QUEUES,
)
def test_the_daemon_runs_with_a_notification_queue_of_another_type(
    small_cloud, client, overrides, queue, line
):
    """The daemon answers requests and ends as usual, and its notifications are lost, if
    the broker has the queue of notifications with other properties. The check has a
    warning, unless notifications are disabled."""
    disabled = small_cloud.config('disabled', overrides)
    enabled = {**overrides.get(NOTIFICATIONS, {}), 'driver': 'messagingv2'}
    daemon = Daemon(small_cloud, {**overrides, NOTIFICATIONS: enabled})
    subject = line.partition(' = ')[0]

    with broker.connect(small_cloud.amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare('odd.info', auto_delete=False, **queue)
        try:
            with daemon:
                assert client.chosen() == ['host-1']
                assert daemon.stop() == 0
            assert checked(daemon.config) == {}
            warnings = checked(daemon.config, 'warning')
            assert subject not in checked(disabled, 'warning')
        finally:
            channel.queue_delete('odd.info')

    assert 'Could not send notification to odd' in daemon.text()
    assert warnings[subject].startswith(line)
    assert 'PRECONDITION_FAILED' in warnings[subject]
    assert warnings[subject].endswith('Notifications will be lost')


def test_the_check_asks_the_broker_of_notifications(small_cloud, rabbitmq):
    """The check compares the queue at the broker of ``[oslo_messaging_notifications]
    transport_url``, and makes no queue."""
    rabbitmq.control('add_vhost', 'bus')
    rabbitmq.control('set_permissions', '-p', 'bus', 'nova', '.*', '.*', '.*')
    url = f'{small_cloud.amqp_url}bus'
    options = {'driver': 'messagingv2', 'topics': 'odd', 'transport_url': url}
    config = small_cloud.config('bus', {NOTIFICATIONS: options})
    subject = f'[{RABBIT}] amqp_durable_queues'

    assert subject not in checked(config, 'warning')
    assert not broker.exists(url, 'odd.info')

    with broker.connect(url) as connection:
        connection.channel().queue_declare('odd.info', durable=True, auto_delete=False)
    assert "queue 'odd.info' in vhost 'bus'" in checked(config, 'warning')[subject]
    assert checked(config) == {}


def test_a_plugin_that_reads_an_undeclared_option_stops_the_daemon(small_cloud):
    """A filter that reads an option that is not declared ends the start with a line
    about the option, and the check has the same line."""
    overrides = {
        'filter_scheduler': {
            'available_filters': 'tests.unit.plugins.nova_style.UndeclaredFilter',
            'enabled_filters': 'UndeclaredFilter',
        }
    }
    daemon = Daemon(small_cloud, overrides)
    assert daemon.run_to_end() == 1
    assert 'Traceback' not in daemon.text()
    [told_line] = told(daemon)
    told_line = told_line.partition('novasched: ')[2]
    assert told_line == (
        '[filter_scheduler] enabled_filters = UndeclaredFilter: the plugin reads '
        '[acme] shelf, which nova does not declare'
    )
    assert list(checked(daemon.config).values()) == [told_line]


def test_the_daemon_starts_with_an_incomplete_neutron_section(small_cloud, client):
    """As nova-scheduler, the daemon starts with half a section [neutron], and logs a
    warning. Requests without ports get hosts. The check has a warning."""
    for options, name in (
        ({'auth_type': 'password'}, 'auth_type'),
        ({'auth_type': 'none', 'cafile': '/no/such/file'}, 'cafile'),
    ):
        with Daemon(small_cloud, {'neutron': options}) as daemon:
            assert client.chosen() == ['host-1']
        refused = f'Requests that need Neutron are refused: [neutron] {name} = '
        assert refused in daemon.text()
        assert checked(daemon.config) == {}
        assert f'[neutron] {name}' in checked(daemon.config, 'warning')


def test_the_check_accepts_the_addresses_of_a_running_daemon(small_cloud, tmp_path):
    """The check accepts the addresses of a running novasched with the same nova.conf,
    and refuses the same addresses for another host name."""
    addresses = {
        'metrics_bind': f'127.0.0.1:{free_port()}',
        'health_bind': f'unix:{tmp_path}/health.sock',
    }
    other = small_cloud.config('other', {'novasched': addresses})
    assert checked(other) == {}
    assert list(tmp_path.iterdir()) == []

    with Daemon(small_cloud, {'novasched': addresses}) as daemon:
        assert checked(daemon.config) == {}
        assert list(checked(other)) == ['[novasched] health_bind']


def test_the_check_leaves_no_log(small_cloud, tmp_path):
    """The check writes to no log, and makes no log file."""
    log = tmp_path / 'nova.log'
    config = small_cloud.config('check', {'DEFAULT': {'log_file': log}})
    assert checked(config) == {}
    assert not log.exists()
    log.write_text('old\n')
    assert checked(config) == {}
    assert log.read_text() == 'old\n'

    config = small_cloud.config('check', {'DEFAULT': {'log_dir': tmp_path}})
    assert checked(config) == {}
    assert list(tmp_path.iterdir()) == [log]
