# SPDX-License-Identifier: Apache-2.0
"""Options of oslo.log that cannot be used, in one line each."""

import sys

import pytest

from novasched.concurrency.child import ChildFailed, in_child
from novasched.conf import logs
from novasched.conf.errors import ConfigError

HANDLERS = """
[loggers]
keys = root
[handlers]
keys = no
[formatters]
keys =
[logger_root]
handlers = no
[handler_no]
class = NoSuchHandler
args = ()
"""


def line_of(conf):
    """The line about the option that ends the start; None if logging is set up. Logging
    is set up in a child process, since it belongs to the process."""

    def set_up():
        try:
            logs.set_up(conf)
        except ConfigError as error:
            return str(error)
        return None

    return in_child(set_up, 60)


@pytest.mark.parametrize(
    ('options', 'line'),
    [
        ({}, None),
        (
            {'use_journal': True},
            '[DEFAULT] use_journal = True: the module systemd is missing; '
            'pip install novasched[journal]',
        ),
        (
            {'use_syslog': True, 'syslog_log_facility': 'nonsense'},
            '[DEFAULT] syslog_log_facility = nonsense: syslog facility must be one of: ',
        ),
        (
            {'log_config_append': '/no/such'},
            '[DEFAULT] log_config_append = /no/such: [Errno 2] No such file',
        ),
        (
            {'log_config_append': '{folder}/handlers'},
            '[DEFAULT] log_config_append = {folder}/handlers: ',
        ),
        (
            {'log_dir': '/no/such'},
            '[DEFAULT] log_dir = /no/such: No such file or directory',
        ),
        (
            {'log_dir': '{folder}', 'log_file': 'sub'},
            '[DEFAULT] log_file = {folder}/sub: Is a directory',
        ),
        ({'log_file': '{folder}'}, '[DEFAULT] log_file = {folder}: Is a directory'),
        (
            {'default_log_levels': 'amqp=NONSENSE'},
            "[DEFAULT] default_log_levels = amqp=NONSENSE: Unknown level: 'NONSENSE'",
        ),
    ],
)
def test_the_error_of_an_invalid_log_option_names_the_option(
    load, tmp_path, tmp_path_factory, monkeypatch, options, line
):
    """The line names the option and the value."""
    monkeypatch.setitem(sys.modules, 'systemd', None)
    folder = tmp_path_factory.mktemp('log')
    (folder / 'handlers').write_text(HANDLERS)
    (folder / 'sub').mkdir()
    text = ''.join(f'{name} = {value}\n' for name, value in options.items())
    told = line_of(load('[DEFAULT]\n' + text.replace('{folder}', str(folder))))
    if line is None:
        assert told is None
    else:
        assert told.startswith(line.replace('{folder}', str(folder)))


def test_the_parent_gets_the_error_of_a_failed_child_process():
    """The parent gets the error of the function, and notices a lost child."""
    assert in_child(lambda: {'a': [1]}, 60) == {'a': [1]}
    with pytest.raises(ChildFailed, match='ZeroDivisionError: '):
        in_child(lambda: 1 // 0, 60)
    with pytest.raises(ChildFailed, match='the process ended early'):
        in_child(sys.exit, 60)
