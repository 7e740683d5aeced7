# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers of ours that ask a plugin written for nova.

The plugin is one object for all requests, as in nova. The adapters of one request share
its views; outside of a request each call has views of its own. As in nova, all
instances on hosts are read.
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
from novasched.scheduler.weighers import BatchWeigher

LIMIT_NAMES = ('vcpu', 'memory_mb', 'disk_gb')


class RequestViews:
    """A view of the request, and of each host that is shown; all plugins see the same,
    as in nova, so that a weigher finds what a filter has left on a host."""

    def __init__(self) -> None:
        self._spec: RequestSpecView | None = None
        self._hosts: dict[str, HostState] = {}
        self._aggregates: dict[Aggregate, AggregateView] = {}

    def spec(self, request: Request) -> RequestSpecView:
        """The request, as it is now."""
        if self._spec is None:
            self._spec = RequestSpecView(request)
        self._spec.refresh(request)
        return self._spec

    def host(self, host: Host) -> HostState:
        """The host, as it is now."""
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
        """The hosts, with Placement's candidates as the filters before have left
        them."""
        states = [self.host(host) for host in hosts]
        for host, state in zip(hosts, states, strict=True):
            state.offer(() if candidates is None else candidates.get(host.uuid, ()))
        return states

    def aggregate(self, aggregate: Aggregate) -> AggregateView:
        return self._aggregates.setdefault(aggregate, AggregateView(aggregate))


class NovaFilter(BatchFilter):
    """A subclass of nova's BaseHostFilter, or anything that has its methods."""

    on_rebuild = True  # the plugin's own base class passes all hosts where it sits out
    reads_instances = True

    def __init__(
        self, settings: Settings, plugin: Any, views: RequestViews | None = None
    ) -> None:
        super().__init__(settings)
        self.plugin = plugin
        self.views = views
        self.name = type(plugin).__name__

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
        passed = {id(state) for state in passing or ()}
        reasons: list[str | None] = []
        left: dict[str, Sequence[Candidate]] = {}
        for host, state in zip(hosts, states, strict=True):
            if id(state) not in passed:
                reasons.append('the plugin says no')
                continue
            remaining = state.remaining_candidates()
            lost_all = remaining is not None and not remaining
            reasons.append(
                'the plugin leaves no allocation candidate' if lost_all else None
            )
            if (
                remaining
                and candidates is not None
                and remaining != candidates[host.uuid]
            ):
                left[host.uuid] = remaining
        if candidates is None:
            return Verdicts(reasons)
        return Verdicts(reasons, candidates.narrowed(left))

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        """The limits that any plugin wrote on the host's view, under nova's names."""
        written = self.views.host(host).limits if self.views else {}
        limits: dict[str, Any] = {
            name: int(written[name])
            for name in LIMIT_NAMES
            if written.get(name) is not None
        }
        if (numa := written.get('numa_topology')) is not None:
            ratios = float(numa.cpu_allocation_ratio), float(numa.ram_allocation_ratio)
            limits['numa_topology'] = TopologyLimits(*ratios)
        return limits


class NovaWeigher(BatchWeigher):
    """A subclass of nova's BaseHostWeigher, or anything that has its methods."""

    reads_instances = True

    def __init__(
        self, settings: Settings, plugin: Any, views: RequestViews | None = None
    ) -> None:
        super().__init__(settings)
        self.plugin = plugin
        self.views = views
        self.name = type(plugin).__name__
        multiplier: Any = getattr(plugin, 'weight_multiplier', 1.0)
        self._is_method = callable(multiplier)
        self._takes_host = self._is_method and bool(
            inspect.signature(multiplier).parameters
        )

    def for_one_request(
        self, first: 'NovaFilter | NovaWeigher | None'
    ) -> 'NovaWeigher':
        return NovaWeigher(self.settings, self.plugin, _views_of(first))

    def scale(self, host: Host) -> float:
        """The plugin's ``weight_multiplier``: a number, a method of the host, or as
        before nova 19 a method without it."""
        multiplier: Any = self.plugin.weight_multiplier
        if self._is_method:
            views = self.views or RequestViews()
            if self._takes_host:
                multiplier = multiplier(views.host(host))
            else:
                multiplier = multiplier()
        return float(multiplier)

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The plugin's weights; the bounds are its own affair, and it may set them
        now."""
        views = self.views or RequestViews()
        weighed = [WeighedHost(views.host(host), 0.0) for host in hosts]
        weights = list(self.plugin.weigh_objects(weighed, views.spec(request)))
        self.minval = self.plugin.minval
        self.maxval = self.plugin.maxval
        return weights


def _views_of(first: NovaFilter | NovaWeigher | None) -> RequestViews:
    if first is None or first.views is None:
        return RequestViews()
    return first.views
