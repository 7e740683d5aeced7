# SPDX-License-Identifier: Apache-2.0
"""The contract that filters and weighers share, and the pipeline's side of it.

``doc/source/filter.rst`` introduces the contract to authors of plugins.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from types import NoneType
from typing import Any, Generic, TypeVar

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import hide
from novasched.conf.settings import Settings
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

CHECK_SCOPES = False
"""True in tests: every plugin is asked again, as for another instance of the request,
and an answer that the scope of the plugin does not allow is an error."""

AnyPlugin = TypeVar('AnyPlugin', bound='Plugin')


class Scope(Enum):
    """The data that the answer of a plugin about a host depends on.

    Each scope includes the scopes above. A plugin whose answer depends on more than its
    scope places instances on wrong hosts; :data:`CHECK_SCOPES` reveals such a plugin.
    """

    REQUEST = 'request'
    """The request without its current instance, and the host before the first instance
    of the request is placed. The plugin is asked for the first instance only, as with
    nova's ``run_filter_once_per_request``."""

    HOST = 'host'
    """The request without its current instance, and the current state of the host. For
    further instances, the plugin is asked about the hosts that have changed."""

    INSTANCE = 'instance'
    """The current instance, and the hosts of the earlier instances of the request. The
    plugin is asked about every host for every instance."""


class Data(Enum):
    """Data that novasched reads only for the plugins that need them."""

    INSTANCES = 'instances'
    """All of ``host.instances``. In a large cloud, novasched needs seconds to read the
    instances of all hosts."""

    FLAVORS = 'flavors'
    """The flavors in ``host.instances``. The mapping then has at least one instance of
    each flavor on the host; further instances may be missing."""

    IMAGES = 'images'
    """``image_properties`` of the instances on a host, beside :attr:`INSTANCES`."""

    MEMBERS = 'members'
    """``request.instance_group.located``, the hosts of the other members of the server
    group."""

    USUAL_GUESTS = 'usual_guests'
    """``request.usual_guests``, the most frequent flavors of the instances in the
    cloud."""

    CALLER = 'caller'
    """``request.origin.caller``, the context of the message with the token of the user.
    No text may show the token."""


class Plugin:
    """The members that filters and weighers share.

    A plugin does no I/O, keeps no state between calls, and does not log.
    """

    scope = Scope.INSTANCE
    """The data that an answer depends on. With a smaller scope the plugin is asked less
    often."""

    reads: Collection[Data] = frozenset()
    """The data that the plugin reads beside the hosts and the request."""

    thread_safe = False
    """Several requests may ask the plugin at the same time. The built-in plugins are
    thread-safe without this attribute."""

    call_lock: AbstractContextManager[Any] | None = None
    """Set by novasched on a plugin that is not thread-safe: the lock that is held while
    the plugin is asked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """The name of the plugin in the log, in metrics and in decision records; the
        name of the class by default."""
        return type(self).__name__

    def applies(self, request: Request) -> bool:
        """Tell whether the plugin has to be asked about the hosts of a request.

        Called once for each instance of the request.
        """
        return True

    def request_key(self, request: Request) -> Hashable | None:
        """The parts of a request that an answer depends on.

        Answers are kept for later requests with an equal key, and the plugin is asked
        about the hosts that have changed since. ``None``: answers are not kept. The
        scope INSTANCE ignores the key, since such answers cannot be kept.
        """
        return None

    def needed_instances(self, request: Request) -> Collection[str] | None:
        """The UUIDs of the instances that the plugin looks for in ``host.instances``;
        ``None`` for all instances. Further instances may be missing."""
        if Data.INSTANCES in self.reads:
            return None
        return ()

    def for_one_request(self: AnyPlugin, first: Any) -> AnyPlugin:
        """The plugin object for a request.

        A plugin that keeps state from one instance of a request to the next returns a
        new object here.

        :param first: the new object of the first such plugin for the same request, so
            that plugins can share state; ``None`` for the first plugin.
        """
        return self


def host_alone(self: Plugin, request: Request) -> Hashable:
    """The ``request_key`` of a plugin whose answers depend on the host only."""
    return ()


class Enabled(Generic[AnyPlugin]):
    """A plugin in the pipeline.

    The pipeline enters the object, as a context manager, around each call of the
    plugin: the object holds the lock of the plugin, and adds the name of the plugin to
    errors.
    """

    def __init__(
        self, plugin: AnyPlugin, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.lock = lock or plugin.call_lock
        # Methods that a plugin inherits are not called: a request passes 20 plugins,
        # and a call may have to wait for the lock.
        self._always_applies = type(plugin).applies is Plugin.applies
        self._is_stateless = type(plugin).for_one_request is Plugin.for_one_request

    def __enter__(self) -> None:
        if self.lock is not None:
            self.lock.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """:raises BadPlugin: the plugin raised an error of a foreign class."""
        if self.lock is not None:
            self.lock.__exit__(kind, error, traceback)
        if isinstance(error, Exception) and not isinstance(error, NovaschedError):
            why = f'{self.name} raised {type(error).__name__}: {hide(error)}'
            raise BadPlugin(why) from error

    def applies(self, request: Request) -> bool:
        """Ask whether the plugin applies to a request."""
        if self._always_applies:
            return True
        with self:
            return self.plugin.applies(request)

    def for_one_request(self, first: Any) -> 'Enabled[AnyPlugin]':
        """The plugin for one request, under the same lock.

        :param first: see :meth:`Plugin.for_one_request`.
        """
        if self._is_stateless:
            return self
        return Enabled(self.plugin.for_one_request(first), self.lock)


OTHER_INSTANCE = '00000000-0000-0000-0000-000000000000'
"""The UUID of the instance with which :func:`check_scope` asks again."""

COMPARABLE_TYPES = ({str}, {int}, {float}, {str, NoneType}, {int, NoneType})
"""Sets of types within which equal values are the same value. Beyond such a set, equal
values may differ: 1, 1.0 and True are equal."""


def equivalence_classes(columns: Sequence[Sequence[object]]) -> Sequence[Hashable]:
    """A key for each host. Hosts with equal values in all columns have equal keys.

    :param columns: each has a value for each host, in the order of the hosts.
    """
    keys = list(map(_column_keys, columns))
    if len(keys) != 1:
        return list(zip(*keys, strict=True))
    return keys[0]


def _column_keys(column: Sequence[object]) -> Sequence[Hashable]:
    """A key for each value of a column; equal values have equal keys.

    The keys are the values, if the values are simple, or numbers of values.
    """
    if set(map(type, column)) in COMPARABLE_TYPES:
        return column

    # Values are large, such as NUMA topologies, and many hosts share one object: each
    # object is hashed and compared once.
    identities = list(map(id, column))
    objects = dict(zip(identities, column, strict=True))
    numbers: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}
    for number, (identity, value) in enumerate(objects.items()):
        try:
            by_object[identity] = numbers.setdefault((type(value), value), number)
        except TypeError:
            # A value that cannot be hashed equals no other value.
            by_object[identity] = number
    return list(map(by_object.__getitem__, identities))


def check_scope(
    scope: Scope,
    hosts: Sequence[Host],
    answers: Sequence[object],
    request: Request,
    ask: Callable[[Host, Request], object],
) -> None:
    """Ask a plugin again about the first and the last host: for the same request, and
    for another instance of the request after this instance has been placed.

    :param answers: the first answers about the hosts, in the order of the hosts.
    :raises AssertionError: an answer differs, which the scope does not allow.
    """
    if scope is Scope.INSTANCE or not hosts:
        return

    for host, answer in ((hosts[0], answers[0]), (hosts[-1], answers[-1])):
        placed = request.with_placed_instance(host.host, None)
        for asked in (request, placed.for_instance(OTHER_INSTANCE)):
            again = ask(host, asked)
            why = f'its scope is {scope}: {answer}, then {again} on {host}'
            assert again == answer, why
