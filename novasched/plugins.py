# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers and drivers by name: entry points, and import paths.

Entry points are found by stevedore, and loaded when an option names them. A path leads to
a class, or to a function that returns classes. A filter or weigher is one of ours, or
was written for nova.
"""

from __future__ import annotations

import inspect
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar

import stevedore

from novasched.compat import standins
from novasched.compat.adapters import NovaFilter, NovaWeigher
from novasched.compat.request_views import Guest
from novasched.drivers import Driver, Parts
from novasched.errors import ConfigError, NovaschedError
from novasched.filters import Filter
from novasched.model.settings import ALL_FILTERS, ALL_WEIGHERS, Settings
from novasched.weighers import Weigher

LOG = logging.getLogger(__name__)
DRIVERS = 'novasched.drivers'
GONE = {
    'TrustedFilter': 'it needs an attestation server that no longer exists; remove it',
    'fake_scheduler': "it was there for nova's own tests; remove it",
}

Prepare = Callable[[], None]
"""Called before anything that is not built in is imported."""
P = TypeVar('P', Filter, Weigher)


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """What tells filters from weighers: where they are, and how one is known."""

    noun: str
    namespace: str
    option: str
    everything: str
    contract: type[P]
    method: str
    adapter: Callable[[Settings, Guest], P]

    def check(self, found: Any, option: str, value: str) -> None:
        """See that something is a class of this kind: ours, or by the method nova calls.

        :raises ConfigError: it is not.
        """
        is_class = isinstance(found, type)
        if not (is_class and (issubclass(found, self.contract) or hasattr(found, self.method))):
            what = getattr(found, '__name__', found)
            why = f'{what} is no {self.noun}: no subclass of ours, and without {self.method}()'
            raise ConfigError(option, value, why)

    def make(self, found: type[Any], settings: Settings) -> P:
        """One of ours."""
        if issubclass(found, self.contract):
            return found(settings)
        return self.adapter(settings, Guest(found()))


FILTERS: Kind[Filter] = Kind(
    noun='filter',
    namespace='novasched.filters',
    option='[filter_scheduler] available_filters',
    everything=ALL_FILTERS,
    contract=Filter,
    method='filter_all',
    adapter=NovaFilter,
)
WEIGHERS: Kind[Weigher] = Kind(
    noun='weigher',
    namespace='novasched.weighers',
    option='[filter_scheduler] weight_classes',
    everything=ALL_WEIGHERS,
    contract=Weigher,
    method='weigh_objects',
    adapter=NovaWeigher,
)


def filters(settings: Settings, prepare: Prepare = standins.install) -> list[Filter]:
    """The enabled filters, in the order in which the operator lists them.

    :raises ConfigError: there is no filter of such a name, or it does not load.
    """
    option = '[filter_scheduler] enabled_filters'
    available: dict[str, Any] = {}
    for path in settings.available_filters:
        available.update(_offered(FILTERS, path, prepare))
    return [
        _made(FILTERS, _find(available, name, option), settings, option, name, prepare)
        for name in settings.enabled_filters
    ]


def weighers(settings: Settings, prepare: Prepare = standins.install) -> list[Weigher]:
    """The weighers of ``[filter_scheduler] weight_classes``.

    nova's word for all of them means all that are built in; what another package offers
    has to be named.

    :raises ConfigError: there is no weigher of such a name, or it does not load.
    """
    return [
        _made(WEIGHERS, found, settings, WEIGHERS.option, path, prepare)
        for path in settings.weight_classes
        for found in _offered(WEIGHERS, path, prepare).values()
        if path != ALL_WEIGHERS or _is_built_in(found)
    ]


def driver(settings: Settings, prepare: Prepare = standins.install) -> Callable[[Parts], Driver]:
    """What builds the driver that ``[scheduler] driver`` names, by entry point or path.

    :raises ConfigError: there is no driver of that name, or it does not load.
    """
    option, name = '[scheduler] driver', settings.driver
    available = _entry_points(DRIVERS)
    found: Any = name
    if name in available or '.' not in name:
        found = _find(available, name, option)
    found = _loaded(found, option, name, prepare)
    if not hasattr(found, 'select_destinations'):
        raise ConfigError(option, name, 'is no driver: it has no select_destinations()')

    def build(parts: Parts) -> Driver:
        with _reported(option, name):
            built: Driver = found(parts)
        return built

    return build


def _offered(kind: Kind[Any], path: str, prepare: Prepare) -> dict[str, Any]:
    """What one value of an option gives, by name: entry points, or classes.

    nova's own path of a built-in class (``nova.scheduler.weights.ram.RAMWeigher``) means
    ours of that name.
    """
    known = _entry_points(kind.namespace)
    if path == kind.everything:
        return dict(known)
    name = path.rpartition('.')[2] if path.startswith('nova.scheduler.') else path
    if name in known:
        return {name: known[name]}
    if name in GONE:
        raise ConfigError(kind.option, path, GONE[name])
    if '.' not in path:
        _find(known, path, kind.option)
    found = _loaded(path, kind.option, path, prepare)
    if not inspect.isfunction(found):
        kind.check(found, kind.option, path)
        return {found.__name__: found}
    with _reported(kind.option, path):
        several = list(found())
    for each in several:
        kind.check(each, kind.option, path)
    return {each.__name__: each for each in several}


def _entry_points(namespace: str) -> Mapping[str, EntryPoint]:
    """The entry points of a namespace; nobody can take a built-in name."""
    manager: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(namespace, [])
    found: dict[str, EntryPoint] = {}
    for each in sorted(manager.list_entry_points(), key=_is_built_in, reverse=True):
        first = found.setdefault(each.name, each)
        if first.value != each.value:
            LOG.warning('%s is passed over: %s is %s', each.value, each.name, first.value)
    return found


def _is_built_in(found: Any) -> bool:
    return isinstance(found, EntryPoint) and found.value.startswith('novasched.')


def _find(available: Mapping[str, Any], name: str, option: str) -> Any:
    if name not in available:
        why = GONE.get(name, f'not found; there are {", ".join(sorted(available))}')
        raise ConfigError(option, name, why)
    return available[name]


def _made(
    kind: Kind[P], found: Any, settings: Settings, option: str, value: str, prepare: Prepare
) -> P:
    """A filter or weigher from a class, or from the entry point that leads to one."""
    if isinstance(found, EntryPoint):
        found = _loaded(found, option, value, prepare)
        kind.check(found, option, value)
    with _reported(option, value):
        return kind.make(found, settings)


def _loaded(found: EntryPoint | str, option: str, value: str, prepare: Prepare) -> Any:
    """What an entry point or a path (``a.b.C``, ``a.b:C``) leads to."""
    if not _is_built_in(found):
        prepare()
    with _reported(option, value):
        if isinstance(found, EntryPoint):
            return found.load()
        # With the colon, an import that fails within the module is told from a wrong name.
        return pkgutil.resolve_name(found if ':' in found else ':'.join(found.rsplit('.', 1)))


@contextmanager
def _reported(option: str, value: str) -> Iterator[None]:
    """Turn whatever a plugin raises while it loads into one line for the operator."""
    try:
        yield
    except NovaschedError:
        raise
    except Exception as error:
        LOG.debug('%s = %s does not load', option, value, exc_info=True)
        why = ' '.join(f'{type(error).__name__}: {error}'.split())
        if isinstance(error, ImportError) and (error.name or '').split('.')[0] == 'nova':
            why += ' (nova itself is not installed)' if not standins.nova_is_installed() else ''
        raise ConfigError(option, value, why) from error
