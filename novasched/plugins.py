# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers, prefilters and drivers by name: entry points, found by stevedore."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import stevedore
from stevedore import extension

from novasched.errors import BadPlugin, ConfigError
from novasched.filters import Filter
from novasched.model.settings import ALL_FILTERS, ALL_WEIGHERS, Settings
from novasched.weighers import Weigher

LOG = logging.getLogger(__name__)
FILTERS, WEIGHERS, DRIVERS = 'novasched.filters', 'novasched.weighers', 'novasched.drivers'
GONE = {
    'TrustedFilter': 'it needs an attestation server that no longer exists; remove it',
}


def filters(settings: Settings) -> list[Filter]:
    """The enabled filters, in the order in which the operator lists them.

    :raises ConfigError: there is no filter of such a name.
    :raises BadPlugin: one does not load.
    """
    option = '[filter_scheduler] enabled_filters'
    paths = settings.available_filters
    available = _available('available_filters', paths, ALL_FILTERS, FILTERS)
    return [_find(available, name, option)(settings) for name in settings.enabled_filters]


def weighers(settings: Settings) -> list[Weigher]:
    """The weighers of ``[filter_scheduler] weight_classes``.

    :raises ConfigError: there is no weigher of such a name.
    :raises BadPlugin: one does not load.
    """
    paths = settings.weight_classes
    available = _available('weight_classes', paths, ALL_WEIGHERS, WEIGHERS)
    return [found(settings) for found in available.values()]


def driver(settings: Settings) -> Any:
    """The class that ``[scheduler] driver`` names.

    :raises ConfigError: there is no driver of that name.
    :raises BadPlugin: it does not load.
    """
    return _find(_entry_points(DRIVERS), settings.driver, '[scheduler] driver')


def _find(available: dict[str, Any], name: str, option: str) -> Any:
    if name not in available:
        why = GONE.get(name, f'not found; there are {", ".join(sorted(available))}')
        raise ConfigError(option, name, why)
    return available[name]


def _available(
    option: str, paths: Sequence[str], everything: str, namespace: str
) -> dict[str, Any]:
    """The classes that an option gives, by name: all entry points, or by import path.

    nova's own path of a built-in class (``nova.scheduler.weights.ram.RAMWeigher``)
    means ours of that name.
    """
    built_in = _entry_points(namespace)
    found: dict[str, Any] = {}
    for path in paths:
        name = path.rpartition('.')[2]
        if path == everything:
            found.update(built_in)
        elif path.startswith('nova.scheduler.') and name in built_in:
            found[name] = built_in[name]
        else:
            raise ConfigError(f'[filter_scheduler] {option}', path, 'not a built-in class')
    return found


def _entry_points(namespace: str) -> dict[str, Any]:
    manager: extension.ExtensionManager[Any] = stevedore.ExtensionManager(
        namespace, on_load_failure_callback=_failed
    )
    return {each.name: each.plugin for each in manager}


def _failed(manager: Any, entry_point: Any, error: BaseException) -> None:
    raise BadPlugin(f'{entry_point.group} {entry_point.name} does not load: {error}') from error
