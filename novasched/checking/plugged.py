# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers, the driver, and the libraries of what is optional: each loads, or the finding
says why not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from novasched import plugins, tracing
from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.checking.questions import Question
from novasched.conf import tracing_endpoint
from novasched.conf.shared import share
from novasched.errors import NovaschedError
from novasched.model.settings import Settings

AREA = 'plugins'
PATIENCE = 6
"""A plugin written for nova may import the whole of it."""


def questions(nova_conf: NovaConf) -> list[Question]:
    """One for all plugins: they are loaded one after another, as the daemon does."""
    return [Question(AREA, 'plugins', functools.partial(_check, nova_conf), PATIENCE)]


def _check(nova_conf: NovaConf) -> Iterator[Finding]:
    settings, prepare = nova_conf.settings, functools.partial(share, nova_conf.conf)
    usable = []
    for path in settings.available_filters:
        alone = replace(settings, available_filters=(path,), enabled_filters=())
        problem = _problem(plugins.filters, alone, prepare)
        if problem is None:
            usable.append(path)
        else:
            yield Finding(AREA, Level.ERROR, f'available filter {path}', problem)
    for name in settings.enabled_filters:
        alone = replace(settings, available_filters=tuple(usable), enabled_filters=(name,))
        yield _finding(f'filter {name}', _problem(plugins.filters, alone, prepare))
    for path in settings.weight_classes:
        alone = replace(settings, weight_classes=(path,))
        yield _finding(f'weigher {path}', _problem(plugins.weighers, alone, prepare))
    yield _finding(f'driver {settings.driver}', _problem(plugins.driver, settings, prepare))
    if url := tracing_endpoint(nova_conf.conf):
        libraries = _problem(lambda *_: tracing.begin(url, '', ''), settings, prepare)
        yield _finding('libraries for traces', libraries)


def _problem(
    load: Callable[[Settings, plugins.Prepare], object],
    settings: Settings,
    prepare: plugins.Prepare,
) -> str | None:
    try:
        load(settings, prepare)
    except NovaschedError as error:
        return str(error)
    except SystemExit as error:
        return f'it ends the process with sys.exit({error.code!r})'
    return None


def _finding(subject: str, problem: str | None) -> Finding:
    if problem is None:
        return Finding(AREA, Level.OK, subject, 'loads')
    return Finding(AREA, Level.ERROR, subject, problem)
