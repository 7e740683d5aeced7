# SPDX-License-Identifier: Apache-2.0
"""What a logger is told meanwhile."""

import logging
from contextlib import contextmanager


@contextmanager
def logged(name, level):
    """The records of a logger from a level on, which are not printed."""
    found: list[logging.LogRecord] = []
    log = logging.getLogger(name)
    handler = logging.Handler(level)
    handler.emit = found.append
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


def rejections(records):
    """What nova.filters was told of rejected hosts: by which filter, which host, and
    why."""
    return [record.args for record in records if record.msg == '%s rejected %s: %s']
