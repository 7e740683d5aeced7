# SPDX-License-Identifier: Apache-2.0
"""What the plugins of one request are shown, and what is learned of them meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from novasched.compat.host_state import Aggregate, HostState
from novasched.compat.request_spec import RequestSpec
from novasched.errors import InstancesUnread, blaming
from novasched.filters import CANDIDATES
from novasched.model import host as model
from novasched.model.candidate import Candidate
from novasched.model.request import Request


@dataclass(slots=True)
class Habits:
    """Whether plugins look at the servers on hosts: they do not, until one is seen to."""

    read_instances: bool = False


class RequestViews:
    """A view of the request, and of each host that is shown; all plugins see the same, as
    in nova, so that a weigher finds what a filter has left on a host."""

    def __init__(self, habits: Habits, memory: Mapping[str, Any]) -> None:
        self._habits = habits
        self._memory = memory
        self.instances_are_read = habits.read_instances
        self._missed = ''
        self._spec: RequestSpec | None = None
        self._hosts: dict[str, HostState] = {}
        self._aggregates: dict[int, Aggregate] = {}

    def spec(self, request: Request) -> RequestSpec:
        """The request, as it is now."""
        if self._spec is None:
            self._spec = RequestSpec(request)
        self._spec.follow(request)
        return self._spec

    def host(self, host: model.Host) -> HostState:
        """The host, as it is now."""
        if host.uuid not in self._hosts:
            self._hosts[host.uuid] = HostState(host, self)
        shown = self._hosts[host.uuid]
        shown.follow(host)
        return shown

    @contextmanager
    def shown_to(self, plugin: str) -> Iterator[None]:
        """While a plugin has them in hand.

        :raises BadPlugin: the plugin raised.
        :raises InstancesUnread: it looked at what is not there, even if it caught that.
        """
        try:
            with blaming(plugin):
                yield
        finally:
            if self._missed:
                raise InstancesUnread(self._missed)

    def aggregate(self, aggregate: model.Aggregate) -> Aggregate:
        """See :class:`novasched.compat.host_state.Source`."""
        return self._aggregates.setdefault(id(aggregate), Aggregate(aggregate))

    def instances(self, host: model.Host) -> Mapping[str, model.Instance]:
        """See :class:`novasched.compat.host_state.Source`."""
        if not self.instances_are_read:
            self._habits.read_instances = True
            self._missed = f'a plugin looks at those on {host.host}'
            raise InstancesUnread(self._missed)
        return host.instances

    def candidates(self, uuid: str) -> Sequence[Candidate]:
        """See :class:`novasched.compat.host_state.Source`."""
        offered: Mapping[str, Sequence[Candidate]] = self._memory.get(CANDIDATES, {})
        return offered.get(uuid, ())

    def narrow(self, host: model.Host) -> bool:
        """Take from what Placement offers what the plugins have taken off the host's view;
        False if they have left nothing."""
        left = self.host(host).remaining_candidates
        if left:
            self._memory[CANDIDATES][host.uuid] = left
        return left != []


MEMORY = 'nova plugins'


@dataclass(frozen=True, slots=True)
class Guest:
    """A plugin, which is one object for all requests as in nova, and what it is shown.

    Outside of a request each call has views of its own, and the servers on hosts are read
    on suspicion, since nobody would answer the request anew.
    """

    plugin: Any
    habits: Habits = field(default_factory=Habits)
    views: RequestViews | None = None

    @property
    def name(self) -> str:
        """The plugin's class, by which options and the log name it."""
        return type(self.plugin).__name__

    @property
    def reads_instances(self) -> bool:
        """Whether the servers on hosts have to be read."""
        return self.views is None or self.views.instances_are_read

    def for_request(self, memory: dict[str, Any]) -> Guest:
        """The same guest, shown what all guests of the request are shown."""
        return replace(self, views=memory.setdefault(MEMORY, RequestViews(self.habits, memory)))

    @contextmanager
    def shown(self) -> Iterator[RequestViews]:
        """What to show the plugin, while it is asked; errors as in ``shown_to``."""
        views = self.views or RequestViews(Habits(read_instances=True), {})
        with views.shown_to(self.name):
            yield views
