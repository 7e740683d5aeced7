# SPDX-License-Identifier: Apache-2.0
"""nova.conf: the daemon starts with it, or ends with one line that names what is wrong.

Nothing is ever started here, since no database is configured: that is the line which a
good configuration ends with.
"""

import os
import re
import sys
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.cmd.novasched import main
from novasched.conf.errors import ConfigError
from novasched.conf.loading import load
from novasched.conf.options import OPTIONS
from tests.fuzz.mutation import EFFORT, NUMBERS, WORDS, one_input

pytestmark = pytest.mark.filterwarnings(
    'ignore::DeprecationWarning'
)  # eventlet's, of forks
GOOD = 'novasched: [database] connection = not set: a database URL is required'
QUIET = re.compile(r' (DEBUG|INFO|WARNING) ')
"""Lines of the log that need nobody's attention."""
REFERENCES = (
    '$host',
    '${host}',
    '$nothing',
    '$placement',
    '$scheduler.workers',
    '$$host',
    '\\$host',
    '$transport_url',
)
NAMES = [(group, option.name) for group, option in OPTIONS]


def said(folder, content):
    """What the daemon has to say on its way to the end, in a process of its own."""
    path = folder / 'nova.conf'
    output = folder / 'output'
    path.write_bytes(content)
    (folder / 'more').mkdir(exist_ok=True)
    child = os.fork()
    if not child:
        sys.stderr = output.open('w')
        try:
            status = main(
                ['--config-file', str(path), '--config-dir', str(folder / 'more')]
            )
        except SystemExit as error:  # oslo.config's, for an option of the command line
            status = int(error.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 2
        sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    lines = output.read_text(errors='replace').splitlines()
    told = [line for line in lines if line.strip() and not QUIET.search(line)]
    assert os.waitstatus_to_exitcode(status) == 1, told
    assert len(told) == 1, told
    return told[0]


def line(value):
    """A value as it stands behind an option's name."""
    return str(value).encode(errors='replace').replace(b'\r', b'').rstrip(b'\n')


values = (
    st.sampled_from(WORDS) | st.sampled_from(NUMBERS).map(repr) | st.text(max_size=8)
)
values |= st.lists(values, max_size=3).map(','.join) | st.sampled_from(REFERENCES)


@EFFORT
@given(name=st.sampled_from(NAMES), value=values, group=st.none() | st.just('DEFAULT'))
def test_values(folder, name, value, group):
    """Any value of any option is used, or named."""
    with one_input('configuration'):
        where, option = name
        text = b'[%s]\n%s = %s\n' % (
            (group or where).encode(),
            option.encode(),
            line(value),
        )
        complaint = said(folder, text)
        assert (
            complaint == GOOD or option in complaint or 'nova.conf: line' in complaint
        )


@EFFORT
@given(
    before=st.binary(max_size=12), after=st.binary(max_size=12), cut=st.integers(0, 60)
)
def test_files(folder, before, after, cut):
    """A file that is damaged is used, or named."""
    with one_input('configuration'):
        complaint = said(
            folder,
            before
            + b'[DEFAULT]\nhost = here\n[scheduler]\nworkers = 2\n'[cut:]
            + after,
        )
        assert complaint == GOOD or 'nova.conf' in complaint


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('configuration')


KEPT = {
    'A file in another encoding': (
        b'[DEFAULT]\nhost = caf\xe9\n',
        'nova.conf: not UTF-8',
    ),
    'A time that is no number': (
        b'[novasched]\ncell_timeout = nan\n',
        'cell_timeout = nan',
    ),
    'A time without end': (
        b'[novasched]\ncell_timeout = 1e300\n',
        'cell_timeout = 1e300',
    ),
    'A time beyond the calendar': (
        b'[DEFAULT]\nservice_down_time = %d\n' % 10**20,
        'service_down_time = 1',
    ),
    'A scale that is no number': (
        b'[filter_scheduler]\nram_weight_multiplier = nan\n',
        'ram_weight_multiplier = nan',
    ),
    'More alternates than can be counted': (
        b'[scheduler]\nmax_attempts = %d\n' % 2**64,
        'max_attempts = 18',
    ),
    'A log in a folder that is not there': (
        b'[DEFAULT]\nlog_file = /nowhere/log\n',
        'log_file = /nowhere/log',
    ),
    'A description of the log that is not there': (
        b'[DEFAULT]\nlog_config_append = /nowhere\n',
        'log_config_append = /nowhere',
    ),
    'A level of the log that is none': (
        b'[DEFAULT]\ndefault_log_levels = a=b\n',
        'default_log_levels = a=b',
    ),
    'A facility of the log that is none': (
        b'[DEFAULT]\nuse_syslog = yes\nsyslog_log_facility = x\n',
        'syslog_log_facility = x',
    ),
    'A value of several lines': (
        b'[scheduler]\nmax_attempts = 1\x0c2\n',
        'max_attempts = 1 2: invalid',
    ),
    'A number that is left out': (
        b'[DEFAULT]\nservice_down_time =\n',
        'service_down_time = : must not be empty',
    ),
    'A reference to itself': (
        b'[scheduler]\nworkers = $scheduler.workers\n',
        '[scheduler] workers = (not shown): a $ in the value',
    ),
    'References in a circle': (
        b'[DEFAULT]\nhost = $log_file\nlog_file = ${host}\n',
        '[DEFAULT] host, [DEFAULT] log_file = ',
    ),
    'A folder from which a default makes no socket': (
        b'[DEFAULT]\nstate_path = 0\n',
        'health_bind = unix:$state_path',
    ),
    'Eight megabytes': (b'[DEFAULT]\nhost = %b\n' % (b'x' * 2**23), 'not set'),
}
"""What was found, and what the line names."""


@pytest.mark.parametrize(('content', 'named'), KEPT.values(), ids=KEPT)
def test_kept(folder, content, named):
    """What has once gone wrong is told in one line."""
    with one_input('configuration'):
        assert named in said(folder, content)


def test_a_folder_is_no_file(tmp_path):
    """A path that leads to something else is named."""
    with pytest.raises(
        ConfigError, match=f'--config-file = {tmp_path}: Is a directory'
    ):
        load(['--config-file', str(tmp_path)], 'novasched')
