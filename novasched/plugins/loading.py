# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers and drivers by name: entry points, and import paths.

Entry points are found by stevedore, and loaded when an option names them. A path leads
to a class, or to a function that returns classes. A filter or weigher is one of ours,
or was written for nova.
"""

import inspect
import logging
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar

import stevedore

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import hide
from novasched.conf.settings import ALL_FILTERS, ALL_WEIGHERS, Settings
from novasched.plugins.nova_compat import import_stubs
from novasched.plugins.nova_compat.adapters import NovaFilter, NovaWeigher
from novasched.scheduler.drivers import Driver, Parts
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter
from novasched.scheduler.plugin import name_of
from novasched.scheduler.weighers import Weigher

LOG = logging.getLogger(__name__)
GONE = {
    'TrustedFilter': 'it needs an attestation server that no longer exists; remove it',
    'fake_scheduler': "it was there for nova's own tests; remove it",
}

PLUGIN_PATIENCE_S = 30.0
"""Seconds for which one call of a plugin may keep other requests from it. Whoever needs
a plugin that has not answered for longer is refused at once."""

Prepare = Callable[[], None]
"""Called before anything that is not built in is imported."""
P = TypeVar('P', Filter, Weigher)


@dataclass(eq=False)
class OneAtATime:
    """A lock on a plugin that is not known to be thread-safe. One that hangs refuses
    requests instead of taking every thread of the daemon.

    :param patience: seconds that one call may take while others wait.
    """

    name: str
    patience: float = PLUGIN_PATIENCE_S
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._began = self.clock()

    def __enter__(self) -> None:
        """:raises BadPlugin: it has been busy with another request for too long."""
        while not self._lock.acquire(timeout=max(0.0, self._left())):
            if self._left() <= 0:  # and no other call has begun meanwhile
                raise BadPlugin(
                    f'{self.name} has not answered another request for'
                    f' {self.patience:g} s'
                )
        self._began = self.clock()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _left(self) -> float:
        return self._began + self.patience - self.clock()


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """Filters or weighers: where they are found, and how a class of them is
    recognised."""

    noun: str
    namespace: str
    option: str
    everything: str
    contract: type[P]
    method: str
    adapter: Callable[[Settings, Any], P]

    def check(self, found: Any, option: str, value: str) -> None:
        """See that something is a class of this kind: ours, or by the method nova
        calls.

        :raises ConfigError: it is not.
        """
        is_class = isinstance(found, type)
        if not (
            is_class
            and (issubclass(found, self.contract) or hasattr(found, self.method))
        ):
            what = getattr(found, '__name__', found)
            why = (
                f'{what} is no {self.noun}: no subclass of ours, and without'
                f' {self.method}()'
            )
            raise ConfigError(option, value, why)

    def make(self, found: type[Any], settings: Settings) -> P:
        """Make a filter or weigher of ours. A class of another package that does not
        say that it is ``thread_safe`` is asked by one request at a time."""
        ours = issubclass(found, self.contract)
        made: P = found(settings) if ours else self.adapter(settings, found())
        if not (_is_built_in(found) or getattr(found, 'thread_safe', False)):
            made.asking_lock = OneAtATime(name_of(made))
        return made


FILTERS: Kind[Filter] = Kind(
    'filter',
    'novasched.filters',
    '[filter_scheduler] available_filters',
    ALL_FILTERS,
    contract=Filter,
    method='filter_all',
    adapter=NovaFilter,
)
WEIGHERS: Kind[Weigher] = Kind(
    'weigher',
    'novasched.weighers',
    '[filter_scheduler] weight_classes',
    ALL_WEIGHERS,
    contract=Weigher,
    method='weigh_objects',
    adapter=NovaWeigher,
)


def filters(
    settings: Settings, prepare: Prepare = import_stubs.install
) -> list[Filter]:
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


def weighers(
    settings: Settings, prepare: Prepare = import_stubs.install
) -> list[Weigher]:
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


def driver(
    settings: Settings, prepare: Prepare = import_stubs.install
) -> Callable[[Parts], Driver]:
    """The constructor of the driver that ``[scheduler] driver`` names, by entry point
    or path.

    :raises ConfigError: there is no driver of that name, or it does not load.
    """
    option = '[scheduler] driver'
    name = settings.driver
    available = _entry_points('novasched.drivers')
    is_path = name not in available and '.' in name
    found = name if is_path else _find(available, name, option)
    found = _loaded(found, option, name, prepare)
    if not hasattr(found, 'select_destinations'):
        raise ConfigError(option, name, 'is no driver: it has no select_destinations()')
    return _reported(option, name)(lambda parts: found(parts))


def _offered(kind: Kind[Any], path: str, prepare: Prepare) -> dict[str, Any]:
    """Entry points or classes that one value of an option gives, by name.

    nova's own path of a built-in class (``nova.scheduler.weights.ram.RAMWeigher``)
    means ours of that name.
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
    with _reported(kind.option, path):
        several = list(found()) if inspect.isfunction(found) else [found]
    for each in several:
        kind.check(each, kind.option, path)
    return {each.__name__: each for each in several}


def _entry_points(namespace: str) -> Mapping[str, EntryPoint]:
    """The entry points of a namespace; nobody can take a built-in name."""
    manager: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(
        namespace, []
    )
    found: dict[str, EntryPoint] = {}
    for each in sorted(manager.list_entry_points(), key=_is_built_in, reverse=True):
        first = found.setdefault(each.name, each)
        if first.value != each.value:
            LOG.warning(
                '%s is passed over: %s is %s', each.value, each.name, first.value
            )
    return found


def _is_built_in(found: EntryPoint | type[Any] | str) -> bool:
    if isinstance(found, EntryPoint):
        module = found.value
    else:
        module = getattr(found, '__module__', '')
    return module.startswith('novasched.')


def _find(available: Mapping[str, Any], name: str, option: str) -> Any:
    if name not in available:
        why = GONE.get(name, f'not found; there are {", ".join(sorted(available))}')
        raise ConfigError(option, name, why)
    return available[name]


def _made(
    kind: Kind[P],
    found: Any,
    settings: Settings,
    option: str,
    value: str,
    prepare: Prepare,
) -> P:
    """A filter or weigher from a class, or from the entry point that leads to one."""
    if isinstance(found, EntryPoint):
        found = _loaded(found, option, value, prepare)
        kind.check(found, option, value)
    with _reported(option, value):
        return kind.make(found, settings)


def _loaded(found: EntryPoint | str, option: str, value: str, prepare: Prepare) -> Any:
    """The object that an entry point or a path (``a.b.C``, ``a.b:C``) leads to."""
    if not _is_built_in(found):
        prepare()
    with _reported(option, value):
        if isinstance(found, EntryPoint):
            return found.load()
        # With the colon, an import that fails within the module is told from a wrong
        # name.
        return pkgutil.resolve_name(
            found if ':' in found else ':'.join(found.rsplit('.', 1))
        )


@contextmanager
def _reported(option: str, value: str) -> Iterator[None]:
    """Turn whatever a plugin raises while it loads into one line for the operator."""
    try:
        yield
    except NovaschedError:
        raise
    except Exception as error:
        LOG.debug('%s = %s does not load', option, value, exc_info=True)
        # Names of modules are no secrets, even if a secret is one of them.
        if isinstance(error, ImportError):
            text = str(error)
        else:
            text = hide(error)
        why = ' '.join(f'{type(error).__name__}: {text}'.split())
        if (
            isinstance(error, ImportError)
            and (error.name or '').split('.')[0] == 'nova'
        ):
            why += (
                ' (nova itself is not installed)'
                if not import_stubs.nova_is_installed()
                else ''
            )
        raise ConfigError(option, value, why) from error
