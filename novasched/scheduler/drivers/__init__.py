# SPDX-License-Identifier: Apache-2.0
"""Scheduler drivers: what ``[scheduler] driver`` names. This is their contract."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from novasched.conf.settings import Settings
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.decision import Decision
from novasched.scheduler.filters import Filter
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import Hosts, Notifier, Placement
from novasched.scheduler.prefilters import Prefilter
from novasched.scheduler.weighers import Weigher


@dataclass(frozen=True, slots=True)
class SchedulerDeps:
    """The dependencies of a driver: the ports, the enabled plugins, the pending claims
    that drivers share, and the observers of decisions.

    :ivar recorder: receives every decision; it raises nothing and returns at once.
    :ivar explain: the text about a refusal that follows nova's reason in the fault.
    :ivar clock: a monotonic clock in seconds, for the duration of steps.
    """

    settings: Settings
    prefilters: Sequence[Prefilter]
    placement: Placement
    hosts: Hosts
    filters: Sequence[Filter] = ()
    weighers: Sequence[Weigher] = ()
    pending_claims: PendingClaims | None = None
    notifier: Notifier | None = None
    recorder: Callable[[Decision], None] | None = None
    explain: Callable[[Decision], str] | None = None
    clock: Callable[[], float] = time.perf_counter

    @property
    def reads_caller(self) -> bool:
        """True if a filter or weigher reads the context of the caller."""
        plugins = (*self.filters, *self.weighers)
        return any(Data.CALLER in plugin.reads for plugin in plugins)


class Driver:
    """Answers requests, in many threads at once. The base class of all drivers."""

    def __init__(self, deps: SchedulerDeps) -> None:
        self.deps = deps

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """A host for each instance, followed by alternates.

        :raises NoValidHost: an instance has no valid host; nothing stays claimed.
        """
        raise NotImplementedError

    def periodic(self) -> None:
        """Do the periodic task: when a worker starts, and then every ``[scheduler]
        periodic_task_interval`` seconds. Errors are logged."""

    def make_room(self) -> None:
        """Note that all threads are busy while messages wait; called repeatedly."""

    def stop(self, seconds: float) -> None:
        """End soon, since the process ends.

        :param seconds: the time that requests in progress still have.
        """
