# SPDX-License-Identifier: Apache-2.0
"""Secrets in log lines."""

import io
import logging
import threading

import pytest
from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log as oslo_logging

from novasched.conf import redaction
from novasched.conf.logs import Hiding, hide_secrets
from novasched.scheduler.errors import PlacementUnavailable

WORD = 'Kraken7'
RANDOM = 'kG7bQz2mXw9RtLp4'


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Know two secrets during a test."""
    secrets = redaction.Secrets([WORD, RANDOM])
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(secrets))


def handled(monkeypatch, formatter):
    """Return the output of a handler of the root logger."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(formatter)
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    monkeypatch.setattr(threading, 'excepthook', threading.excepthook)
    hide_secrets()
    return output


@pytest.fixture
def output(monkeypatch):
    """The output of a handler with a short format."""
    return handled(monkeypatch, logging.Formatter('%(name)s: %(message)s'))


@pytest.fixture
def oslo_output(monkeypatch):
    """The output of a handler with the format of the daemon."""
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    conf([])
    return handled(monkeypatch, formatters.ContextFormatter(config=conf))


@pytest.mark.parametrize(
    ('logger', 'argument', 'line'),
    [
        ('oslo_db.engines', WORD, 'no host ***'),
        (WORD, WORD, 'no host ***'),
        ('novasched', WORD, f'no host {WORD}'),
        ('nova.filters', WORD, f'no host {WORD}'),
        # An error of a library as argument of a line of novasched.
        ('nova.filters', ValueError(WORD), 'no host ***'),
        ('nova.filters', PlacementUnavailable(WORD), f'no host {WORD}'),
        ('nova.filters', f'http://u:{WORD}@h/', 'no host http://***@h/'),
        ('novasched', f'password={WORD}', 'no host password=***'),
        ('novasched', f'x{RANDOM}y', 'no host x***y'),
        # White space becomes an escape.
        ('novasched', f'password:\t{WORD}', r'no host password:\t***'),
        ('novasched', f'password:\n  {WORD}', r'no host password:\n  ***'),
        ('novasched', f'{"x" * 1990}\n{RANDOM}', f'no host {"x" * 1990}\\n***'),
    ],
)
def test_log_lines_hide_secrets_and_keep_logger_names(output, logger, argument, line):
    """Lines of libraries hide all secrets, lines of novasched only unmistakable
    secrets. Names of loggers stay, even if the name equals a password."""
    record = logging.LogRecord(
        logger, logging.INFO, __file__, 1, 'no host %s', (argument,), None
    )
    logging.getLogger(logger).handle(record)

    assert output.getvalue() == f'{logger}: {line}\n'


@pytest.mark.parametrize('space', ['\t', '\n', '\n  '])
def test_secrets_beside_white_space_are_hidden(output, space):
    """Secrets beside white space are found in messages and in errors of novasched,
    although the white space becomes an escape."""
    log = logging.getLogger('novasched')
    log.info(f'password:{space}{WORD}')
    try:
        raise PlacementUnavailable(f'password:{space}{WORD}')
    except PlacementUnavailable:
        log.exception('it fails')

    assert WORD not in output.getvalue().replace('{WORD}', '')


def test_tracebacks_hide_secrets(output):
    """Tracebacks hide secrets, also in ``exc_text`` for further handlers."""
    exc_info = (ValueError, ValueError(WORD), None)
    record = logging.LogRecord(
        'nova.scheduler', logging.DEBUG, __file__, 1, 'x', (), exc_info
    )
    logging.getLogger('nova.scheduler').handle(record)

    assert output.getvalue() == 'nova.scheduler: x\nValueError: ***\n'
    assert record.exc_text == 'ValueError: ***'
    assert record.exc_info == exc_info


def test_causes_of_an_error_hide_secrets_and_keep_code_lines(output):
    """The causes of an error hide secrets. Files and lines of code stay, even if a word
    equals a password."""
    redaction.learn(['Outer'])
    log = logging.getLogger('novasched')
    try:
        try:
            raise Outer.Inner(f'no {WORD}')
        except Outer.Inner as inner:
            raise PlacementUnavailable('our Outer words') from inner
    except PlacementUnavailable:
        log.exception('it fails')

    text = output.getvalue()
    assert "raise Outer.Inner(f'no {WORD}')" in text
    assert f'{__name__}.Outer.Inner: no ***\n' in text
    assert text.endswith(
        'novasched.scheduler.errors.PlacementUnavailable: our Outer words\n'
    )
    assert 'The above exception was the direct cause' in text


class Outer:
    class Inner(Exception):
        """An error of a library."""


def test_an_error_that_oslo_log_adds_to_a_line_hides_secrets(oslo_output):
    """oslo.log adds the current error to a line, here without secrets. Each line of a
    traceback begins with the level and the logger, unchanged."""
    redaction.learn(['ERROR', 'amqp'])
    try:
        raise OSError(f'{WORD} is away')
    except OSError:
        logging.getLogger('amqp').error('it fails')
        logging.getLogger('amqp').exception('it fails')

    first, *traceback = oslo_output.getvalue().splitlines()
    assert ' ERROR amqp [' in first
    assert first.endswith('] it fails: OSError: *** is away')
    for line in traceback:
        assert ' ERROR amqp ' in line
    assert any(line.endswith('OSError: *** is away') for line in traceback)
    assert WORD not in oslo_output.getvalue()


def test_secrets_in_the_dict_of_a_json_formatter_are_hidden():
    """A JSON formatter returns a dict in place of a text."""

    class Structured(logging.Formatter):
        def format(self, record):
            return {'message': record.getMessage(), 'lines': [RANDOM], 'pid': 7}

    record = logging.LogRecord('amqp', logging.DEBUG, __file__, 1, WORD, (), None)

    assert Hiding(Structured()).format(record) == {
        'message': '***',
        'lines': ['***'],
        'pid': 7,
    }


def test_an_error_of_a_thread_is_logged_without_secrets(output):
    """The error of a thread goes to the log instead of the standard error."""

    def fail():
        raise ValueError(WORD)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

    assert output.getvalue().startswith(
        'novasched: Unhandled error in a thread\nTraceback'
    )
    assert output.getvalue().endswith('ValueError: ***\n')


def test_a_second_call_of_hide_secrets_keeps_the_formatter(output):
    """The second call changes nothing."""
    before = logging.root.handlers[0].formatter

    hide_secrets()

    assert logging.root.handlers[0].formatter is before
    assert isinstance(before, Hiding)
