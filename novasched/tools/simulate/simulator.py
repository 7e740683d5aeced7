# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a cloud in memory.

Hosts and candidates are read once. Claims and instances then change the copy in memory
only, and each request finds hosts and Placement as earlier requests have left them.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

from novasched.conf.errors import NovaschedError
from novasched.observe.records.from_decision import record_of
from novasched.observe.records.record import Diagnosis, Record
from novasched.observe.records.recorder import Diagnose
from novasched.placement import query
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.host import Host, Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data
from novasched.scheduler.weighers import Weigher
from novasched.tools.simulate.simulated_hosts import SimulatedHosts
from novasched.tools.simulate.simulated_placement import SimulatedPlacement


@dataclass(frozen=True, slots=True)
class SimulatedDecision:
    """Result of a request.

    :ivar beyond: number of candidates beyond the limit of the query.
    :ivar full: number of candidates that no longer fit, by missing resource classes.
    """

    decision: Decision
    diagnosis: Diagnosis | None = None
    beyond: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    def record(self, number: int) -> Record:
        """The record of the decision, without times: the same simulation has the same
        record."""
        record = record_of(self.decision, f'simulated-{number}', 0.0)
        return replace(record, steps={}, diagnosis=self.diagnosis)


class Simulator:
    """Decides requests, and claims and places their instances in memory.

    :param real: the scheduler of nova.conf; it is not changed.
    :param moment: time of the oldest usable data, in monotonic seconds.
    :ivar diagnose: finds out why the real Placement offers no candidate.
    :ivar _diagnoses: diagnoses by query.
    """

    diagnose: Diagnose | None = None

    def __init__(
        self,
        real: FilterScheduler,
        placement: SimulatedPlacement,
        seed: int,
        moment: float,
    ) -> None:
        settings = real.pipeline.settings
        self.settings = settings
        self.placement = placement
        self.simulated_hosts = SimulatedHosts(
            real.deps.hosts, settings, moment, placement.has_all_providers
        )
        self._random = Random(seed)
        self._moment = moment
        # The hosts of simulated members, by UUID of the server group and of the member.
        self._members: dict[str, dict[str, str]] = defaultdict(dict)
        self._diagnoses: dict[str, Diagnosis] = {}
        # Simulated hosts have their instances at once, so no claim is pending.
        pending_claims = PendingClaims(settings, SharedLedger(timeout=0))
        deps = SchedulerDeps(
            settings,
            real.deps.prefilters,
            placement,
            self.simulated_hosts,
            [enabled.plugin for enabled in real.pipeline.filters],
            [enabled.plugin for enabled in real.pipeline.weighers],
            pending_claims,
        )
        self._driver = FilterScheduler(deps)

    def driver_with(self, weigher: Weigher) -> FilterScheduler:
        """A driver with a single weigher, and without draws among the best hosts. The
        cloud is that of the simulator."""
        settings = replace(
            self.settings, host_subset_size=1, shuffle_best_same_weighed_hosts=False
        )
        deps = replace(self._driver.deps, settings=settings, weighers=[weigher])
        driver = FilterScheduler(deps)
        driver.pipeline.explained_hosts = 0
        return driver

    @property
    def hosts(self) -> Sequence[Host]:
        """All hosts with the simulated instances, in the order of their names."""
        hosts = self.simulated_hosts.all().values()
        return sorted(hosts, key=lambda host: (host.host, host.nodename))

    def read_all(self) -> Mapping[str, str]:
        """Read all hosts with their instances, and with images if a weigher needs them.

        :returns: the host of each instance, by UUID.
        """
        weighers = self._driver.pipeline.weighers
        images = any(Data.IMAGES in enabled.plugin.reads for enabled in weighers)
        whereabouts = {}
        for host in self.simulated_hosts.all(True, images).values():
            whereabouts.update(dict.fromkeys(host.instances, host.host))
        return whereabouts

    def new_uuids(self, number: int) -> tuple[str, ...]:
        draw = self._random.getrandbits
        return tuple(str(uuid.UUID(int=draw(128), version=4)) for _ in range(number))

    def anew(self, request: Request) -> Request:
        """The request for new instances. A rebuild stays the same, since it names an
        existing instance."""
        if request.is_rebuild:
            return request
        uuids = self.new_uuids(request.count)
        return replace(request, instance_uuids=uuids, instance_uuid=uuids[0])

    def leave_out_weights(self) -> None:
        """Explain the weights of no host from now on: decisions are faster."""
        self._driver.pipeline.explained_hosts = 0

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end the decisions within the block, with their draws: each trial
        starts from the same state."""
        draws = self._random.getstate()
        members = {group: dict(hosts) for group, hosts in self._members.items()}
        before = {*self.placement.allocations}
        try:
            with self.simulated_hosts.trial():
                yield
        finally:
            for claim in self.placement.allocations.keys() - before:
                self.placement.delete_allocations(claim)
            self._random.setstate(draws)
            self._members = defaultdict(dict, members)

    def decide(self, request: Request) -> SimulatedDecision:
        """Place the instances of a request, or refuse the request.

        :raises NovaschedError: Placement or a database does not answer.
        """
        return self.decide_as_it_is(self._with_simulated_members(request))

    def decide_as_it_is(self, request: Request) -> SimulatedDecision:
        """Decide a request with an up-to-date server group.

        :raises NovaschedError: Placement or a database does not answer.
        """
        decision = self._decision(self._driver, request)
        if decision.refusal is not None:
            return self.explained(decision)

        chosen = [selections[0] for selections in decision.selections]
        if not decision.request.is_rebuild:
            self._place(request, chosen)
        return SimulatedDecision(decision)

    def choice(
        self, request: Request, driver: FilterScheduler | None = None
    ) -> Decision:
        """Decide a request with an up-to-date server group, and leave the cloud as it
        is.

        :param driver: see :meth:`driver_with`; None for the driver of nova.conf.
        :raises NovaschedError: Placement or a database does not answer.
        """
        decision = self._decision(driver or self._driver, request)
        if decision.refusal is None:
            for instance_uuid in request.instance_uuids or ():
                self.placement.delete_allocations(instance_uuid)
        return decision

    def _decision(self, driver: FilterScheduler, request: Request) -> Decision:
        # Candidates in memory are complete: a refusal stands.
        basis = Basis(began=self._moment, read_since=self._moment, own_query=True)
        seed = self._random.getrandbits(32)
        return driver.decide(request, seed, basis)

    def _place(self, request: Request, chosen: Sequence[Selection]) -> None:
        uuids = request.instance_uuids or [None] * len(chosen)
        for consumer, selection in zip(uuids, chosen, strict=True):
            self.simulated_hosts.place(request.for_instance(consumer), selection)

        group = request.instance_group
        if group is not None and group.uuid:
            for consumer, selection in zip(uuids, chosen, strict=True):
                if consumer is not None:
                    self._members[group.uuid][consumer] = selection.service_host

    def delete(self, instance_uuid: str, node_uuid: str) -> None:
        """Delete a simulated instance from its compute node, from Placement, and from
        its server group."""
        self.placement.delete_allocations(instance_uuid)
        request = self.simulated_hosts.remove(instance_uuid, node_uuid)
        group = request.instance_group
        if group is not None and group.uuid:
            del self._members[group.uuid][instance_uuid]

    def forget(
        self, instance_uuid: str, node_uuid: str, group_uuid: str | None
    ) -> None:
        """Forget a simulated instance, which its host and Placement do not have any
        more.

        :param node_uuid: the compute node on which the instance was placed.
        """
        self.placement.allocations.pop(instance_uuid, None)
        self.simulated_hosts.forget(instance_uuid, node_uuid)
        if group_uuid is not None:
            self._members[group_uuid].pop(instance_uuid, None)

    def note_member(
        self, group_uuid: str | None, instance_uuid: str, host: str
    ) -> None:
        """Note the host of a member of a server group."""
        if group_uuid is not None:
            self._members[group_uuid][instance_uuid] = host

    def _with_simulated_members(self, request: Request) -> Request:
        """The request with the simulated instances in its server group."""
        group = request.instance_group
        if group is None:
            return request

        simulated = self._members[group.uuid or '']
        members = group.members.union(simulated, request.instance_uuids or ())
        hosts = group.hosts.union(simulated.values())
        return replace(
            request, instance_group=replace(group, hosts=hosts, members=members)
        )

    def explained(self, decision: Decision) -> SimulatedDecision:
        """The refusal with a diagnosis of missing candidates."""
        counts = decision.counts
        narrowed = decision.prefiltered
        if narrowed is None or counts is None or not counts.asked:
            return SimulatedDecision(decision)

        diagnosis, full = self.placement.shortage(narrowed)
        if counts.candidates:
            # Filters have refused the request.
            diagnosis = None
        elif diagnosis is None and self.diagnose is not None:
            # Simulated claims are not the reason, so the real Placement knows it. The
            # refusal stands without a diagnosis if Placement does not answer.
            with suppress(NovaschedError):
                string = query.build(narrowed, self.settings).string
                if string not in self._diagnoses:
                    self._diagnoses[string], _ = self.diagnose(decision)
                diagnosis = self._diagnoses[string]
        return SimulatedDecision(decision, diagnosis, self.placement.beyond, full)
