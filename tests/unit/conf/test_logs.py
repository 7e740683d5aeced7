# SPDX-License-Identifier: Apache-2.0
"""What the log shows of lines that hold secrets."""

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
    """One secret, for one test."""
    monkeypatch.setattr(
        redaction.KNOWN, '__dict__', vars(redaction.Secrets([WORD, RANDOM]))
    )


def handled(monkeypatch, formatter):
    """What a handler of the root logger writes."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(formatter)
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    monkeypatch.setattr(threading, 'excepthook', threading.excepthook)
    hide_secrets()
    return output


@pytest.fixture
def said(monkeypatch):
    """What a handler writes in few words."""
    return handled(monkeypatch, logging.Formatter('%(name)s: %(message)s'))


@pytest.fixture
def oslo(monkeypatch):
    """What a handler writes that is set up as the daemon's are."""
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
        # What a library has made may stand in a line of ours.
        ('nova.filters', ValueError(WORD), 'no host ***'),
        ('nova.filters', PlacementUnavailable(WORD), f'no host {WORD}'),
        ('nova.filters', f'http://u:{WORD}@h/', 'no host http://***@h/'),
        ('novasched', f'password={WORD}', 'no host password=***'),
        ('novasched', f'x{RANDOM}y', 'no host x***y'),
        # White space that becomes an escape.
        ('novasched', f'password:\t{WORD}', r'no host password:\t***'),
        ('novasched', f'password:\n  {WORD}', r'no host password:\n  ***'),
        ('novasched', f'{"x" * 1990}\n{RANDOM}', f'no host {"x" * 1990}\\n***'),
    ],
)
def test_lines(said, logger, argument, line):
    """Lines of libraries hide secrets; ours do where one stands as such. Names of
    loggers and our own words stay, even if a password is one of them."""
    logging.getLogger(logger).handle(
        logging.LogRecord(
            logger, logging.INFO, __file__, 1, 'no host %s', (argument,), None
        )
    )
    assert said.getvalue() == f'{logger}: {line}\n'


@pytest.mark.parametrize('space', ['\t', '\n', '\n  '])
def test_white_space_in_a_sentence(said, space):
    """Escapes keep no secret from being found: neither in a sentence nor in an error of
    ours."""
    log = logging.getLogger('novasched')
    log.info(f'password:{space}{WORD}')
    try:
        raise PlacementUnavailable(f'password:{space}{WORD}')
    except PlacementUnavailable:
        log.exception('it fails')
    assert WORD not in said.getvalue().replace('{WORD}', '')


def test_a_traceback(said):
    """Errors in hand hide theirs, for whatever handler reads the record too."""
    error = ValueError(WORD)
    record = logging.LogRecord(
        'nova.scheduler', logging.DEBUG, __file__, 1, 'x', (), (ValueError, error, None)
    )
    logging.getLogger('nova.scheduler').handle(record)
    assert said.getvalue() == 'nova.scheduler: x\nValueError: ***\n'
    assert record.exc_text == 'ValueError: ***'
    assert record.exc_info == (ValueError, error, None)


def test_where_an_error_comes_from(said):
    """The errors behind an error hide theirs; files and lines of code stay, even if a
    password is a word in them."""
    redaction.learn(['Outer'])
    log = logging.getLogger('novasched')
    try:
        try:
            raise Outer.Inner(f'no {WORD}')
        except Outer.Inner as inner:
            raise PlacementUnavailable('our Outer words') from inner
    except PlacementUnavailable:
        log.exception('it fails')
    text = said.getvalue()
    assert "raise Outer.Inner(f'no {WORD}')" in text
    assert f'{__name__}.Outer.Inner: no ***\n' in text
    assert text.endswith(
        'novasched.scheduler.errors.PlacementUnavailable: our Outer words\n'
    )
    assert 'The above exception was the direct cause' in text


class Outer:
    class Inner(Exception):
        """An error of a library."""


def test_an_error_in_hand(oslo):
    """oslo.log adds the error that is handled meanwhile to a line, without its secrets;
    in front of each line of a traceback stand the logger and the level as they are."""
    redaction.learn(['ERROR', 'amqp'])
    try:
        raise OSError(f'{WORD} is away')
    except OSError:
        logging.getLogger('amqp').error('it fails')
        logging.getLogger('amqp').exception('it fails')
    first, *others = oslo.getvalue().splitlines()
    assert ' ERROR amqp [' in first
    assert first.endswith('] it fails: OSError: *** is away')
    assert all(' ERROR amqp ' in line for line in others)
    assert any(line.endswith('OSError: *** is away') for line in others)
    assert WORD not in oslo.getvalue()


def test_a_line_that_is_no_text():
    """Formatters for stores of logs make dicts."""

    class Structured(logging.Formatter):
        def format(self, record):
            return {'message': record.getMessage(), 'lines': [RANDOM], 'pid': 7}

    record = logging.LogRecord('amqp', logging.DEBUG, __file__, 1, WORD, (), None)
    assert Hiding(Structured()).format(record) == {
        'message': '***',
        'lines': ['***'],
        'pid': 7,
    }


def test_a_thread_that_ends(said):
    """It ends in the log instead of on the standard error."""

    def fail():
        raise ValueError(WORD)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert said.getvalue().startswith(
        'novasched: Unhandled error in a thread\nTraceback'
    )
    assert said.getvalue().endswith('ValueError: ***\n')


def test_once(said):
    """Done twice it is as if done once."""
    before = logging.root.handlers[0].formatter
    hide_secrets()
    assert logging.root.handlers[0].formatter is before
    assert isinstance(before, Hiding)
