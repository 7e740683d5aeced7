# SPDX-License-Identifier: Apache-2.0
"""Logging without secrets.

Errors of libraries quote hosts and URLs as parsed by the library, and a wrong parse may
contain parts of a password.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
import sys
import threading
import traceback
from typing import Any

from oslo_config import cfg
from oslo_log import log as oslo_log

from novasched.conf.errors import ConfigError, NovaschedError, safe_text
from novasched.conf.redaction import hide, printable, printable_lines, redact

OUR_LOGGERS = ('nova', 'novasched')
"""Loggers of novasched, with the loggers below. The messages are texts of novasched;
the arguments may be errors of libraries."""
UNCHANGED_ATTRIBUTES = ('msg', 'args', 'exc_info')
"""Attributes of a log record that other handlers get unchanged."""
PRODUCT = 'nova'
"""Name that oslo.log gets, as in the services of nova."""
JOURNAL_MODULE = 'systemd'
"""Python module with the bindings of systemd, which oslo.log imports."""
LOG = logging.getLogger('novasched')


def set_up(conf: cfg.ConfigOpts) -> None:
    """Set up logging by the options of oslo.log, without secrets.

    :raises ConfigError: the value of an option cannot be used.
    """
    try:
        oslo_log.setup(conf, PRODUCT)
    except cfg.Error:
        raise
    except Exception as error:
        refusal = _refusal(conf, error)
        if refusal is None:
            raise
        raise refusal from None
    hide_secrets()


def _refusal(conf: cfg.ConfigOpts, error: Exception) -> ConfigError | None:
    """Return the error about the option that oslo.log cannot use; None for a bug.

    oslo.log checks its options only when logging is set up, with a different error for
    each option.
    """
    # logging evaluates expressions of this file, which may raise any error.
    if conf.log_config_append:
        why = f'{type(error).__name__}: {hide(error)}'
        if isinstance(error, oslo_log.LogConfigError):
            why = hide(error.err_msg)
        return ConfigError('[DEFAULT] log_config_append', conf.log_config_append, why)

    if isinstance(error, OSError):
        why = error.strerror or str(error)
        if conf.log_dir and not os.path.lexists(error.filename or ''):
            return ConfigError('[DEFAULT] log_dir', conf.log_dir, why)
        return ConfigError('[DEFAULT] log_file', error.filename, why)

    if isinstance(error, RuntimeError) and conf.use_journal:
        why = hide(error)
        if importlib.util.find_spec(JOURNAL_MODULE) is None:
            why = (
                f'the module {JOURNAL_MODULE} is missing; '
                'pip install novasched[journal]'
            )
        return ConfigError('[DEFAULT] use_journal', True, why)

    if isinstance(error, TypeError):
        facility = conf.syslog_log_facility
        return ConfigError('[DEFAULT] syslog_log_facility', facility, hide(error))
    if isinstance(error, ValueError):
        levels = ','.join(conf.default_log_levels)
        return ConfigError('[DEFAULT] default_log_levels', levels, hide(error))
    return None


class Hiding(logging.Formatter):
    """A formatter that hides known secrets in the lines of another formatter.

    A password may be a common word, so names of loggers, levels and messages of
    novasched stay unchanged. Known secrets are removed from messages and errors of
    libraries before the line is formatted. From the formatted line, only unmistakable
    secrets are removed (:func:`~novasched.conf.redaction.redact`).

    Unprintable characters in messages and arguments become escapes, since users may
    send such characters. The format itself is not changed: the operator may use
    colours.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> Any:
        safe_record = without_secrets(record)
        line = self.inner.format(safe_record)

        # Handlers also read attributes of the record: the handler for the journal takes
        # exc_text, which the formatter has set.
        attributes = dict(safe_record.__dict__)
        for name in UNCHANGED_ATTRIBUTES:
            attributes[name] = getattr(record, name)
        record.__dict__.update(attributes)
        return _redacted(line, _current_error_line(record))

    # The name is the name in logging.
    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        return redact(self.inner.formatException(_error_without_secrets(ei)))


def without_secrets(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy of the record without known secrets in texts of libraries."""
    safe_record = copy.copy(record)
    is_ours = record.name.partition('.')[0] in OUR_LOGGERS
    if is_ours or _is_option(record):
        safe_record.msg = _message(record.msg)
        if isinstance(record.args, tuple):
            safe_record.args = tuple(map(_argument, record.args))
    else:
        safe_record.msg = printable_lines(hide(record.getMessage()))
        safe_record.args = ()

    if record.exc_info and record.exc_info[0]:
        safe_record.exc_info = _error_without_secrets(record.exc_info)
        safe_record.exc_text = None
    return safe_record


def hide_secrets() -> None:
    """Hide secrets in all existing handlers, and in errors that end a thread."""
    loggers: list[logging.Logger] = [logging.root]
    loggers += [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    for logger in loggers:
        for handler in logger.handlers:
            if not isinstance(handler.formatter, Hiding):
                handler.setFormatter(Hiding(handler.formatter or logging.Formatter()))
    threading.excepthook = _log_thread_error


def _is_option(record: logging.LogRecord) -> bool:
    """Return True for the value of an option, which oslo.config logs.

    The value of an option stays unchanged, even if the value equals a secret:
    oslo.config masks secret options. ``log_opt_values`` takes any logger.
    """
    return (record.module, record.funcName) == ('cfg', 'log_opt_values')


def _message(value: Any) -> Any:
    """Return a message of novasched or of a plugin, with printable characters only."""
    if isinstance(value, str):
        return _printable_lines(value)
    return _argument(value)


def _argument(value: Any) -> Any:
    """Return an argument of a message; texts of errors are made safe."""
    if isinstance(value, BaseException):
        value = safe_text(value)
    if not isinstance(value, str) or value.isprintable():
        return value
    return printable(redact(value))


def _printable_lines(text: str) -> str:
    """Return a text of several lines, with escapes for unprintable characters."""
    if text.isprintable():
        return text
    # Secrets first: an escape or a cut in a secret would hide the secret from redact().
    return printable_lines(redact(text))


def _error_without_secrets(exc_info: logging._SysExcInfoType) -> Any:
    """Return exc_info of an error that prints the same, without secrets."""
    _, error, trace = exc_info
    if error is None:
        return exc_info
    safe_error = _safe_error(error, {})
    return type(safe_error), safe_error, trace


def _safe_error(
    error: BaseException, safe_errors: dict[int, BaseException]
) -> BaseException:
    """Return an error that prints the same, without secrets.

    Causes and contexts of the error are replaced, too. ``safe_errors`` has the errors
    that were already made, by the id of the original, since errors may form a cycle.
    """
    if id(error) in safe_errors:
        return safe_errors[id(error)]

    kind = type(error)
    namespace = {'__module__': kind.__module__, '__qualname__': kind.__qualname__}
    safe_kind = type(kind.__name__, (Exception,), namespace)
    safe_error: BaseException = safe_kind(_printable_lines(safe_text(error)))
    safe_errors[id(error)] = safe_error

    if error.__cause__:
        safe_error.__cause__ = _safe_error(error.__cause__, safe_errors)
    if error.__context__:
        safe_error.__context__ = _safe_error(error.__context__, safe_errors)
    safe_error.__suppress_context__ = error.__suppress_context__
    for note in getattr(error, '__notes__', ()):
        text = printable_lines(hide(note))
        safe_error.add_note(text)
    return safe_error.with_traceback(error.__traceback__)


def _current_error_line(record: logging.LogRecord) -> str:
    """Return the first line of the error being handled, empty without an error.

    oslo.log adds this line to all records that are logged meanwhile.
    """
    error = sys.exc_info()[1]
    if error is None or record.exc_info or isinstance(error, NovaschedError):
        return ''
    text = traceback.format_exception_only(type(error), error)[0]
    return text.partition('\n')[0].rstrip()


def _redacted(line: Any, library_text: str) -> Any:
    """Redact a formatted line; JSON formatters return a dict instead of a text."""
    if isinstance(line, dict):
        return {name: _redacted(value, library_text) for name, value in line.items()}
    if isinstance(line, list | tuple):
        return [_redacted(value, library_text) for value in line]
    if not isinstance(line, str):
        return line

    if library_text and library_text in line:
        line = line.replace(library_text, hide(library_text))
    return redact(line)


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    error = args.exc_value or args.exc_type()
    exc_info = (args.exc_type, error, args.exc_traceback)
    LOG.critical('Unhandled error in a thread', exc_info=exc_info)
