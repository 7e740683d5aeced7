# SPDX-License-Identifier: Apache-2.0
"""The process's log, in which libraries tell of hosts and URLs as they understood them."""

from __future__ import annotations

import logging
import threading
from typing import Any

from novasched.secrets import hide

DECISIONS = ('nova.filters', 'nova.scheduler', 'nova.weights')
"""Our own loggers that tell what was decided, and those below them."""

LOG = logging.getLogger('novasched')


class Hiding(logging.Formatter):
    """Another formatter's lines, without the secrets that the process knows.

    Decisions are left as they are: they hold no library's words, are many, and are looked
    for word by word, even where a password is a word such as ``guest``.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> Any:
        """See :class:`logging.Formatter`."""
        line: Any = self.inner.format(record)
        if record.exc_text:
            # Kept in the record for other handlers; the journal's takes it as it is.
            record.exc_text = hide(record.exc_text)
        decision = f'{record.name}.'.startswith(tuple(f'{each}.' for each in DECISIONS))
        if decision and record.levelno < logging.WARNING and not record.exc_info:
            return line
        return _hidden(line)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 (logging's name)
        """See :class:`logging.Formatter`."""
        return hide(self.inner.formatException(ei))


def hide_secrets() -> None:
    """Let no handler that there is by now write a secret, nor a thread that an error ends."""
    every = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    for handler in {each for logger in (logging.root, *every) for each in logger.handlers}:
        if not isinstance(handler.formatter, Hiding):
            handler.setFormatter(Hiding(handler.formatter or logging.Formatter()))
    threading.excepthook = _tell


def _hidden(line: Any) -> Any:
    """A line; some formatters make a dict of it, for those who store logs."""
    if isinstance(line, dict):
        return {name: _hidden(value) for name, value in line.items()}
    if isinstance(line, list | tuple):
        return [_hidden(value) for value in line]
    return hide(line) if isinstance(line, str) else line


def _tell(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is not SystemExit:
        error = failed.exc_value or failed.exc_type()
        LOG.critical('A thread ends', exc_info=(failed.exc_type, error, failed.exc_traceback))
