# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers of ours that ask a plugin written for nova."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from novasched.compat.bases import WeighedHost
from novasched.compat.request_views import Guest
from novasched.errors import blaming
from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.numa import TopologyLimits
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.weighers import Weigher

NUMBERS = ('vcpu', 'memory_mb', 'disk_gb')
"""The limits that are whole numbers."""


class NovaFilter(Filter):
    """A subclass of nova's BaseHostFilter, or whatever has its methods."""

    on_rebuild = True  # the plugin's own base class passes all hosts where it sits out

    def __init__(self, settings: Settings, guest: Guest) -> None:
        super().__init__(settings)
        self.guest = guest
        self.reads_instances = guest.reads_instances

    @property
    def name(self) -> str:
        return self.guest.name

    def for_request(self, memory: dict[str, Any]) -> NovaFilter:
        return NovaFilter(self.settings, self.guest.for_request(memory))

    def runs_for(self, index: int) -> bool:
        with blaming(self.name):
            return bool(self.guest.plugin.run_filter_for_index(index))

    def reject(self, host: Host, request: Request) -> str | None:
        (verdict,) = self.reject_all([host], request)
        return verdict

    def reject_all(self, hosts: Sequence[Host], request: Request) -> Sequence[str | None]:
        with self.guest.shown() as views:
            states = [views.host(host) for host in hosts]
            passing = self.guest.plugin.filter_all(states, views.spec(request))
            passed = {id(state) for state in passing or ()}
        return [
            'the plugin says no'
            if id(state) not in passed
            else None
            if views.narrow(host)
            else 'the plugin leaves no allocation candidate'
            for host, state in zip(hosts, states, strict=True)
        ]

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        """What any plugin wrote into ``limits`` of the host's view, under nova's names."""
        written = self.guest.views.host(host).limits if self.guest.views else {}
        found: dict[str, Any] = {
            name: int(written[name]) for name in NUMBERS if written.get(name) is not None
        }
        numa = written.get('numa_topology')
        if numa is not None:
            found['numa_topology'] = TopologyLimits(
                float(numa.cpu_allocation_ratio), float(numa.ram_allocation_ratio)
            )
        return found


class NovaWeigher(Weigher):
    """A subclass of nova's BaseHostWeigher, or whatever has its methods."""

    multiplier = ''  # the plugin knows its own
    scale_by_host = True

    def __init__(self, settings: Settings, guest: Guest) -> None:
        super().__init__(settings)
        self.guest = guest
        self.reads_instances = guest.reads_instances
        given: Any = getattr(guest.plugin, 'weight_multiplier', 1.0)
        self._asks = callable(given)
        self._by_host = self._asks and bool(inspect.signature(given).parameters)

    @property
    def name(self) -> str:
        return self.guest.name

    def for_request(self, memory: dict[str, Any]) -> NovaWeigher:
        return NovaWeigher(self.settings, self.guest.for_request(memory))

    def scale(self, host: Host) -> float:
        """What the plugin's ``weight_multiplier`` is, or says: of the host, or as before
        nova 19 of all hosts alike."""
        with self.guest.shown() as views:
            given: Any = self.guest.plugin.weight_multiplier
            if self._asks:
                given = given(views.host(host)) if self._by_host else given()
            return float(given)

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> Sequence[float]:
        """What the plugin says; the bounds are its own affair, and it may set them now."""
        with self.guest.shown() as views:
            weighed = [WeighedHost(views.host(host), 0.0) for host in hosts]
            weights = list(self.guest.plugin.weigh_objects(weighed, views.spec(request)))
            self.minval, self.maxval = self.guest.plugin.minval, self.guest.plugin.maxval
        return weights
