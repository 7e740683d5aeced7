# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of the report."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

# First: it chooses the threads with which the libraries below are imported.
import novasched.processes  # noqa: F401
from novasched import conf as configuration
from novasched.checking import (
    broker,
    databases,
    differences,
    known,
    options,
    page,
    placement,
    plugged,
)
from novasched.checking import values as written_values
from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf, Unreadable, load
from novasched.checking.questions import Question, answers
from novasched.conf.written import secret_values
from novasched.secrets import Secrets

AREA = 'files'


def findings(files: Sequence[str], folders: Sequence[str], timeout: float) -> list[Finding]:
    """Everything that there is to say.

    :param timeout: seconds that each server may take to answer.
    :raises NoFile: there is nothing to read.
    """
    # Libraries log what is told here, and not always without its secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    # A plugin that prints while it loads must not spoil the report.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            conf, written = load(files, folders)
        except Unreadable as error:
            return [Finding(AREA, Level.ERROR, 'nova.conf', str(error))]
        known_options = known.options(written)
        found = [
            *options.check(written, known_options),
            *written_values.check(conf, written, known_options),
        ]
        nova_conf = NovaConf(conf, configuration.settings(conf), written, timeout)
        found += written_values.check_together(nova_conf.settings, written)
        found += differences.check(nova_conf)
        found += page.check(nova_conf)
        found += answers(_questions(nova_conf), timeout)
    secrets = Secrets.of(secret_values(written))
    return [
        replace(each, subject=secrets.hide(each.subject), text=secrets.hide(each.text))
        for each in found
    ]


def _questions(nova_conf: NovaConf) -> list[Question]:
    return [
        question
        for module in (plugged, databases, placement, broker)
        for question in module.questions(nova_conf)
    ]
