# SPDX-License-Identifier: Apache-2.0
"""The process's log, in which libraries tell of hosts and URLs as they understood
them."""

from __future__ import annotations

import copy
import logging
import sys
import threading
import traceback
from typing import Any

from novasched.conf.errors import NovaschedError, safe_text
from novasched.conf.redaction import hide, printable, printable_lines, redact

OUR_LOGGERS = ('nova', 'novasched')
"""Ours and those below them: what they say is text of our own, but for errors of
others."""
FROM_RECORD = ('msg', 'args', 'exc_info')
"""Attributes of a record that keep their values when a formatter has changed the
others."""
LOG = logging.getLogger('novasched')


class Hiding(logging.Formatter):
    """Another formatter's lines, without the secrets that the process knows.

    Names of loggers, levels and our own sentences stay as they are, whatever a password
    is: known secrets are taken out of the messages and errors of libraries before the
    line is made, and out of the line only what can be nothing but a secret. Unprintable
    characters, which users may send, become escapes in messages and arguments. The
    format stays as it is: the operator may want colours.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> Any:
        original = record
        record = without_secrets(record)
        line = self.inner.format(record)
        # Handlers read more of the record than this line; the journal's takes exc_text.
        kept = {name: getattr(original, name) for name in FROM_RECORD}
        original.__dict__.update({**record.__dict__, **kept})
        return _redacted(line, _error_in_hand(original))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 (logging's name)
        return redact(self.inner.formatException(_error_without_secrets(ei)))


def without_secrets(record: logging.LogRecord) -> logging.LogRecord:
    """A record whose texts of libraries show no secret that the process knows."""
    hidden = copy.copy(record)
    if record.name.partition('.')[0] not in OUR_LOGGERS and not _is_option(record):
        hidden.msg = printable_lines(hide(record.getMessage()))
        hidden.args = ()
    else:
        hidden.msg = _message(record.msg)
        if isinstance(record.args, tuple):
            hidden.args = tuple(map(_argument, record.args))
    if record.exc_info and record.exc_info[0]:
        hidden.exc_info = _error_without_secrets(record.exc_info)
        hidden.exc_text = None
    return hidden


def hide_secrets() -> None:
    """Let no handler that there is by now write a secret, nor a thread that an error
    ends."""
    every = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    for handler in {
        each for logger in (logging.root, *every) for each in logger.handlers
    }:
        if not isinstance(handler.formatter, Hiding):
            handler.setFormatter(Hiding(handler.formatter or logging.Formatter()))
    threading.excepthook = _tell


def _is_option(record: logging.LogRecord) -> bool:
    """True for an option's value, which oslo.config logs by whatever logger it is
    given: the value of an option that is no secret is none, even if the two are
    alike."""
    return (record.module, record.funcName) == ('cfg', 'log_opt_values')


def _message(value: Any) -> Any:
    """A sentence of our own, or of a plugin, which may have several lines."""
    if isinstance(value, str):
        return _printable_lines(value)
    return _argument(value)


def _argument(value: Any) -> Any:
    """An argument of a sentence of our own. Errors of libraries quote anything."""
    if isinstance(value, BaseException):
        value = safe_text(value)
    if not isinstance(value, str) or value.isprintable():
        return value
    return printable(redact(value))


def _printable_lines(text: str) -> str:
    """A text of several lines without known secrets, in which escapes stand for
    characters that print nothing. A secret behind an escape, or cut, would not be found
    in the line."""
    if text.isprintable():
        return text
    return printable_lines(redact(text))


def _error_without_secrets(found: logging._SysExcInfoType) -> Any:
    """The error of a record, which prints as before but for the secrets in its text."""
    _, error, trace = found
    if error is None:
        return found
    shown = _shown(error, {})
    return type(shown), shown, trace


def _shown(error: BaseException, seen: dict[int, BaseException]) -> BaseException:
    """An error to be printed in place of another, and so for those that it came
    from."""
    if id(error) in seen:
        return seen[id(error)]
    kind = type(error)
    names = {'__module__': kind.__module__, '__qualname__': kind.__qualname__}
    shown: BaseException = type(kind.__name__, (Exception,), names)(
        _printable_lines(safe_text(error))
    )
    seen[id(error)] = shown
    cause = error.__cause__
    context = error.__context__
    shown.__cause__ = _shown(cause, seen) if cause else None
    shown.__context__ = _shown(context, seen) if context else None
    shown.__suppress_context__ = error.__suppress_context__
    for note in getattr(error, '__notes__', ()):
        text = printable_lines(hide(note))
        shown.add_note(text)  # type: ignore[attr-defined]  # there since Python 3.11
    return shown.with_traceback(error.__traceback__)


def _error_in_hand(record: logging.LogRecord) -> str:
    """The error that is handled while something else is logged: oslo.log adds its first
    line."""
    error = sys.exc_info()[1]
    if error is None or record.exc_info or isinstance(error, NovaschedError):
        return ''
    return (
        traceback.format_exception_only(type(error), error)[0]
        .partition('\n')[0]
        .rstrip()
    )


def _redacted(line: Any, library_text: str) -> Any:
    """A line; some formatters make a dict of it, for those who store logs."""
    if isinstance(line, dict):
        return {name: _redacted(value, library_text) for name, value in line.items()}
    if isinstance(line, list | tuple):
        return [_redacted(value, library_text) for value in line]
    if not isinstance(line, str):
        return line
    if library_text and library_text in line:
        line = line.replace(library_text, hide(library_text))
    return redact(line)


def _tell(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is not SystemExit:
        error = failed.exc_value or failed.exc_type()
        LOG.critical(
            'A thread ends', exc_info=(failed.exc_type, error, failed.exc_traceback)
        )
