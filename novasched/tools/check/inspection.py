# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of the report. Each reads a ``NovaConf`` and yields findings; those
that ask other services run at once, and are not waited for longer than the operator says."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

# First: it chooses the threads with which the libraries below are imported.
import novasched.concurrency  # noqa: F401
from novasched.conf import loading
from novasched.conf.loading import secret_values
from novasched.conf.redaction import Secrets
from novasched.tools.check import databases, options, plugins, services
from novasched.tools.check.findings import Finding, Level, Question, answers
from novasched.tools.check.nova_conf import NovaConf, UnreadableFile, known_options, load

CHECKS_OF_SERVICES = (
    # A plugin written for nova may import the whole of it; cells and brokers are several.
    ('plugins', 'plugins', plugins.check, 6),
    ('databases', '[database] connection', databases.check_own, 1),
    ('databases', '[api_database] connection', databases.check_api, 1),
    ('databases', 'cells', databases.check_cells, 2),
    ('Placement', '[placement]', services.check_placement, 1),
    ('RabbitMQ', services.TRANSPORT_OPTION, services.check_broker, 2),
)
"""Area and subject of each, and how many times as long as one server it may take."""


def findings(files: Sequence[str], folders: Sequence[str], timeout: float) -> list[Finding]:
    """Run all checks.

    :param timeout: seconds that each server may take to answer.
    :raises NoFile: there is nothing to read.
    """
    # Libraries log what is told here, and not always without its secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    # A plugin that prints while it loads must not spoil the report.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            conf, written = load(files, folders)
        except UnreadableFile as error:
            return [Finding(Level.ERROR, 'nova.conf', str(error), area='files')]
        known = known_options(written)
        found = [
            *_of('options', options.check_names(written, known)),
            *_of('values', options.check_values(conf, written, known)),
        ]
        nova_conf = NovaConf(conf, loading.settings(conf), loading.service_settings(conf), timeout)
        found += _of('values', options.check_together(nova_conf.settings, written))
        found += _of('differences', options.check_differences(nova_conf))
        found += _of('page', plugins.check_page(nova_conf))
        questions = [
            Question(subject, functools.partial(check, nova_conf), patience, area)
            for area, subject, check, patience in CHECKS_OF_SERVICES
        ]
        found += answers(questions, timeout)
    secrets = Secrets.of(secret_values(written))
    return [
        replace(each, subject=secrets.redact(each.subject), text=secrets.redact(each.text))
        for each in found
    ]


def _of(area: str, found: Iterable[Finding]) -> Iterator[Finding]:
    return (replace(each, area=area) for each in found)
