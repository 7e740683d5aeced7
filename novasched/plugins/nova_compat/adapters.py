# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers of novasched that ask a plugin written for nova.

As in nova, the plugin is one object for all requests, and the instances of all hosts
are read. The adapters of a request share one :class:`RequestViews`; a call outside of a
request has a :class:`RequestViews` of its own.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from novasched.conf.settings import Settings
from novasched.plugins.nova_compat.host_state import AggregateView, HostState
from novasched.plugins.nova_compat.import_stubs import WeighedHost
from novasched.plugins.nova_compat.views import RequestSpecView
from novasched.scheduler.filters.shared import BatchFilter, Verdicts
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.numa import TopologyLimits
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data
from novasched.scheduler.weighers import BatchWeigher

LIMIT_NAMES = ('vcpu', 'memory_mb', 'disk_gb')


class RequestViews:
    """The view of a request, and the views of the hosts that plugins saw.

    As in nova, all plugins see the same objects: a weigher finds the attributes that a
    filter has set on a host.
    """

    def __init__(self) -> None:
        self._spec: RequestSpecView | None = None
        self._hosts: dict[str, HostState] = {}
        self._aggregates: dict[Aggregate, AggregateView] = {}

    def spec(self, request: Request) -> RequestSpecView:
        """The view of the request in its current state."""
        if self._spec is None:
            self._spec = RequestSpecView(request)
        self._spec.refresh(request)
        return self._spec

    def host(self, host: Host) -> HostState:
        """The view of a host in its current state."""
        if host.uuid not in self._hosts:
            self._hosts[host.uuid] = HostState(host, self.aggregate)
        state = self._hosts[host.uuid]
        state.refresh(host)
        return state

    def offered(
        self,
        hosts: Sequence[Host],
        candidates: Candidates | None,
    ) -> list[HostState]:
        """The views of hosts with the allocation candidates that earlier filters
        left."""
        states = []
        for host in hosts:
            state = self.host(host)
            state.offer(candidates)
            states.append(state)
        return states

    def aggregate(self, aggregate: Aggregate) -> AggregateView:
        """The view of an aggregate, shared by the hosts of the aggregate."""
        return self._aggregates.setdefault(aggregate, AggregateView(aggregate))


class NovaFilter(BatchFilter):
    """Asks a subclass of nova's BaseHostFilter, or an object with the same methods."""

    # nova asks all filters on a rebuild. BaseHostFilter passes all hosts unless the
    # plugin sets RUN_ON_REBUILD.
    on_rebuild = True
    reads = frozenset({Data.INSTANCES, Data.CALLER})

    def __init__(
        self, settings: Settings, plugin: Any, views: RequestViews | None = None
    ) -> None:
        super().__init__(settings)
        self.plugin = plugin
        self.views = views
        # A plugin of nova may declare this attribute of novasched's plugins.
        self.thread_safe = getattr(plugin, 'thread_safe', False)

    @property
    def name(self) -> str:
        return type(self.plugin).__name__

    def for_one_request(self, first: 'NovaFilter | NovaWeigher | None') -> 'NovaFilter':
        return NovaFilter(self.settings, self.plugin, _views_of(first))

    def runs_for(self, index: int) -> bool:
        return bool(self.plugin.run_filter_for_index(index))

    def judge(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Verdicts:
        views = self.views or RequestViews()
        states = views.offered(hosts, candidates)
        passing = self.plugin.filter_all(states, views.spec(request))
        # filter_all() may return a generator; the filter then runs here.
        passed = {id(state) for state in passing or ()}

        reasons: list[str | None] = []
        narrowed_hosts: dict[str, Sequence[Candidate]] = {}
        for host, state in zip(hosts, states, strict=True):
            if id(state) not in passed:
                reasons.append('the plugin says no')
                continue

            remaining = state.remaining_candidates()
            if remaining is not None and not remaining:
                reasons.append('the plugin leaves no allocation candidate')
            else:
                reasons.append(None)
            if candidates is None or not remaining:
                continue
            if remaining != candidates[host.uuid]:
                narrowed_hosts[host.uuid] = remaining

        if candidates is None:
            return Verdicts(reasons)
        return Verdicts(reasons, candidates.narrowed(narrowed_hosts))

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        """The limits that plugins wrote into ``limits`` of the host state."""
        # Outside of a request there are no views that a plugin could have changed.
        if self.views is None:
            return {}

        written = self.views.host(host).limits
        limits: dict[str, Any] = {}
        for name in LIMIT_NAMES:
            if written.get(name) is not None:
                limits[name] = int(written[name])
        numa = written.get('numa_topology')
        if numa is not None:
            limits['numa_topology'] = TopologyLimits(
                float(numa.cpu_allocation_ratio), float(numa.ram_allocation_ratio)
            )
        return limits


class NovaWeigher(BatchWeigher):
    """Asks a subclass of nova's BaseHostWeigher, or an object with the same methods."""

    reads = frozenset({Data.INSTANCES, Data.CALLER})

    def __init__(
        self, settings: Settings, plugin: Any, views: RequestViews | None = None
    ) -> None:
        super().__init__(settings)
        self.plugin = plugin
        self.views = views
        # A plugin of nova may declare this attribute of novasched's plugins.
        self.thread_safe = getattr(plugin, 'thread_safe', False)
        multiplier: Any = getattr(plugin, 'weight_multiplier', 1.0)
        self._is_method = callable(multiplier)
        self._takes_host = self._is_method and bool(
            inspect.signature(multiplier).parameters
        )

    @property
    def name(self) -> str:
        return type(self.plugin).__name__

    def for_one_request(
        self, first: 'NovaFilter | NovaWeigher | None'
    ) -> 'NovaWeigher':
        return NovaWeigher(self.settings, self.plugin, _views_of(first))

    def scale(self, host: Host) -> float:
        """The ``weight_multiplier`` of the plugin.

        In nova since Stein (19) ``weight_multiplier`` is a method with the host state
        as its argument. Before that it is a method without arguments, and some plugins
        have a number.
        """
        multiplier: Any = self.plugin.weight_multiplier
        if self._takes_host:
            views = self.views or RequestViews()
            multiplier = multiplier(views.host(host))
        elif self._is_method:
            multiplier = multiplier()
        return float(multiplier)

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The weights that the plugin gives the hosts."""
        views = self.views or RequestViews()
        weighed = [WeighedHost(views.host(host), 0.0) for host in hosts]
        weights = list(self.plugin.weigh_objects(weighed, views.spec(request)))
        # The plugin cuts the weights itself, and may set its bounds while it weighs.
        self.minval = self.plugin.minval
        self.maxval = self.plugin.maxval
        return weights


def _views_of(first: NovaFilter | NovaWeigher | None) -> RequestViews:
    """The views that the first adapter of a request has, new views for the first."""
    if first is None or first.views is None:
        return RequestViews()
    return first.views
