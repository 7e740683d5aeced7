# SPDX-License-Identifier: Apache-2.0
"""caching_scheduler: the filter scheduler on hosts as they were a moment ago.

Hosts are read by a periodic task, not for each request. Servers placed since then are
taken off what a host has left. Candidates and claims are Placement's, as fresh as ever,
so that a stale host costs a detour and never a double booking.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, replace

from novasched import fitting
from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.inflight import InFlight
from novasched.model.host import Fleet, Host
from novasched.model.request import Flavor, Request
from novasched.model.selection import Selection
from novasched.model.settings import Settings
from novasched.ports import Hosts

ANYTHING = Request(flavor=Flavor())
"""A request that leaves no host out."""


class CachingScheduler(FilterScheduler):
    """Implements :class:`novasched.drivers.Driver`, with its periodic task."""

    def __init__(self, parts: Parts) -> None:
        self.memory = HostMemory(parts.hosts, parts.settings)
        # The memory itself takes off what was placed.
        by_hosts = InFlight(parts.settings, timeout=0)
        super().__init__(replace(parts, hosts=self.memory, in_flight=by_hosts))

    def periodic(self) -> None:
        """Read the hosts anew.

        :raises DatabaseUnavailable: the API database fails; the hosts stay as they were.
        """
        self.memory.refresh()

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """See :class:`novasched.drivers.Driver`."""
        chosen = super().select_destinations(request)
        if not request.is_rebuild:
            uuids = request.instance_uuids or [None] * len(chosen)
            for uuid, (selection, *_) in zip(uuids, chosen, strict=True):
                self.memory.consume(selection, request.for_instance(uuid))
        return chosen


@dataclass(frozen=True, slots=True)
class Reading:
    """Hosts by compute node UUID, and what was read of them."""

    hosts: dict[str, Host]
    instances: bool
    images: bool


class HostMemory:
    """Implements :class:`novasched.ports.Hosts` from the last refresh."""

    def __init__(self, hosts: Hosts, settings: Settings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._lock = threading.Lock()
        self._last: Reading | None = None

    def refresh(self, instances: bool = False, images: bool = False) -> Reading:
        """Read all hosts, with what is wanted of them and what was wanted before."""
        if self._last:
            instances, images = instances or self._last.instances, images or self._last.images
        fleet = self._hosts.read(None, ANYTHING, instances, images)
        self._last = Reading(dict(fleet.hosts), instances, images)
        return self._last

    def prepare(self, moment: float) -> None:
        """See :class:`novasched.ports.Hosts`; a request waits for nothing here."""

    def aimed(self, request: Request) -> Request:
        """See :class:`novasched.ports.Hosts`; asked of the database."""
        return self._hosts.aimed(request)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Fleet:
        """See :class:`novasched.ports.Hosts`. The first request, or the first one that wants
        more of the hosts, waits for a refresh."""
        last = self._last
        if last is None or instances > last.instances or images > last.images:
            last = self.refresh(instances, images)
        wanted = request.requested_destination
        cell = wanted.cell_uuid if wanted and not wanted.allow_cross_cell_move else None
        with self._lock:
            found = [
                last.hosts[x] for x in (last.hosts if uuids is None else uuids) if x in last.hosts
            ]
        return Fleet({host.uuid: host for host in found if cell in (None, host.cell_uuid)})

    def consume(self, chosen: Selection, request: Request) -> None:
        """Take the server in hand off what a host has left, until the next refresh."""
        with self._lock:
            if self._last and (host := self._last.hosts.get(chosen.compute_node_uuid)):
                self._last.hosts[host.uuid] = fitting.after(
                    host, request, chosen.candidate, chosen.limits, self._settings
                )
