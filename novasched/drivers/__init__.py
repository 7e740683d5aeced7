# SPDX-License-Identifier: Apache-2.0
"""Scheduler drivers: what ``[scheduler] driver`` names. This is their contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from novasched.filters import Filter
from novasched.inflight import InFlight
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.model.settings import Settings
from novasched.ports import Hosts, Notices, Placement, Records
from novasched.prefilters import Prefilter
from novasched.weighers import Weigher


@dataclass(frozen=True, slots=True)
class Parts:
    """What a driver is made of: the ports, the plugins that the operator enabled, what
    is in flight for all drivers that go by that, whom to tell, and who keeps
    accounts."""

    settings: Settings
    prefilters: Sequence[Prefilter]
    placement: Placement
    hosts: Hosts
    filters: Sequence[Filter] = ()
    weighers: Sequence[Weigher] = ()
    in_flight: InFlight | None = None
    notices: Notices | None = None
    records: Records | None = None


class Driver(Protocol):
    """Answers requests; called by many threads at once.

    A driver may also have a method ``periodic()``, which is called when a worker starts and
    then every ``[scheduler] periodic_task_interval`` seconds; what it raises is logged.
    """

    def __init__(self, parts: Parts) -> None: ...

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """A host for each server, with alternates behind it.

        :raises NoValidHost: not every server found a host; nothing stays claimed.
        """
