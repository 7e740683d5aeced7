# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of the report. Each reads a ``NovaConf`` and yields
findings; those that ask other services run at once, and are not waited for longer than
the operator says."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import Secrets
from novasched.observe.web import wiring
from novasched.plugins import loading as plugins
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.tools import USAGE_ERROR
from novasched.tools.check import differences, options, other_files, services
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
from novasched.tools.check.options import NovaConf


def check_plugins(nova_conf: NovaConf) -> Iterator[Finding]:
    """Load all plugins one after another, as the daemon does."""
    settings = nova_conf.settings
    prepare = partial(share_options, nova_conf.conf)

    def load(subject: str, loader: Callable[..., object], **values: Any) -> Finding:
        try:
            loader(replace(settings, **values), prepare)
        except NovaschedError as error:
            return Finding(Level.ERROR, subject, str(error))
        except SystemExit as error:
            text = f'it ends the process with sys.exit({error.code!r})'
            return Finding(Level.ERROR, subject, text)
        return Finding(Level.OK, subject, 'loads')

    usable = []
    for path in settings.available_filters:
        alone = {'available_filters': (path,), 'enabled_filters': ()}
        finding = load(f'available filter {path}', plugins.filters, **alone)
        if finding.level is Level.OK:
            usable.append(path)
        else:
            yield finding
    for name in settings.enabled_filters:
        alone = {'available_filters': tuple(usable), 'enabled_filters': (name,)}
        yield load(f'filter {name}', plugins.filters, **alone)
    for path in settings.weight_classes:
        yield load(f'weigher {path}', plugins.weighers, weight_classes=(path,))
    yield load(f'driver {settings.driver}', plugins.driver)
    if url := nova_conf.service.tracing_endpoint:
        yield load('libraries for traces', lambda *_: wiring.traces(url, '', ''))


def check_page(nova_conf: NovaConf) -> Iterator[Finding]:
    """Nothing where it is not wanted."""
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
    # A plugin written for nova may import the whole of it; cells, brokers and
    # aggregates are several.
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
    ('RabbitMQ', services.TRANSPORT_OPTION, services.check_broker, 2),
)
"""Area and subject of each, and how many times as long as one server it may take."""


def run(arguments: argparse.Namespace) -> int:
    """Run all checks and print the report; the exit status."""
    try:
        found = _findings(arguments)
    except options.NoFile as error:
        print(f'novaschedctl check: {error}', file=sys.stderr)
        return USAGE_ERROR
    print(as_json(found) if arguments.format == 'json' else as_table(found))
    if is_fit(found):
        return 0
    return 1


def _findings(arguments: argparse.Namespace) -> list[Finding]:
    # Libraries log what is told here, and not always without its secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    # A plugin that prints while it loads must not spoil the report.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            files = options.files_read(arguments.config_file, arguments.config_dir)
            conf, written = options.load(arguments.config_file, arguments.config_dir)
        except options.UnreadableFile as error:
            return [Finding(Level.ERROR, 'nova.conf', str(error), area='files')]
        known = options.known_options(written)
        found = _of(
            'files', other_files.check_nova_scheduler_files(files, written, known)
        )
        found += _of('options', options.check_names(written, known))
        found += _of('values', options.check_values(conf, written, known))
        nova_conf = NovaConf(
            conf,
            loading.settings(conf),
            loading.service_settings(conf),
            arguments.timeout,
        )
        found += _of('values', differences.check_together(nova_conf.settings, written))
        found += _of('differences', differences.check_differences(nova_conf))
        found += _of(
            'differences', differences.check_others_options(written, nova_conf.service)
        )
        found += _of('page', check_page(nova_conf))
        named = arguments.placement_config
        found += _of(
            'placement.conf',
            other_files.check_placement_conf(named, nova_conf.settings),
        )
        questions = [
            Question(subject, partial(check, nova_conf), patience, area)
            for area, subject, check, patience in CHECKS_OF_SERVICES
        ]
        found += answers(questions, arguments.timeout)
    secrets = Secrets(loading.secret_values(written))
    return [
        replace(
            each, subject=secrets.redact(each.subject), text=secrets.redact(each.text)
        )
        for each in found
    ]


def _of(area: str, found: Iterable[Finding]) -> list[Finding]:
    return [replace(each, area=area) for each in found]
