# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers: what their contracts share, how the pipeline asks them, and
hosts that are alike to them."""

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
"""Set by novasched's tests: plugins are asked again, as for other instances of their
requests."""


class Scope(Enum):
    """The things that a plugin's answer on a host may depend on.

    Each scope includes the ones above it. A plugin that depends on more than its scope
    allows puts instances on wrong hosts; :data:`CHECK_SCOPES` finds it out.
    """

    REQUEST = 'request'
    """The request but for its current instance, and the host as the request finds it.
    Asked for the first instance of a request alone, as nova's
    ``run_filter_once_per_request``."""

    HOST = 'host'
    """The host as it is now. Asked for each instance of a request, but only about the
    hosts that have changed since it was asked last."""

    INSTANCE = 'instance'
    """The current instance, and the hosts that the others of the request went to. Asked
    for each instance about every host."""


class Plugin:
    """A filter or a weigher. It keeps no state between calls, does no I/O and never
    logs."""

    scope = Scope.INSTANCE
    """The things that an answer may depend on; with a smaller scope the plugin is asked
    less."""

    reads_instances = False
    """The plugin looks at all of ``host.instances``, which take seconds to read in a
    large cloud."""

    reads_flavors = False
    """The plugin looks at nothing in ``host.instances`` but the flavors. At least one
    instance of each flavor on the host is there."""

    locates_members = False
    """The plugin looks at the hosts of the other members of a group
    (``group.located``)."""

    asking_lock: AbstractContextManager[Any] | None = None
    """Held while the plugin is asked, where it is not known to be thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def applies(self, request: Request) -> bool:
        """Tell whether the request has anything for it to do; asked once for each
        instance."""
        return True

    def request_key(self, request: Request) -> Hashable | None:
        """All of the request that its answers depend on, where they are worth keeping
        for later requests; None where they are not. Not asked with the scope
        INSTANCE."""
        return None

    def needed_instances(self, request: Request) -> Collection[str] | None:
        """The UUIDs of the instances that it looks for in ``host.instances``, where it
        may find no others; None for all that are there."""
        if self.reads_instances:
            return None
        return ()


def host_alone(self: Plugin, request: Request) -> Hashable:
    """The ``request_key`` of a plugin that looks at the host, and never at the
    request."""
    return ()


AnyPlugin = TypeVar('AnyPlugin', bound=Plugin)
OTHER_INSTANCE = '00000000-0000-0000-0000-000000000000'
SELF_EQUAL = ({str}, {int}, {float}, {str, NoneType}, {int, NoneType})
"""Types of values of which equal ones are the same: 1, 1.0 and True are equal, too."""


def name_of(plugin: Plugin) -> str:
    """The name in the log and in ``enabled_filters`` or ``weight_classes``."""
    name: str = getattr(plugin, 'name', type(plugin).__name__)
    return name


class Enabled(Generic[AnyPlugin]):
    """A plugin as the pipeline holds it. Entered while the plugin is asked, it holds
    the lock and names the plugin in its errors."""

    def __init__(
        self, plugin: AnyPlugin, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.plugin = plugin
        self.name = name_of(plugin)
        self.lock = lock or plugin.asking_lock
        self._always_applies = type(plugin).applies is Plugin.applies

    def __enter__(self) -> None:
        if self.lock is not None:
            self.lock.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """:raises BadPlugin: the plugin raised an error that is none of ours."""
        if self.lock is not None:
            self.lock.__exit__(kind, error, traceback)
        if isinstance(error, Exception) and not isinstance(error, NovaschedError):
            why = f'{self.name} raised {type(error).__name__}: {hide(error)}'
            raise BadPlugin(why) from error

    def applies(self, request: Request) -> bool:
        """Ask the plugin, unless it applies to every request."""
        if self._always_applies:
            return True
        with self:
            return self.plugin.applies(request)

    def for_one_request(self, first: Any) -> 'Enabled[AnyPlugin]':
        """The plugin for one request, under the same lock.

        Some keep something from one instance of a request to the next. They have a
        method ``for_one_request(first)``, which answers a plugin for one request.
        ``first`` is the answer of the first plugin that has the method, None for that
        one itself.
        """
        renew = getattr(self.plugin, 'for_one_request', None)
        if renew is None:
            return self
        return Enabled(renew(first), self.lock)


def equivalence_classes(columns: Sequence[Sequence[object]]) -> Sequence[Hashable]:
    """Something for each host, equal for those that have equal values in every
    column."""
    keys = list(map(_numbered, columns))
    if len(keys) != 1:
        return list(zip(*keys, strict=True))
    return keys[0]


def _numbered(column: Sequence[object]) -> Sequence[Hashable]:
    """The values if they are short, else numbers of them, equal for equal ones. An
    object that many hosts share is compared once; one that cannot be hashed equals
    nothing but itself."""
    if set(map(type, column)) in SELF_EQUAL:
        return column
    identities = list(map(id, column))
    objects = dict(zip(identities, column, strict=True))
    numbers: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}
    for number, (identity, value) in enumerate(objects.items()):
        try:
            by_object[identity] = numbers.setdefault((type(value), value), number)
        except TypeError:
            by_object[identity] = number
    return list(map(by_object.__getitem__, identities))


def check_scope(
    scope: Scope,
    hosts: Sequence[Host],
    answers: Sequence[object],
    request: Request,
    ask: Callable[[Host, Request], object],
) -> None:
    """Ask about some hosts again, as for another instance after this one has been
    placed.

    :raises AssertionError: the answer is another one, which the scope does not allow.
    """
    if scope is Scope.INSTANCE or not hosts:
        return
    for host, answer in ((hosts[0], answers[0]), (hosts[-1], answers[-1])):
        another = request.having_placed(host.host, None).for_instance(OTHER_INSTANCE)
        for asked in (request, another):
            again = ask(host, asked)
            assert again == answer, (
                f'its scope is {scope}: {answer}, then {again} on {host}'
            )
