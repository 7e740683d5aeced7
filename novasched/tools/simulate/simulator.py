# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a cloud in memory.

Hosts and candidates are read once. Claims and instances then change the copy in memory
only, and each request finds hosts and Placement as earlier requests have left them.
"""

import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random

from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import record_of
from novasched.observe.records.record import Diagnosis, Record
from novasched.observe.records.recorder import Diagnose
from novasched.placement import query
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.client import CandidatesWithSummaries
from novasched.placement.local_candidates import LocalCandidates
from novasched.placement.tree_search import SearchTooLong
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import (
    FreeResources,
    HostCache,
    MemoryPlacement,
)
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates
from novasched.scheduler.model.host import Host, Selection
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.ports import Hosts
from novasched.scheduler.shared_ledger import SharedLedger
from novasched.tools.simulate.trees import TreesLeft


class SimulatedHosts(HostCache):
    """The hosts in memory, with the simulated instances.

    The hosts are read once, and once more if a plugin needs their instances. Simulated
    instances are built at once.
    """

    def __init__(self, source: Hosts, settings: Settings, moment: float) -> None:
        """:param moment: time of the oldest usable data, in monotonic seconds."""
        super().__init__(source, settings, Basis(began=moment, read_since=moment))
        self._placed: list[tuple[Request, Selection]] = []

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, and place the simulated instances again."""
        super().refresh(instances, images)
        for request, selection in self._placed:
            super().place(request, selection)
        return self.hosts

    def place(self, request: Request, selection: Selection) -> None:
        self._placed.append((request, selection))
        super().place(request, selection)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget at the end the instances placed within the block."""
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
        # A new instance counts as an I/O operation until it is built.
        after = super()._with_instance(host, request, selection)
        return replace(after, num_io_ops=host.num_io_ops)


class CandidatesLeft:
    """The candidates of a query that still fit.

    A claim never makes room, and the units and steps of an inventory do not depend on
    its usage, so later answers of Placement are subsets of the first answer.

    :ivar _indexes: indexes of the candidates on each provider, by UUID.
    :ivar _gone: resource classes missing for each candidate that no longer fits.
    :ivar _seen: number of changes of free resources that are followed.
    """

    def __init__(self, candidates: Sequence[Candidate], free: FreeResources) -> None:
        self._free = free
        self._candidates = candidates
        self._amounts = [candidate.resources() for candidate in candidates]
        self._indexes: dict[str, list[int]] = defaultdict(list)
        for index, amounts in enumerate(self._amounts):
            for provider in amounts:
                self._indexes[provider].append(index)
        self._gone: dict[int, frozenset[str]] = {}
        self._seen = 0
        self._fitting: CandidateIndex | None = None

    def fitting(self) -> CandidateIndex:
        """The candidates that fit, in Placement's order; the same object until a
        candidate is gone or comes back."""
        self._follow()
        if self._fitting is None:
            self._fitting = CandidateIndex(self._iterate())
        return self._fitting

    def first(self, number: int) -> Sequence[Candidate]:
        """The first candidates that fit."""
        self._follow()
        return [*islice(self._iterate(), number)]

    def _iterate(self) -> Iterator[Candidate]:
        for index, candidate in enumerate(self._candidates):
            if index not in self._gone:
                yield candidate

    def lacking(self) -> Counter[frozenset[str]]:
        """The number of candidates that no longer fit, by missing resource classes."""
        self._follow()
        return Counter(self._gone.values())

    def amount(self, name: str) -> int:
        """The least amount of a resource class that a candidate takes from a
        provider."""
        taken = []
        for amounts_by_provider in self._amounts:
            for amounts in amounts_by_provider.values():
                if name in amounts:
                    taken.append(amounts[name])
        return min(taken)

    def _follow(self) -> None:
        """Compare candidates on changed providers with the free resources. A trial that
        ends gives resources back, so candidates may come back."""
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
    """Placement after the claims of the simulation. The real Placement is asked each
    query once, for all candidates; later answers come from memory.

    :param ask: asks the real Placement a query.
    :param ask_base: asks the real Placement a base query; None to ask for all
        candidates of devices.
    :ivar beyond: number of candidates beyond the limit of the last request. The real
        Placement may choose different candidates within the limit.
    """

    def __init__(
        self,
        ask: Callable[[query.Query], CandidatesWithSummaries],
        settings: Settings,
        ask_base: Callable[[query.LocalQuery], BaseAnswer] | None = None,
    ) -> None:
        super().__init__({})
        self.settings = settings
        self.beyond = 0
        self._ask = ask
        self._ask_base = ask_base
        self._offers: dict[str, CandidatesLeft] = {}
        # By base query and further resource classes; None if hosts share providers.
        self._trees: dict[tuple[str, frozenset[str]], TreesLeft | None] = {}

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        """The candidates within the limit of the query; see
        :class:`novasched.scheduler.ports.Placement`.

        :raises PlacementUnavailable: the real Placement does not answer.
        """
        worked_out = self._worked_out(request)
        if worked_out is not None:
            self.beyond = 0
            return worked_out

        offers = self._candidates(request)
        fitting = [offer.fitting() for offer in offers]
        limit = query.limit(request, self.settings)
        if limit is None:
            limit = sys.maxsize
        self.beyond = sum(max(0, index.count - limit) for index in fitting)
        if len(fitting) == 1 and not self.beyond:
            return fitting[0]

        within_limit: list[Candidate] = []
        for offer in offers:
            within_limit += offer.first(limit)
        return CandidateIndex(within_limit)

    def shortage(self, request: Request) -> tuple[Diagnosis | None, Counter[str]]:
        """The resource classes in the way of candidates.

        :returns: single resource classes without which a candidate would fit, None if
            there was no candidate at the beginning; and the number of candidates that
            no longer fit, by missing resource classes.
        """
        single = Counter[str]()
        full = Counter[str]()
        for lacks, amount_of in self._lacks(request):
            for lacking, number in lacks.items():
                full[' and '.join(sorted(lacking))] += number
                if len(lacking) == 1:
                    (name,) = lacking
                    single[f'{amount_of(name)} {name}'] += number
        if not full:
            return None, full
        return Diagnosis(tuple(name for name, _ in single.most_common())), full

    def _lacks(
        self, request: Request
    ) -> Iterator[tuple[Counter[frozenset[str]], Callable[[str], int]]]:
        """For each query of a request, the missing resource classes of hosts or
        candidates, and a function for the requested amount of a class."""
        local_queries = self._local_queries(request)
        if local_queries is not None:
            for local, trees in local_queries:
                yield trees.lacking(local.trees), local.trees.demand.__getitem__
            return
        for offer in self._candidates(request):
            yield offer.lacking(), offer.amount

    def _worked_out(self, request: Request) -> LocalCandidates | None:
        """Candidates from the trees of hosts; None if the real Placement is to be asked
        for all candidates."""
        local_queries = self._local_queries(request)
        if local_queries is None:
            return None

        matches = []
        for local, trees in local_queries:
            with suppress(SearchTooLong):
                matched = trees.match(local.trees)
                if matched is not None:
                    matches.append(matched)
        if len(matches) < len(local_queries):
            return None
        asked_at = min(trees.asked_at for _, trees in local_queries)
        return LocalCandidates(matches, asked_at)

    def _local_queries(
        self, request: Request
    ) -> list[tuple[query.LocalQuery, TreesLeft]] | None:
        """The queries of a request for devices, each with the trees of hosts; None if
        the real Placement is to be asked for all candidates."""
        local_queries = []
        for built in query.build_all(request, self.settings):
            local = built.local
            if local is None or local.is_for_placement:
                return None
            trees = self._trees_of(local)
            if trees is None:
                return None
            local_queries.append((local, trees))
        return local_queries

    def _trees_of(self, local: query.LocalQuery) -> TreesLeft | None:
        """The trees for a query; None if hosts share providers."""
        if self._ask_base is None:
            return None
        key = local.base, local.further_classes
        if key not in self._trees:
            trees = None
            with suppress(ValueError, KeyError):
                trees = TreesLeft(self._ask_base(local), self.free)
            self._trees[key] = trees
        return self._trees[key]

    def _candidates(self, request: Request) -> list[CandidatesLeft]:
        """The candidates of each query of a request."""
        unlimited = replace(request, unlimited=True)
        offers = []
        for question in query.build_all(unlimited, self.settings):
            if question.string not in self._offers:
                self._offers[question.string] = self._read(question)
            offers.append(self._offers[question.string])
        return offers

    def _read(self, question: query.Query) -> CandidatesLeft:
        """Ask the real Placement, and keep the free resources of new providers."""
        answer = self._ask(question)
        for provider, summary in answer.provider_summaries.items():
            free = {}
            for name, inventory in summary.resources.items():
                free[name] = inventory.capacity - inventory.used
            # The free resources of a known provider include simulated claims.
            self.free.by_provider.setdefault(provider, free)
        return CandidatesLeft(answer.allocation_requests, self.free)


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
    :ivar _groups: server groups with simulated members, by UUID.
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
        self.simulated_hosts = SimulatedHosts(real.deps.hosts, settings, moment)
        self._random = Random(seed)
        self._moment = moment
        self._groups: dict[str, ServerGroup] = {}
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
        images = any(enabled.plugin.reads_images for enabled in weighers)
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

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end the decisions within the block, with their draws: each trial
        starts from the same state."""
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
        """Place the instances of a request, or refuse the request.

        :raises NovaschedError: Placement or a database does not answer.
        """
        return self.decide_as_it_is(self._with_simulated_members(request))

    def decide_as_it_is(self, request: Request) -> SimulatedDecision:
        """Decide a request with an up-to-date server group.

        :raises NovaschedError: Placement or a database does not answer.
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
            hosts = group.hosts.union(selection.service_host for selection in chosen)
            members = group.members.union(request.instance_uuids or ())
            self._groups[group.uuid] = replace(group, hosts=hosts, members=members)

    def _with_simulated_members(self, request: Request) -> Request:
        """The request with the simulated instances in its server group."""
        group = request.instance_group
        if group is None:
            return request

        simulated = self._groups.get(group.uuid or '', group)
        members = group.members.union(simulated.members, request.instance_uuids or ())
        hosts = group.hosts | simulated.hosts
        return replace(
            request, instance_group=replace(group, hosts=hosts, members=members)
        )

    def _refused(self, decision: Decision) -> SimulatedDecision:
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
