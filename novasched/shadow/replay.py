# SPDX-License-Identifier: Apache-2.0
"""Run the recorded requests through a shadow, and report."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from oslo_config import cfg

# First: it chooses the threads with which the libraries below are imported.
import novasched.processes  # noqa: F401
from novasched import conf as configuration
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import ConfigError, NovaschedError
from novasched.service import Application, compose
from novasched.shadow.comparison import compare
from novasched.shadow.decision import Shadow
from novasched.shadow.recording import Unread, read
from novasched.shadow.report import Report, Row

PROG = 'novasched'


def run(arguments: argparse.Namespace, lines: Iterable[str]) -> Report:
    """Decide every request and compare.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    with shadowing(arguments) as (_, _, shadow):
        return decided(shadow, lines)


@contextmanager
def shadowing(
    arguments: argparse.Namespace,
) -> Iterator[tuple[cfg.ConfigOpts, Application, Shadow]]:
    """nova.conf, the scheduler that it describes, and a shadow of that.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    conf = configured(arguments.config_file, arguments.config_dir)
    with composed(conf) as (application, driver):
        yield conf, application, Shadow(driver, arguments.seed)


def configured(files: Iterable[str], folders: Iterable[str]) -> cfg.ConfigOpts:
    """nova.conf, as the daemon reads it.

    :raises ConfigError: it cannot be read.
    """
    args = [f'--config-file={path}' for path in files]
    args += [f'--config-dir={path}' for path in folders]
    return configuration.load(args, PROG)


@contextmanager
def composed(conf: cfg.ConfigOpts) -> Iterator[tuple[Application, FilterScheduler]]:
    """The scheduler that nova.conf describes, and its driver.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    application = compose(conf, configuration.settings(conf))
    try:
        if type(application.driver) is not FilterScheduler:
            why = 'only filter_scheduler can decide without claiming'
            raise ConfigError('[scheduler] driver', conf.scheduler.driver, why)
        yield application, application.driver
    finally:
        application.close()


def decided(shadow: Shadow, lines: Iterable[str]) -> Report:
    """The report of all lines, by a shadow that is there."""
    rows = []
    for each in read(lines):
        if isinstance(each, Unread):
            rows.append(Row(each.line, failure=each.why))
            continue
        try:
            decision = shadow.decide(each.request)
        except NovaschedError as error:
            rows.append(Row(each.line, failure=str(error)))
            continue
        known = each.hosts is not None
        difference = compare(each.hosts, decision) if each.hosts is not None else None
        rows.append(Row(each.line, decision.hosts, known, difference))
    return Report(rows)
