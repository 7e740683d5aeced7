# SPDX-License-Identifier: Apache-2.0
"""The pipeline with plugins that settings name."""

from random import Random

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import a_request


def pipeline(module='', filters=(), weighers=(), **options):
    """Filters by name and weighers by name or path, of a module or by their entry points."""
    available = {'available_filters': tuple(f'{module}.{name}' for name in filters)}
    settings = Settings(
        enabled_filters=tuple(filters),
        weight_classes=tuple(f'{module}.{x}' if module and '.' not in x else x for x in weighers),
        **(available if module else {}),
        **options,
    )
    return Pipeline(settings, loading.filters(settings), loading.weighers(settings))


def rank(line, hosts):
    """The names of the hosts, best first."""
    ranked = line.for_request().rank(hosts, a_request(), 0, Random(1)).hosts
    return [host.host for host in ranked]
