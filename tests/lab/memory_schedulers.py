# SPDX-License-Identifier: Apache-2.0
"""Schedulers over hosts and a Placement in memory."""

from dataclasses import dataclass, field

from novasched.conf.settings import Settings
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.placement.query import build
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import MemoryHosts, MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from tests.lab.builders import a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.provider_trees import ASKED_AT, an_answer


def a_driver(
    hosts,
    *filters,
    placement=None,
    slots=10,
    weighers=(),
    notifier=None,
    kind=FilterScheduler,
    **settings,
):
    """A driver over hosts.

    :param filters: classes of filters, or filters.
    :param slots: the number of claims that Placement accepts on each host.
    :param weighers: classes of weighers, or weighers.
    :param kind: the class of the driver.
    """
    values = Settings(**settings)
    memory_hosts = hosts if isinstance(hosts, MemoryHosts) else MemoryHosts(hosts)
    if not placement:
        placement = CountingPlacement(dict.fromkeys(memory_hosts.hosts, slots))

    return kind(
        SchedulerDeps(
            values,
            [],
            placement,
            memory_hosts,
            _instantiated(filters, values),
            _instantiated(weighers, values),
            notifier=notifier,
        )
    )


class PlacementOfTrees(MemoryPlacement):
    """A Placement whose candidates are worked out from the trees of hosts."""

    def __init__(self, providers):
        super().__init__({provider.name: provider.free for provider in providers})
        self._answer = an_answer(providers)

    def candidates(self, request, basis=FRESH):
        local = build(request, Settings()).local
        matched = match(self._answer, local.trees, self._answer.capacity_left)
        return LocalCandidates([matched], ASKED_AT)


def _instantiated(plugins, settings):
    """Plugins from plugins and classes of plugins."""
    instances = []
    for plugin in plugins:
        if isinstance(plugin, type):
            plugin = plugin(settings)
        instances.append(plugin)
    return instances


def ask(driver, **fields):
    """The host of each instance of a request, followed by the alternates."""
    selections = driver.select_destinations(a_request(**fields))
    hosts = []
    for row in selections:
        hosts.append([selection.service_host for selection in row])
    return hosts


class ManualClock:
    """A clock of monotonic seconds. Tests move the clock.

    :ivar now: the time of the clock.
    """

    now = 1000.0

    def __call__(self):
        return self.now


@dataclass
class RecordingNotifier:
    """Keeps the notifications of a driver.

    :ivar sent: phase, UUID of the current instance and names of the chosen hosts of
        each notification.
    """

    sent: list[tuple[str, str | None, list[str]]] = field(default_factory=list)

    def started(self, request):
        self.sent.append(('start', request.instance_uuid, []))

    def ended(self, request, claims):
        hosts = [claim.host.host for claim in claims]
        self.sent.append(('end', request.instance_uuid, hosts))

    def close(self):
        """Do nothing: no notification waits to be sent."""
