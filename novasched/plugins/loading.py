# SPDX-License-Identifier: Apache-2.0
"""Load filters, weighers and drivers by entry point or import path.

stevedore lists the entry points; an entry point is imported when an option names it. An
import path leads to a class, or to a function that returns classes. A filter or weigher
is a class of novasched, or a class written for nova.
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
from novasched.scheduler.drivers import Driver, SchedulerDeps
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter
from novasched.scheduler.weighers import Weigher

LOG = logging.getLogger(__name__)
REMOVED_PLUGINS = {
    'TrustedFilter': 'it needs an attestation server that no longer exists; remove it',
    'fake_scheduler': "it was there for nova's own tests; remove it",
}

PLUGIN_TIMEOUT_S = 30.0
"""How long a call of a plugin may block further requests, in seconds. After that time,
requests that need the plugin are refused immediately."""

Prepare = Callable[[], None]
"""Called before the import of a plugin that is not built in."""
P = TypeVar('P', Filter, Weigher)


@dataclass(eq=False)
class OneAtATime:
    """A lock for a plugin that is not known to be thread-safe.

    A call that hangs makes further requests fail with :exc:`BadPlugin`, so that not all
    threads of the daemon wait for the lock.

    :ivar timeout: how long a call may take while further requests wait, in seconds.
    """

    name: str
    timeout: float = PLUGIN_TIMEOUT_S
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._began = self.clock()

    def __enter__(self) -> None:
        """:raises BadPlugin: the current call exceeds the timeout."""
        while not self._lock.acquire(timeout=max(0.0, self._remaining())):
            # If another call began in the meantime, time remains to wait for its end.
            if self._remaining() <= 0:
                raise BadPlugin(
                    f'{self.name} has not answered another request for'
                    f' {self.timeout:g} s'
                )
        self._began = self.clock()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _remaining(self) -> float:
        """The time until the current call exceeds the timeout, in seconds."""
        return self._began + self.timeout - self.clock()


@dataclass(frozen=True, slots=True)
class PluginType(Generic[P]):
    """Filters or weighers: the entry points, and how a class of the type is recognised.

    :ivar namespace: the group of entry points.
    :ivar option: the option that names entry points and import paths.
    :ivar everything: the value of the option that stands for all entry points.
    :ivar contract: the base class of plugins for novasched.
    :ivar method: the method that nova calls on plugins written for nova.
    :ivar adapter: makes a plugin for novasched from a plugin written for nova.
    """

    noun: str
    namespace: str
    option: str
    everything: str
    contract: type[P]
    method: str
    adapter: Callable[[Settings, Any], P]

    def check(self, plugin: Any, option: str, value: str) -> None:
        """Check that an object is a class of this type.

        :raises ConfigError: the object is not such a class.
        """
        if isinstance(plugin, type) and (
            issubclass(plugin, self.contract) or hasattr(plugin, self.method)
        ):
            return

        name = getattr(plugin, '__name__', plugin)
        contract = f'novasched.scheduler.{self.noun}s.{self.contract.__name__}'
        why = (
            f'{name} is not a {self.noun}: not a subclass of {contract},'
            f' and without a method {self.method}()'
        )
        raise ConfigError(option, value, why)

    def make(self, plugin_class: type[Any], settings: Settings) -> P:
        """Make a filter or weigher of a class."""
        if issubclass(plugin_class, self.contract):
            plugin: P = plugin_class(settings)
        else:
            plugin = self.adapter(settings, plugin_class())

        # nova-scheduler runs plugins in one thread. A plugin of another package may
        # rely on that, unless the class declares that it is thread-safe.
        if not plugin.thread_safe and not _is_built_in(plugin_class):
            plugin.call_lock = OneAtATime(plugin.name)
        return plugin


FILTERS: PluginType[Filter] = PluginType(
    'filter',
    'novasched.filters',
    '[filter_scheduler] available_filters',
    ALL_FILTERS,
    contract=Filter,
    method='filter_all',
    adapter=NovaFilter,
)
WEIGHERS: PluginType[Weigher] = PluginType(
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
    """Load the filters of ``[filter_scheduler] enabled_filters``, in this order.

    :raises ConfigError: there is no filter of a name, or a filter does not load.
    """
    option = '[filter_scheduler] enabled_filters'
    available: dict[str, Any] = {}
    for path in settings.available_filters:
        available.update(_available(FILTERS, path, prepare))

    plugins = []
    for name in settings.enabled_filters:
        source = _find(available, name, option)
        plugins.append(_make(FILTERS, source, settings, option, name, prepare))
    return plugins


def weighers(
    settings: Settings, prepare: Prepare = import_stubs.install
) -> list[Weigher]:
    """Load the weighers of ``[filter_scheduler] weight_classes``.

    :raises ConfigError: there is no weigher of a name, or a weigher does not load.
    """
    option = WEIGHERS.option
    plugins = []
    for path in settings.weight_classes:
        for source in _available(WEIGHERS, path, prepare).values():
            # "All weighers" are the built-in weighers. The installation of a package
            # does not enable the weighers of the package.
            if path != ALL_WEIGHERS or _is_built_in(source):
                plugins.append(_make(WEIGHERS, source, settings, option, path, prepare))
    return plugins


def driver(
    settings: Settings, prepare: Prepare = import_stubs.install
) -> Callable[[SchedulerDeps], Driver]:
    """Load the driver of ``[scheduler] driver``, an entry point or an import path.

    :returns: the constructor of the driver.
    :raises ConfigError: there is no driver of the name, or the driver does not load.
    """
    option = '[scheduler] driver'
    name = settings.driver
    available = _entry_points('novasched.drivers')
    source: EntryPoint | str = name
    if name in available or '.' not in name:
        source = _find(available, name, option)

    driver_class = _load(source, option, name, prepare)
    if not (isinstance(driver_class, type) and issubclass(driver_class, Driver)):
        why = f'is not a driver: it is no subclass of {Driver.__module__}.Driver'
        raise ConfigError(option, name, why)
    # The context manager, as a decorator, also reports errors of the constructor.
    return _config_errors(option, name)(lambda parts: driver_class(parts))


def _available(
    plugin_type: PluginType[Any], path: str, prepare: Prepare
) -> dict[str, Any]:
    """The entry points or classes that a value of an option stands for, by name."""
    entry_points = _entry_points(plugin_type.namespace)
    if path == plugin_type.everything:
        return dict(entry_points)

    # nova's path of a plugin, such as nova.scheduler.weights.ram.RAMWeigher, stands for
    # the built-in plugin of the name.
    name = path
    if path.startswith('nova.scheduler.'):
        name = path.rpartition('.')[2]
    if name in entry_points:
        return {name: entry_points[name]}
    if name in REMOVED_PLUGINS:
        raise ConfigError(plugin_type.option, path, REMOVED_PLUGINS[name])
    if '.' not in path:
        _find(entry_points, path, plugin_type.option)

    loaded = _load(path, plugin_type.option, path, prepare)
    classes = [loaded]
    if inspect.isfunction(loaded):
        with _config_errors(plugin_type.option, path):
            classes = list(loaded())
    for plugin_class in classes:
        plugin_type.check(plugin_class, plugin_type.option, path)
    return {plugin_class.__name__: plugin_class for plugin_class in classes}


def _entry_points(namespace: str) -> Mapping[str, EntryPoint]:
    """The entry points of a namespace by name. No package can replace a built-in."""
    manager: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(
        namespace, []
    )
    # Built-in entry points come first, and the first of a name is taken.
    listed = sorted(manager.list_entry_points(), key=_is_built_in, reverse=True)
    entry_points: dict[str, EntryPoint] = {}
    for entry_point in listed:
        first = entry_points.setdefault(entry_point.name, entry_point)
        if first.value != entry_point.value:
            LOG.warning(
                'Ignoring the entry point %s = %s: the name is taken by %s',
                entry_point.name,
                entry_point.value,
                first.value,
            )
    return entry_points


def _is_built_in(source: EntryPoint | type[Any] | str) -> bool:
    """True for an entry point or a class of novasched; False for an import path."""
    if isinstance(source, EntryPoint):
        module = source.value
    else:
        module = getattr(source, '__module__', '')
    return module.startswith('novasched.')


def is_foreign(plugin: Filter | Weigher) -> bool:
    """True for a plugin of another package."""
    if isinstance(plugin, NovaFilter | NovaWeigher):
        return True
    return not _is_built_in(type(plugin))


def _find(available: Mapping[str, Any], name: str, option: str) -> Any:
    """:raises ConfigError: no available plugin has the name."""
    if name not in available:
        names = ', '.join(sorted(available))
        why = REMOVED_PLUGINS.get(name, f'not found; available: {names}')
        raise ConfigError(option, name, why)
    return available[name]


def _make(
    plugin_type: PluginType[P],
    source: Any,
    settings: Settings,
    option: str,
    value: str,
    prepare: Prepare,
) -> P:
    """Make a filter or weigher of an entry point or a class."""
    plugin_class = source
    if isinstance(source, EntryPoint):
        plugin_class = _load(source, option, value, prepare)
        plugin_type.check(plugin_class, option, value)
    with _config_errors(option, value):
        return plugin_type.make(plugin_class, settings)


def _load(source: EntryPoint | str, option: str, value: str, prepare: Prepare) -> Any:
    """Import the object of an entry point or an import path (``a.b.C``, ``a.b:C``)."""
    if not _is_built_in(source):
        prepare()
    with _config_errors(option, value):
        if isinstance(source, EntryPoint):
            return source.load()
        # With a colon, resolve_name() raises the error of an import that fails within
        # the module, and not an error about the name.
        if ':' not in source:
            source = ':'.join(source.rsplit('.', 1))
        return pkgutil.resolve_name(source)


@contextmanager
def _config_errors(option: str, value: str) -> Iterator[None]:
    """Translate the errors of a plugin that loads.

    :raises ConfigError: the plugin raised an error, told in one line.
    """
    try:
        yield
    except NovaschedError:
        raise
    except Exception as error:
        LOG.debug('%s = %s does not load', option, value, exc_info=True)
        # The message of an ImportError names modules, which redaction could take for
        # secrets.
        missing_nova = False
        if isinstance(error, ImportError):
            text = str(error)
            missing_nova = (error.name or '').split('.')[0] == 'nova'
        else:
            text = hide(error)

        why = ' '.join(f'{type(error).__name__}: {text}'.split())
        if missing_nova and not import_stubs.nova_is_installed():
            why += ' (nova itself is not installed)'
        raise ConfigError(option, value, why) from error
