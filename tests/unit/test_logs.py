# SPDX-License-Identifier: Apache-2.0
"""What the log shows of lines that hold secrets."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any

import pytest

from novasched import secrets
from novasched.logs import Hiding, hide_secrets

WORD = 'Kraken7'


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One secret, for one test."""
    monkeypatch.setattr(secrets.KNOWN, 'secrets', secrets.Secrets.of([WORD]))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a handler of the root logger writes."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter('%(name)s: %(message)s'))
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    monkeypatch.setattr(threading, 'excepthook', threading.excepthook)
    hide_secrets()
    return output


@pytest.mark.parametrize(
    ('logger', 'level', 'line'),
    [
        ('oslo_db.engines', logging.DEBUG, 'oslo_db.engines: no host ***'),
        ('nova.service', logging.DEBUG, 'nova.service: no host ***'),
        ('nova.filtersome', logging.DEBUG, 'nova.filtersome: no host ***'),
        ('nova.scheduler.manager', logging.WARNING, 'nova.scheduler.manager: no host ***'),
        ('novasched', logging.ERROR, 'novasched: no host ***'),
        # Decisions are no library's words.
        ('nova.filters', logging.INFO, f'nova.filters: no host {WORD}'),
        ('nova.scheduler.x', logging.DEBUG, f'nova.scheduler.x: no host {WORD}'),
    ],
)
def test_lines(said: io.StringIO, logger: str, level: int, line: str) -> None:
    """Lines hide secrets; those of decisions do from warnings on."""
    logging.getLogger(logger).handle(
        logging.LogRecord(logger, level, __file__, 1, 'no host %s', (WORD,), None)
    )
    assert said.getvalue() == f'{line}\n'


def test_a_traceback(said: io.StringIO) -> None:
    """Errors in hand hide theirs, for whatever handler reads the record too."""
    error = ValueError(WORD)
    record = logging.LogRecord(
        'nova.scheduler', logging.DEBUG, __file__, 1, 'x', (), (ValueError, error, None)
    )
    logging.getLogger('nova.scheduler').handle(record)
    assert said.getvalue() == 'nova.scheduler: x\nValueError: ***\n'
    assert record.exc_text == 'ValueError: ***'


def test_a_line_that_is_no_text() -> None:
    """Formatters for stores of logs make dicts."""

    class Structured(logging.Formatter):
        def format(self, record: logging.LogRecord) -> Any:
            return {'message': record.getMessage(), 'lines': [WORD], 'pid': 7}

    record = logging.LogRecord('amqp', logging.DEBUG, __file__, 1, WORD, (), None)
    assert Hiding(Structured()).format(record) == {'message': '***', 'lines': ['***'], 'pid': 7}


def test_a_thread_that_ends(said: io.StringIO) -> None:
    """It ends in the log instead of on the standard error."""

    def fail() -> None:
        raise ValueError(WORD)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert said.getvalue().startswith('novasched: A thread ends\nTraceback')
    assert said.getvalue().endswith('ValueError: ***\n')


def test_once(said: io.StringIO) -> None:
    """Done twice it is as if done once."""
    before = logging.root.handlers[0].formatter
    hide_secrets()
    assert logging.root.handlers[0].formatter is before
    assert isinstance(before, Hiding)
