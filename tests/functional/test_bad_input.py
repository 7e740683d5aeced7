# SPDX-License-Identifier: Apache-2.0
"""A wrong configuration ends the start with one clear line. Wrong messages end
nothing."""

import re
import socket

import pytest

from tests.lab import broker
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Group, Refused, is_reference, new_uuids
from tests.lab.processes import free_port
from tests.lab.wire import primitive

from .test_check import SECRET, nowhere

# Levels in the prefix of a log line that need no attention.
QUIET = (' DEBUG ', ' INFO ', ' WARNING ')

only_novasched = pytest.mark.skipif(
    is_reference(),
    reason="nova's own scheduler ends with tracebacks, or does not end at all",
)


def complaints(daemon):
    """The log lines for the operator's attention."""
    lines = []
    for line in daemon.text().splitlines():
        if line.strip() and not any(level in line for level in QUIET):
            lines.append(line)
    return lines


@only_novasched
@pytest.mark.parametrize(
    ('overrides', 'line'),
    [
        pytest.param(
            {'filter_scheduler': {'host_subset_size': 'many'}},
            'host_subset_size',
            id='no number',
        ),
        pytest.param(
            {'filter_scheduler': {'enabled_filters': 'ComputeFilter,NoSuchFilter'}},
            'NoSuchFilter',
            id='unknown filter',
        ),
        pytest.param(
            {
                'api_database': {
                    'connection': nowhere('mysql+pymysql'),
                    'retry_interval': 1,
                }
            },
            '(?i)database',
            id='no api database',
        ),
        pytest.param(
            {'placement': {'token': SECRET}}, '(?i)placement', id='wrong token'
        ),
        pytest.param(
            {'DEFAULT': {'servicegroup_driver': 'zk'}},
            r'\[DEFAULT\] servicegroup_driver = zk: ',
            id='no such driver',
        ),
    ],
)
def test_a_configuration_mistake_stops_the_start_with_a_clear_line(
    small_cloud, tmp_path, overrides, line
):
    """The start ends with an error status and one line that names the mistake, shows no
    secret, and does not notify systemd. The unit tests cover all wrong values."""
    quiet = {**overrides, 'DEFAULT': {**overrides.get('DEFAULT', {}), 'debug': False}}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / 'notify'))
        systemd.setblocking(False)
        daemon = Daemon(
            small_cloud, quiet, environment={'NOTIFY_SOCKET': systemd.getsockname()}
        )
        assert daemon.run_to_end() == 1
        with pytest.raises(BlockingIOError):
            systemd.recv(1024)
    assert 'Traceback' not in daemon.text()
    [complaint] = complaints(daemon)
    assert re.search(line, complaint)
    assert SECRET not in daemon.text()


def test_the_daemon_starts_and_refuses_requests_without_placement(small_cloud, client):
    """Without Placement the daemon starts with a warning, and refuses requests."""
    config = {
        'placement': {'endpoint': f'http://127.0.0.1:{free_port()}'},
        'novasched': {'placement_patience': 0},
    }
    with Daemon(small_cloud, config) as daemon:
        assert re.search('WARNING.*(?i:placement)', daemon.text())
        assert client.ping()['service'] == 'scheduler'
        client.refusal()
        assert daemon.alive()
        assert client.ping()['service'] == 'scheduler'


@pytest.fixture(scope='module')
def daemon(small_cloud):
    with Daemon(small_cloud) as running:
        yield running


@pytest.mark.usefixtures('daemon')
@pytest.mark.parametrize(
    'arguments',
    [
        {'spec_obj': primitive('NoSuchObject', '1.0')},
        {'spec_obj': primitive('RequestSpec', '1.0', flavor=7)},
        {'spec_obj': primitive('RequestSpec', '1.0')},
        {'spec_obj': 'a string'},
        {},
        {'surprise': 1},
    ],
    ids=[
        'unknown object',
        'wrong field',
        'no fields',
        'no object',
        'nothing',
        'unknown argument',
    ],
)
def test_a_request_that_cannot_be_decoded_gets_an_error(client, arguments):
    """The caller gets an error other than NoValidHost, and the next request gets a
    host."""
    with pytest.raises(Refused) as caught:
        client.raw_call(
            'select_destinations', {'instance_uuids': new_uuids(), **arguments}
        )
    assert not caught.value.no_valid_host
    assert caught.value.name != 'MessagingTimeout'
    assert len(client.select_destinations(new_uuids(), Flavor())) == 1


@pytest.mark.usefixtures('daemon')
@pytest.mark.parametrize(
    'body', [b'{"oslo.message": ', b'', b'[]', b'{"oslo.message": "7"}']
)
def test_a_message_without_a_valid_form_is_dropped(small_cloud, client, body):
    """The daemon drops a message without a valid form, and the next request gets a
    host."""
    broker.publish(small_cloud.amqp_url, body)
    assert len(client.select_destinations(new_uuids(), Flavor())) == 1


EMOJI = '\U0001f600'
"""A text that no table of nova can hold: their character set is utf8mb3."""
ODD_REQUESTS = (
    (False, {'flavor': Flavor(extra_specs={f'trait:CUSTOM_{EMOJI}': 'required'})}),
    (False, {'flavor': Flavor(extra_specs={f'resources:CUSTOM_{EMOJI}': '1'})}),
    (True, {'hints': {'different_host': [EMOJI], EMOJI: [EMOJI]}}),
    (True, {'group': Group('anti-affinity', members=[EMOJI], hosts=[EMOJI])}),
    (True, {'group': Group('anti-affinity', uuid=EMOJI)}),
    (False, {'group': Group('affinity', members=[EMOJI], hosts=[EMOJI])}),
    (False, {'force_hosts': [EMOJI]}),
    (False, {'force_nodes': [EMOJI]}),
    (True, {'ignore_hosts': [EMOJI]}),
    (False, {'destination': {'host': EMOJI, 'node': EMOJI}}),
    (False, {'destination': {'aggregates': [EMOJI]}}),
    (True, {'zone': EMOJI}),
)
"""Requests with an emoji, and True for the requests that get a host. Where the project
of a claim has one, MariaDB refuses Placement's row in some connections (error 1366)."""


@pytest.mark.usefixtures('daemon')
def test_a_text_that_no_table_can_hold_matches_no_row(client):
    """A name that no row can have is the name of nothing, as in nova-scheduler. The
    next request gets a host."""
    for is_placed, asked in ODD_REQUESTS:
        fields = {'flavor': Flavor(), **asked}
        refusal = None
        try:
            client.select_destinations(new_uuids(), **fields)
        except Refused as error:
            refusal = error
        assert (refusal is None) is is_placed, ascii(asked)
        assert refusal is None or refusal.no_valid_host, ascii(asked)
    assert len(client.select_destinations(new_uuids(), Flavor())) == 1
