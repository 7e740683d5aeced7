# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a cloud of its own: it decides one request after the other, and each
finds the hosts and Placement as those before it have left them. All is read once; from
then on instances are claimed and placed in memory."""

import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from random import Random

from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import record_of
from novasched.observe.records.record import Diagnosis, Record
from novasched.observe.records.recorder import Diagnose
from novasched.placement import query
from novasched.placement.client import CandidatesWithSummaries
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import (
    FreeResources,
    HostCache,
    MemoryPlacement,
)
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates
from novasched.scheduler.model.host import Host, Selection
from novasched.scheduler.model.request import InstanceGroup, Request
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.ports import Hosts


class SimulatedHosts(HostCache):
    """Real hosts, read once, and once more where a plugin turns out to need their
    instances. Instances that were placed stay, and are built at once."""

    def __init__(self, source: Hosts, settings: Settings, moment: float) -> None:
        """:param moment: nothing older is used (monotonic seconds)."""
        super().__init__(source, settings, Basis(began=moment, read_since=moment))
        self._placed: list[tuple[Request, Selection]] = []

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, and put the instances there again that were placed before."""
        super().refresh(instances, images)
        for request, selection in self._placed:
            super().place(request, selection)
        return self.hosts

    def place(self, request: Request, selection: Selection) -> None:
        self._placed.append((request, selection))
        super().place(request, selection)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget at the end what was placed within."""
        hosts = dict(self.all())
        detail = self._detail
        placed = len(self._placed)
        try:
            yield
        finally:
            self.hosts = hosts
            self._detail = detail
            del self._placed[placed:]

    def _with_instance(
        self, host: Host, request: Request, selection: Selection
    ) -> Host:
        after = super()._with_instance(host, request, selection)
        return replace(after, num_io_ops=host.num_io_ops)


class CandidatesLeft:
    """The candidates of one query, without those that do not fit any more.

    A claim never makes room, and the units and steps of an inventory do not depend on
    its usage: later answers of Placement are a part of the first one.
    """

    def __init__(self, candidates: Sequence[Candidate], free: FreeResources) -> None:
        self._free = free
        self._candidates = candidates
        self._amounts = [each.resources() for each in candidates]
        self._indexes: dict[str, list[int]] = defaultdict(list)
        for index, amounts in enumerate(self._amounts):
            for provider in amounts:
                self._indexes[provider].append(index)
        self._gone: dict[int, frozenset[str]] = {}
        self._seen = 0
        self._fitting: CandidateIndex | None = None

    def fitting(self) -> CandidateIndex:
        """The candidates that fit, in Placement's order; the same object as long as
        they stay."""
        self._follow()
        if self._fitting is None:
            self._fitting = CandidateIndex(
                each
                for index, each in enumerate(self._candidates)
                if index not in self._gone
            )
        return self._fitting

    def first(self, number: int) -> Sequence[Candidate]:
        """The first of them, so many."""
        self._follow()
        fit = (
            each
            for index, each in enumerate(self._candidates)
            if index not in self._gone
        )
        return [*islice(fit, number)]

    def lacking(self) -> Counter[frozenset[str]]:
        """The numbers of candidates that are gone, by the resource classes that they
        lack."""
        self._follow()
        return Counter(self._gone.values())

    def amount(self, name: str) -> int:
        """The least amount of a resource class that a candidate takes from one
        provider."""
        return min(
            amounts[name]
            for each in self._amounts
            for amounts in each.values()
            if name in amounts
        )

    def _follow(self) -> None:
        """Look again at the candidates on providers that have changed."""
        for provider in {*self._free.changes[self._seen :]}:
            for index in self._indexes.get(provider, ()):
                lacking = self._free.lacking(self._amounts[index])
                if bool(lacking) != (index in self._gone):
                    self._fitting = None
                if lacking:
                    self._gone[index] = lacking
                else:
                    self._gone.pop(index, None)
        self._seen = len(self._free.changes)


class SimulatedPlacement(MemoryPlacement):
    """Placement as it would be after the claims of the simulation: each query is asked
    once, for all candidates, and answered from memory ever after.

    :param ask: asks Placement.
    :ivar beyond: how many candidates the limit kept from the last request. Placement
        may pick others than the first ones that it named.
    """

    def __init__(
        self, ask: Callable[[query.Query], CandidatesWithSummaries], settings: Settings
    ) -> None:
        super().__init__({})
        self.settings = settings
        self.beyond = 0
        self._ask = ask
        self._offers: dict[str, CandidatesLeft] = {}

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        """See :class:`novasched.scheduler.ports.Placement`. The limit of the query is
        kept to.

        :raises PlacementUnavailable: it is asked, and does not answer.
        """
        most = query.limit(request, self.settings)
        offers = self._candidates(request)
        found = [offer.fitting() for offer in offers]
        if most is not None:
            self.beyond = sum(max(0, each.count - most) for each in found)
        else:
            self.beyond = 0
        if len(found) == 1 and not self.beyond:
            return found[0]
        number = sys.maxsize if most is None else most
        return CandidateIndex(
            chain.from_iterable(offer.first(number) for offer in offers)
        )

    def shortage(self, request: Request) -> tuple[Diagnosis | None, Counter[str]]:
        """The resource classes without any one of which a candidate would be left, None
        if there was none to begin with; and the numbers of candidates that are gone, by
        what they lack."""
        single = Counter[str]()
        full = Counter[str]()
        for offer in self._candidates(request):
            for lacking, number in offer.lacking().items():
                full[' and '.join(sorted(lacking))] += number
                if len(lacking) == 1:
                    (name,) = lacking
                    single[f'{offer.amount(name)} {name}'] += number
        return (
            Diagnosis(tuple(name for name, _ in single.most_common())) if full else None
        ), full

    def _candidates(self, request: Request) -> list[CandidatesLeft]:
        """The candidates of each query of a request."""
        found = []
        for each in query.build_all(replace(request, unlimited=True), self.settings):
            if each.string not in self._offers:
                answer = self._ask(each)
                for provider, summary in answer.provider_summaries.items():
                    stocks = summary.resources.items()
                    left = {name: stock.capacity_left for name, stock in stocks}
                    # Claims have changed those that are known.
                    self.free.by_provider.setdefault(provider, left)
                self._offers[each.string] = CandidatesLeft(
                    answer.allocation_requests, self.free
                )
            found.append(self._offers[each.string])
        return found


@dataclass(frozen=True, slots=True)
class SimulatedDecision:
    """Result of a request.

    :ivar beyond: the number of candidates beyond the limit of the query.
    :ivar full: the numbers of candidates that are gone, by the resource classes that
        they lack.
    """

    decision: Decision
    diagnosis: Diagnosis | None = None
    beyond: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    def record(self, number: int) -> Record:
        """The record of it; no times, which differ from one run to the next."""
        record = record_of(self.decision, f'simulated-{number}', 0.0)
        return replace(record, steps={}, diagnosis=self.diagnosis)


class Simulator:
    """Decides, and remembers what it decided.

    :param real: the scheduler that nova.conf describes; of it nothing is changed.
    :param moment: nothing that is older is used (monotonic seconds).
    :ivar diagnose: finds out why Placement itself offers nothing.
    """

    diagnose: Diagnose | None = None

    def __init__(
        self,
        real: FilterScheduler,
        placement: SimulatedPlacement,
        seed: int,
        moment: float,
    ) -> None:
        settings = self.settings = real.pipeline.settings
        self.placement = placement
        self.simulated_hosts = SimulatedHosts(real.parts.hosts, settings, moment)
        self._random = Random(seed)
        self._moment = moment
        self._groups: dict[str, InstanceGroup] = {}
        self._diagnoses: dict[str, Diagnosis] = {}
        self._driver = FilterScheduler(
            Parts(
                settings,
                real.parts.prefilters,
                placement,
                self.simulated_hosts,
                [each.plugin for each in real.pipeline.filters],
                [each.plugin for each in real.pipeline.weighers],
                PendingClaims(
                    settings, timeout=0
                ),  # what was decided before, hosts show
            )
        )

    @property
    def hosts(self) -> Sequence[Host]:
        """All hosts as they are by now, in the order of their names."""
        hosts = self.simulated_hosts.all().values()
        return sorted(hosts, key=lambda host: (host.host, host.nodename))

    def read_all(self) -> Mapping[str, str]:
        """Read all hosts with all that any request may need of their instances.

        :returns: the host of each instance, by its UUID.
        """
        images = any(
            each.plugin.reads_images for each in self._driver.pipeline.weighers
        )
        hosts = self.simulated_hosts.all(True, images).values()
        return {uuid: host.host for host in hosts for uuid in host.instances}

    def new_uuids(self, number: int) -> tuple[str, ...]:
        draw = self._random.getrandbits
        return tuple(str(uuid.UUID(int=draw(128), version=4)) for _ in range(number))

    def anew(self, request: Request) -> Request:
        """The same request for other instances; a rebuild is for the one that it
        names."""
        if request.is_rebuild:
            return request
        uuids = self.new_uuids(request.count)
        return replace(request, instance_uuids=uuids, instance_uuid=uuids[0])

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end what was decided within, so that the next trial begins
        alike."""
        draws = self._random.getstate()
        groups = dict(self._groups)
        before = {*self.placement.allocations}
        try:
            with self.simulated_hosts.trial():
                yield
        finally:
            for claim in self.placement.allocations.keys() - before:
                self.placement.delete_allocations(claim)
            self._random.setstate(draws)
            self._groups = groups

    def decide(self, request: Request) -> SimulatedDecision:
        """Place the instances of a request, or refuse it.

        :raises NovaschedError: it cannot be decided: Placement or a database is away.
        """
        return self.decide_as_it_is(self._known(request))

    def decide_as_it_is(self, request: Request) -> SimulatedDecision:
        """The same for a request that has its group as it is by now.

        :raises NovaschedError: it cannot be decided: Placement or a database is away.
        """
        basis = Basis(began=self._moment, read_since=self._moment)
        seed = self._random.getrandbits(32)
        decision = self._driver.decide(request, seed, basis)
        if decision.refusal is not None:
            return self._refused(decision)
        chosen = [selections[0] for selections in decision.selections]
        if not request.is_rebuild:
            self._place(request, chosen)
        return SimulatedDecision(decision)

    def _place(self, request: Request, chosen: Sequence[Selection]) -> None:
        uuids = request.instance_uuids or [None] * len(chosen)
        for consumer, selection in zip(uuids, chosen, strict=True):
            self.simulated_hosts.place(request.for_instance(consumer), selection)
        group = request.instance_group
        if group is not None and group.uuid:
            hosts = group.hosts.union(each.service_host for each in chosen)
            members = group.members.union(request.instance_uuids or ())
            self._groups[group.uuid] = replace(group, hosts=hosts, members=members)

    def _known(self, request: Request) -> Request:
        """The request with the instances that its group has got meanwhile."""
        group = request.instance_group
        if group is None:
            return request
        known = self._groups.get(group.uuid or '', group)
        members = group.members.union(known.members, request.instance_uuids or ())
        group = replace(group, hosts=group.hosts | known.hosts, members=members)
        return replace(request, instance_group=group)

    def _refused(self, decision: Decision) -> SimulatedDecision:
        """A refusal, with the constraints without which Placement would offer a
        candidate."""
        counts = decision.counts
        asked = decision.narrowed
        placement = self.placement
        if asked is None or counts is None or not counts.asked:
            return SimulatedDecision(decision)
        diagnosis, full = placement.shortage(asked)
        if counts.candidates:
            diagnosis = None
        elif diagnosis is None and self.diagnose is not None:
            with suppress(NovaschedError):
                string = query.build(asked, self.settings).string
                if string not in self._diagnoses:
                    self._diagnoses[string], _ = self.diagnose(decision)
                diagnosis = self._diagnoses[string]
        return SimulatedDecision(decision, diagnosis, placement.beyond, full)
