# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of the report. Checks of databases, Placement and RabbitMQ
run at once, each with the timeout of the operator."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import Secrets
from novasched.observe.web import wiring
from novasched.plugins import loading as plugins
from novasched.plugins.loading import is_foreign
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.plugins.rehearsal import rehearse
from novasched.rpc.server import TRANSPORT_OPTION
from novasched.scheduler.filters import Filter
from novasched.scheduler.weighers import Weigher
from novasched.tools import USAGE_ERROR
from novasched.tools.check import differences, options, other_files, services, start
from novasched.tools.check.aggregates import check_aggregates
from novasched.tools.check.findings import (
    Finding,
    Level,
    Question,
    answers,
    as_json,
    as_table,
    is_fit,
)
from novasched.tools.check.metadata import METADATA, check_metadata
from novasched.tools.check.options import NovaConf


def check_plugins(nova_conf: NovaConf) -> Iterator[Finding]:
    """Load all plugins like the daemon, one at a time."""
    settings = nova_conf.settings
    prepare = partial(share_options, nova_conf.conf)

    def load(subject: str, loader: Callable[..., Any], **values: Any) -> Finding:
        warning = None
        try:
            loaded = loader(replace(settings, **values), prepare)
            if isinstance(loaded, list):
                warning = _rehearsed(loaded)
        except NovaschedError as error:
            return Finding(Level.ERROR, subject, str(error))
        except SystemExit as error:
            text = f'it ends the process with sys.exit({error.code!r})'
            return Finding(Level.ERROR, subject, text)
        if warning:
            return Finding(Level.WARNING, subject, warning)
        return Finding(Level.OK, subject, 'loads')

    usable: list[str] = []
    for path in settings.available_filters:
        finding = load(
            f'available filter {path}',
            plugins.filters,
            available_filters=(path,),
            enabled_filters=(),
        )
        if finding.level is Level.OK:
            usable.append(path)
        else:
            yield finding

    for name in settings.enabled_filters:
        yield load(
            f'filter {name}',
            plugins.filters,
            available_filters=tuple(usable),
            enabled_filters=(name,),
        )
    for path in settings.weight_classes:
        yield load(f'weigher {path}', plugins.weighers, weight_classes=(path,))
    yield load(f'driver {settings.driver}', plugins.driver)
    if url := nova_conf.service.tracing_endpoint:
        yield load('libraries for traces', lambda *_: wiring.traces(url, '', ''))


def _rehearsed(loaded: Sequence[Filter | Weigher]) -> str:
    """Ask plugins of other packages about a made-up host, like the daemon. Return the
    warnings."""
    warnings = []
    for plugin in loaded:
        if is_foreign(plugin):
            warnings.append(rehearse(plugin))
    return '; '.join(filter(None, warnings))


def check_page(nova_conf: NovaConf) -> Iterator[Finding]:
    """Load the page like the daemon; no finding if the page is disabled."""
    try:
        page = wiring.page_factory(
            nova_conf.conf, nova_conf.settings, nova_conf.service
        )
    except ConfigError as error:
        yield Finding(Level.ERROR, wiring.PAGE_OPTION, str(error))
        return
    if page is not None:
        yield Finding(Level.OK, wiring.PAGE_OPTION, 'can be shown')


CHECKS_OF_SERVICES = (
    # A plugin written for nova may import all of nova. Cells, brokers and aggregates
    # are several servers or queries.
    ('plugins', 'plugins', check_plugins, 6),
    (
        'databases',
        '[database] connection',
        partial(services.check_database, 'database'),
        1,
    ),
    (
        'databases',
        '[api_database] connection',
        partial(services.check_database, 'api_database'),
        1,
    ),
    ('databases', 'cells', services.check_cells, 2),
    ('Placement', '[placement]', services.check_placement, 1),
    ('aggregates', 'members', check_aggregates, 6),
    ('aggregates', METADATA, check_metadata, 2),
    ('RabbitMQ', TRANSPORT_OPTION, services.check_broker, 2),
    # Twice the timeout, after which the check itself has a warning.
    ('RabbitMQ', services.NOTIFICATIONS_OPTION, services.check_notifications, 2),
)
"""Area, subject, check, and its patience (:class:`.findings.Question`)."""


def run(arguments: argparse.Namespace) -> int:
    """Run all checks, print the report, and return the exit status."""
    try:
        findings = _findings(arguments)
    except options.NoFile as error:
        print(f'novaschedctl check: {error}', file=sys.stderr)
        return USAGE_ERROR

    print(as_json(findings) if arguments.format == 'json' else as_table(findings))
    if is_fit(findings):
        return 0
    return 1


def _findings(arguments: argparse.Namespace) -> list[Finding]:
    """The findings of all checks, without secrets.

    :raises NoFile: there is no nova.conf, or a named file does not exist.
    """
    # Libraries log the errors that are reported here, sometimes with secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    # A plugin that prints while it loads must not spoil the report.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            files = options.files_read(arguments.config_file, arguments.config_dir)
            conf, written = options.load(arguments.config_file, arguments.config_dir)
        except options.UnreadableFile as error:
            return [Finding(Level.ERROR, 'nova.conf', str(error), area='files')]

        known = options.known_options(written)
        findings: list[Finding] = []

        def add(area: str, found: Iterable[Finding]) -> None:
            findings.extend(replace(finding, area=area) for finding in found)

        add('files', other_files.check_nova_scheduler_files(files, written, known))
        add('options', options.check_names(written, known))
        # First of the checks that read values, since it replaces invalid values.
        add('values', options.check_values(conf, written, known))

        settings = loading.settings(conf)
        service = loading.service_settings(conf)
        nova_conf = NovaConf(conf, settings, service, arguments.timeout)
        add('values', differences.check_together(settings, written))
        add('differences', differences.check_differences(nova_conf))
        add('differences', differences.check_others_options(written, service))
        # Before the questions, which have threads.
        add('start', start.check_process(conf, arguments.timeout))
        add('start', start.check_parts(nova_conf))
        add('start', start.check_addresses(nova_conf))
        add('page', check_page(nova_conf))
        paths = arguments.placement_config
        add('placement.conf', other_files.check_placement_conf(paths, settings))

        questions = []
        for area, subject, check, patience in CHECKS_OF_SERVICES:
            ask = partial(check, nova_conf)
            questions.append(Question(subject, ask, patience, area))
        findings += answers(questions, arguments.timeout)

    secrets = Secrets(loading.secret_values(written))
    redacted = []
    for finding in findings:
        subject = secrets.redact(finding.subject)
        text = secrets.redact(finding.text)
        redacted.append(replace(finding, subject=subject, text=text))
    return redacted
