# SPDX-License-Identifier: Apache-2.0
"""Any nova.conf: the daemon starts, or ends with a line that names the wrong option.

The tests configure no database, so that the daemon never starts: a good configuration
ends with the line about the database.
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

# eventlet warns of forks.
pytestmark = pytest.mark.filterwarnings('ignore::DeprecationWarning')
GOOD = 'novasched: [database] connection = not set: a database URL is required'
QUIET = re.compile(r' (DEBUG|INFO|WARNING) ')
"""Lines of the log below ERROR."""
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
    """The line with which the daemon ends, from a child process."""
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
    lines = []
    for output_line in output.read_text(errors='replace').splitlines():
        if output_line.strip() and not QUIET.search(output_line):
            lines.append(output_line)
    assert os.waitstatus_to_exitcode(status) == 1, lines
    assert len(lines) == 1, lines
    return lines[0]


def line(value):
    """A value as the file has the value behind the name of an option."""
    return str(value).encode(errors='replace').replace(b'\r', b'').rstrip(b'\n')


values = (
    st.sampled_from(WORDS) | st.sampled_from(NUMBERS).map(repr) | st.text(max_size=8)
)
values |= st.lists(values, max_size=3).map(','.join) | st.sampled_from(REFERENCES)


@EFFORT
@given(name=st.sampled_from(NAMES), value=values, group=st.none() | st.just('DEFAULT'))
def test_any_option_value_is_used_or_the_option_is_named(folder, name, value, group):
    """The daemon uses any value of an option, or names the option."""
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
def test_a_damaged_file_is_used_or_named(folder, before, after, cut):
    """The daemon uses a damaged file, or names the file."""
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
"""Contents that caused a traceback or several lines before, and words of the line."""


@pytest.mark.parametrize(('content', 'named'), KEPT.values(), ids=KEPT)
def test_kept_file_contents_end_with_a_single_line(folder, content, named):
    """Contents that caused an error before give a single line now."""
    with one_input('configuration'):
        assert named in said(folder, content)


def test_a_folder_as_config_file_is_named_in_the_error(tmp_path):
    """The error names a path that leads to a folder."""
    with pytest.raises(
        ConfigError, match=f'--config-file = {tmp_path}: Is a directory'
    ):
        load(['--config-file', str(tmp_path)], 'novasched')
