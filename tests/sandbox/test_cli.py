# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl sandbox`` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from operator import itemgetter

import pytest

from novasched.cmd import novaschedctl
from novasched.tools.sandbox import tour
from novasched.tools.sandbox.cloud import SANDBOX_NAME, Sandbox


def report_of(capsys, *arguments, status=0):
    """The JSON report of the command, run in this process with an expected status."""
    assert novaschedctl.main(['sandbox', '--format', 'json', *arguments]) == status
    return json.loads(capsys.readouterr().out)


def test_the_parts_of_the_json_report_agree(capsys, tmp_path, monkeypatch):
    """The parts of the JSON report agree, and no file is left behind."""
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    report = report_of(capsys, '--hosts', '5', '--servers', '12', '--multi', '5')
    assert report['summary']['confirmed'] is True
    assert report['problems'] == []
    assert report['summary']['placed'] == 12 == len(report['servers'])
    assert report['summary']['requests'] == 3
    assert report['summary']['refused'] == 0

    placed = Counter(map(itemgetter('host'), report['servers']))
    for host in report['hosts']:
        assert host['servers'] == placed[host['name']]
        assert host['used']['VCPU'] == 4 * placed[host['name']]
        for name, used in host['used'].items():
            assert used <= host['capacity'][name]

    assert list(tmp_path.iterdir()) == []


def test_refusals_are_no_failure(capsys):
    """Eight servers in an anti-affinity group on five hosts: three refusals, exit
    status 0."""
    report = report_of(capsys, '--hosts', '5', '--servers', '8', '--anti-affinity')
    assert [*map(itemgetter('servers'), report['hosts'])] == [1] * 5
    fault = 'No valid host was found. There are not enough hosts available.'
    assert report['refusals'] == [{'fault': fault, 'servers': 3}]


def test_a_seed_determines_hosts_and_instances(capsys):
    """A seed determines hosts, sizes and order. The order of equal hosts is Placement's
    and may vary. All servers of an affinity group share a host of the requested
    zone."""
    flavors = ('--flavor', '1,512,1', '--flavor', '2,1024,2')
    arguments = (
        '--hosts',
        '6',
        '--servers',
        '6',
        '--az',
        'az01',
        '--affinity',
        *flavors,
    )
    described = []
    for seed in '778':
        report = report_of(capsys, *arguments, '--seed', seed)
        (used,) = filter(itemgetter('servers'), report['hosts'])
        assert (used['zone'], used['servers']) == ('az01', 6)
        hosts = [*map(itemgetter('name', 'capacity'), report['hosts'])]
        servers = [*map(itemgetter('uuid', 'flavor'), report['servers'])]
        described.append((hosts, servers))
    first, again, other = described

    assert first == again
    assert first != other


def test_the_table_fits_in_80_columns(capsys, monkeypatch):
    """Without a terminal there is no progress bar, and no line is wider than 80
    columns."""
    monkeypatch.setenv('COLUMNS', '80')
    more_than_half = f'1,{max(tour.CORES) * tour.MEMORY_MB_PER_CORE // 2 + 1},1'
    arguments = ('--hosts', '3', '--servers', '4', '--flavor', more_than_half)

    assert novaschedctl.main(['sandbox', *arguments]) == 0

    output = capsys.readouterr().out
    assert '\x1b' not in output
    assert 'Booting' not in output

    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:5]] == ['host1', 'host2', 'host3']
    assert 'refused: No valid host was found.' in output
    assert lines[-2].startswith('Confirmed by Placement: ')
    assert 'median' in lines[-1]


def test_a_lost_allocation_is_a_problem_with_exit_status_1(capsys, monkeypatch):
    """A lost allocation is a problem: exit status 1, with the server in the report."""

    class Losing(Sandbox):
        def problems(self):
            self.placement.call('DELETE', f'/allocations/{self.boots[0].uuids[0]}')
            return super().problems()

    monkeypatch.setattr(tour, 'Sandbox', Losing)
    report = report_of(capsys, '--hosts', '1', '--servers', '2', status=1)
    assert report['summary']['confirmed'] is False
    assert report['servers'][0]['uuid'] in report['problems'][0]


@pytest.mark.parametrize(
    ('number', 'status'), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_the_command_and_leaves_no_file(tmp_path, number, status):
    """A signal ends the command without a traceback, and no file is left behind."""
    arguments = ('sandbox', '--verbose', '--servers', '1000')

    def listen():
        # Whoever runs the tests in the background may have had SIGINT ignored, by all.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with subprocess.Popen(
        [sys.executable, '-m', novaschedctl.__name__, *arguments],
        env={**os.environ, 'TMPDIR': str(tmp_path)},
        preexec_fn=listen,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert any('Selected host' in line for line in process.stderr)
        assert list(tmp_path.glob(f'{SANDBOX_NAME}-*'))
        process.send_signal(number)
        _, error = process.communicate(timeout=30)

    assert process.returncode == status
    assert 'Traceback' not in error
    assert list(tmp_path.iterdir()) == []
