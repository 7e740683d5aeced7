# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers, the driver, and what is optional: each loads, or the finding says why not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.settings import Settings
from novasched.observe import tracing
from novasched.observe.web import wiring
from novasched.plugins import loading
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.nova_conf import NovaConf

Loader = Callable[[Settings, loading.Prepare], object]


def check(nova_conf: NovaConf) -> Iterator[Finding]:
    """Load all plugins one after another, as the daemon does."""
    settings, prepare = nova_conf.settings, functools.partial(share_options, nova_conf.conf)

    def load(subject: str, loader: Loader, **values: Any) -> Finding:
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
        finding = load(
            f'available filter {path}',
            loading.filters,
            available_filters=(path,),
            enabled_filters=(),
        )
        if finding.level is Level.OK:
            usable.append(path)
        else:
            yield finding
    for name in settings.enabled_filters:
        alone = {'available_filters': tuple(usable), 'enabled_filters': (name,)}
        yield load(f'filter {name}', loading.filters, **alone)
    for path in settings.weight_classes:
        yield load(f'weigher {path}', loading.weighers, weight_classes=(path,))
    yield load(f'driver {settings.driver}', loading.driver)
    if url := nova_conf.service.tracing_endpoint:
        yield load('libraries for traces', lambda *_: tracing.begin(url, '', ''))


def check_page(nova_conf: NovaConf) -> Iterator[Finding]:
    """Nothing where it is not wanted."""
    try:
        page = wiring.page_factory(nova_conf.conf, nova_conf.settings, nova_conf.service)
    except ConfigError as error:
        yield Finding(Level.ERROR, wiring.PAGE_OPTION, str(error))
        return
    if page is not None:
        yield Finding(Level.OK, wiring.PAGE_OPTION, 'can be shown')
