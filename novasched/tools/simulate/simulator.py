# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a cloud in memory.

Hosts and candidates are read once. Claims and instances then change the copy in memory
only, and each request finds hosts and Placement as earlier requests have left them.
"""

import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
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
from novasched.placement.wire import UnusableAnswer
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.memory import (
    FreeResources,
    HostCache,
    MemoryPlacement,
)
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates
from novasched.scheduler.model.changes import ChangeLog
from novasched.scheduler.model.host import Host, HostSnapshot, Selection
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import NEEDS_NOTHING, Hosts, Needs
from novasched.tools.simulate.trees import TreesLeft


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """A simulated instance on its host.

    :ivar request: the request of this instance.
    :ivar fit: its NUMA cells and CPUs; None without a topology.
    """

    request: Request
    selection: Selection
    fit: Fit | None


class SimulatedHosts(HostCache):
    """The hosts in memory, with the simulated instances.

    The hosts are read once, and once more if a plugin needs their instances. Simulated
    instances are built at once.
    """

    def __init__(self, source: Hosts, settings: Settings, moment: float) -> None:
        """:param moment: time of the oldest usable data, in monotonic seconds."""
        super().__init__(source, settings, Basis(began=moment, read_since=moment))
        self._without_simulated: Mapping[str, Host] = {}
        self._changes = ChangeLog()
        # By compute node UUID and instance UUID.
        self._placed: dict[str, dict[Hashable, PlacedInstance]] = defaultdict(dict)

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, and place the simulated instances again."""
        self._without_simulated = dict(super().refresh(instances, images))
        self._changes = ChangeLog().with_step(())
        for placed_on_host in self._placed.values():
            for key, placed in placed_on_host.items():
                fit = super().place(placed.request, placed.selection)
                placed_on_host[key] = replace(placed, fit=fit)
        return self.hosts

    def is_on_forced_host(self, request: Request) -> bool:
        """True if the request forces a host: a recorded rebuild was checked when it was
        decided, and the instance may be gone by now."""
        return bool(request.force_hosts or request.force_nodes)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NEEDS_NOTHING,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """Read all hosts: later snapshots know the changes since."""
        snapshot = super().read(None, request, needs, basis)
        if len(snapshot.hosts) < snapshot.total:
            return snapshot
        return replace(snapshot, changes=self._changes)

    def place(self, request: Request, selection: Selection) -> Fit | None:
        """See :meth:`MemoryHosts.place`."""
        fit = super().place(request, selection)
        # Instances without a UUID stay until the end.
        key = request.instance_uuid or object()
        node_uuid = selection.compute_node_uuid
        self._placed[node_uuid][key] = PlacedInstance(request, selection, fit)
        self._changes = self._changes.with_step([node_uuid])
        return fit

    def remove(self, instance_uuid: str, node_uuid: str) -> Request:
        """Delete a simulated instance: the host is as if the instance had never come.
        The other instances keep their NUMA cells and CPUs.

        :returns: the request of the instance.
        """
        others = self._placed[node_uuid]
        removed = others.pop(instance_uuid)
        host = self._without_simulated.get(node_uuid)
        if host is None:
            # The compute node was deleted between two readings.
            return removed.request
        for placed in others.values():
            candidate = placed.selection.candidate
            host = self._with_instance(host, placed.request, candidate, placed.fit)
        self.hosts[node_uuid] = host
        self._changes = self._changes.with_step([node_uuid])
        return removed.request

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget at the end the instances placed within the block."""
        hosts = dict(self.all())
        without_simulated = self._without_simulated
        detail = self._detail
        placed = {node: dict(on_host) for node, on_host in self._placed.items()}
        try:
            yield
        finally:
            self.hosts = hosts
            self._changes = ChangeLog().with_step(())
            self._without_simulated = without_simulated
            self._detail = detail
            self._placed = defaultdict(dict, placed)

    def _with_instance(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        fit: Fit | None,
    ) -> Host:
        # A new instance counts as an I/O operation until it is built.
        after = super()._with_instance(host, request, candidate, fit)
        return replace(after, num_io_ops=host.num_io_ops)


class CandidatesLeft:
    """The candidates of a query that still fit.

    Only simulated claims make room when they end, and the units and steps of an
    inventory do not depend on its usage, so later answers of Placement are subsets of
    the first answer.

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
        """Compare candidates on changed providers with the free resources. Candidates
        come back when instances are deleted, or when a trial ends."""
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

    :param ask: asks the real Placement a query; None without a real Placement, where
        base queries must serve all requests.
    :param ask_base: asks the real Placement a base query; None to ask for all
        candidates of devices.
    :ivar beyond: number of candidates beyond the limit of the last request. The real
        Placement may choose different candidates within the limit.
    """

    def __init__(
        self,
        ask: Callable[[query.Query], CandidatesWithSummaries] | None,
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
        if self._ask is None:
            # All hosts are known, so that no limit matters.
            request = replace(request, unlimited=False)
        for built in query.build_all(request, self.settings):
            local = built.local
            if local is None:
                return None
            if local.is_for_placement and self._ask is not None:
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
        key = local.base.string, local.further_classes
        if key not in self._trees:
            trees = None
            with suppress(UnusableAnswer):
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
        """Ask the real Placement, and keep the free resources of new providers.

        :raises BadRequest: there is no real Placement.
        """
        if self._ask is None:
            raise BadRequest(f'only a real Placement answers {question.string}')
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
        # Candidates in memory are complete: a refusal stands.
        basis = Basis(began=self._moment, read_since=self._moment, own_query=True)
        seed = self._random.getrandbits(32)
        decision = self._driver.decide(request, seed, basis)
        if decision.refusal is not None:
            return self._refused(decision)

        chosen = [selections[0] for selections in decision.selections]
        if not decision.request.is_rebuild:
            self._place(request, chosen)
        return SimulatedDecision(decision)

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
