# SPDX-License-Identifier: Apache-2.0
"""What has been given to servers that their hosts do not show yet.

Between the moment at which a host is chosen and the moment at which its nova-compute
reports one server more, the databases say that the host has more left than it has. Who
decides in between takes off what is in flight, so that servers spread over hosts, cells of
NUMA hosts and PCI devices instead of colliding there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from novasched import fitting
from novasched.model.candidate import Candidate
from novasched.model.host import Fleet, Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.records.looks import UNSEEN, Unseen

PATIENCE = 5.0
"""Seconds for which a decision waits for another one. One that takes longer is a plugin's
that hangs, and hangs the others no longer."""

SETTLED = 120.0
"""Seconds after which no request works any more on hosts that were read before."""


@dataclass(eq=False, slots=True)
class Flight:
    """A server on its way to a host, with what it takes there.

    ``since`` is when it was chosen, ``shown`` when hosts were read that show it (monotonic
    seconds).
    """

    host: Host
    request: Request
    candidate: Candidate | None
    limits: Mapping[str, Any]
    since: float
    shown: float = math.inf


Flights = tuple[Flight, ...]


class InFlight:
    """The servers in flight, by the compute node that they go to."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        timeout: float | None = None,
    ) -> None:
        """``timeout`` are the seconds after which a server that is not shown is forgotten;
        else it is ``[novasched] in_flight_timeout``."""
        self.settings = settings
        self.timeout = settings.in_flight_timeout if timeout is None else timeout
        self._clock = clock
        self._flights: dict[str, Flights] = {}
        self._lock = threading.Lock()
        self._decision = threading.Lock()
        self._known: dict[str, tuple[Host, Flights, Host]] = {}

    def for_request(self, request: Request) -> InFlight:
        """What a request sees of the others, and they of it: nothing where the option
        switches it off, nor where nothing is claimed. Its own servers it always sees."""
        if self.timeout and request.claims:
            return self
        return InFlight(self.settings, self._clock, timeout=math.inf)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """While a decision lasts no other is made, so that each sees those before it."""
        mine = self._decision.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if mine:
                self._decision.release()

    def view(self, fleet: Fleet, uuids: Sequence[str], look: Unseen = UNSEEN) -> list[Host]:
        """Those of the hosts, less what is in flight to them and not shown by them."""
        with self._lock:
            self._forget_old()
            taken = {
                uuid: tuple(each for each in flights if each.shown > fleet.read_at)
                for uuid, flights in self._flights.items()
                if uuid in fleet.hosts
            }
        if not taken:
            return [fleet.hosts[uuid] for uuid in uuids]
        left = {uuid: self._after(fleet.hosts[uuid], taken[uuid]) for uuid in taken}
        look.deducted(taken, uuids)
        return [left.get(uuid) or fleet.hosts[uuid] for uuid in uuids]

    def add(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        limits: Mapping[str, Any],
    ) -> Flight:
        """Note that the request's server in hand goes to a host."""
        lasting = replace(request, origin=None)
        flight = Flight(host, lasting, candidate, limits, self._clock())
        with self._lock:
            self._flights[host.uuid] = (*self._flights.get(host.uuid, ()), flight)
        return flight

    def drop(self, flight: Flight) -> None:
        """It does not go there after all."""
        with self._lock:
            self._keep(flight.host.uuid, lambda each: each is not flight)

    def awaited(self, cell_uuid: str) -> list[str]:
        """The servers that hosts of a cell do not show yet, by UUID."""
        with self._lock:
            every = [each for flights in self._flights.values() for each in flights]
        return [
            each.request.instance_uuid
            for each in every
            if each.shown == math.inf
            and each.request.instance_uuid
            and each.host.cell_uuid == cell_uuid
        ]

    def seen(self, arrived: Mapping[str, str | None], moment: float) -> None:
        """Hosts that were read at that moment show these servers: by UUID the name of the
        host that each is on, None for one that is gone."""
        if not arrived:
            return
        with self._lock:
            for flight in [each for flights in self._flights.values() for each in flights]:
                uuid = flight.request.instance_uuid or ''
                if uuid in arrived and arrived[uuid] in (None, flight.host.host):
                    flight.shown = min(flight.shown, moment)

    def count(self) -> int:
        """How many servers are on their way, for the operator."""
        with self._lock:
            self._forget_old()
            return sum(map(len, self._flights.values()))

    def _forget_old(self) -> None:
        now = self._clock()
        for uuid in list(self._flights):
            self._keep(
                uuid,
                lambda each: each.since + self.timeout > now and each.shown + SETTLED > now,
            )

    def _keep(self, uuid: str, wanted: Callable[[Flight], bool]) -> None:
        flights = self._flights.get(uuid, ())
        if all(map(wanted, flights)):
            return
        left = tuple(filter(wanted, flights))
        if left:
            self._flights[uuid] = left
        else:
            del self._flights[uuid]
            self._known.pop(uuid, None)

    def _after(self, host: Host, flights: Flights) -> Host:
        """The host with those servers on it; what was found out for the first of them is
        not found out again."""
        base, before, left = self._known.get(host.uuid, (host, (), host))
        if base is not host or flights[: len(before)] != before:
            before, left = (), host
        for each in flights[len(before) :]:
            left = fitting.after(left, each.request, each.candidate, each.limits, self.settings)
        self._known[host.uuid] = host, flights, left
        return left
