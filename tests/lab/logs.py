# SPDX-License-Identifier: Apache-2.0
"""The records of loggers during a test."""

import logging
from contextlib import contextmanager


@contextmanager
def logged(name, level):
    """The records of a logger from a level on. They are not printed."""
    records: list[logging.LogRecord] = []
    log = logging.getLogger(name)
    handler = logging.Handler(level)
    handler.emit = records.append
    level_before = log.level
    propagate_before = log.propagate
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
    try:
        yield records
    finally:
        log.removeHandler(handler)
        log.setLevel(level_before)
        log.propagate = propagate_before


def rejections(records):
    """The filter, the host and the reason of each rejection in nova.filters."""
    return [record.args for record in records if record.msg == '%s rejected %s: %s']
