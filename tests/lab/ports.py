# SPDX-License-Identifier: Apache-2.0
"""Ports kept in memory: a Placement that counts, drivers over it, with the decisions
kept, and what prefilters look up."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from novasched.conf.settings import Settings
from novasched.observe.records import from_decision, render
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.placement.candidates import AskedCandidates
from novasched.placement.client import CandidatesWithSummaries
from novasched.placement.query import Query
from novasched.placement.wire import ProviderSummary, ProviderSummaryResource
from novasched.plugins import loading
from novasched.rpc.peers import PeerSchedulers
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import NetworkUnavailable, NoValidHost
from novasched.scheduler.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.memory import MemoryHosts, MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.prefilters import Port, Prefilter, Sources
from novasched.scheduler.weighers.ram import RAMWeigher
from novasched.tools.simulate.simulator import SimulatedPlacement, Simulator
from tests.lab.builders import a_candidate, a_request
from tests.lab.processes import wait_until


class CountingPlacement(MemoryPlacement):
    """Gives a host so many claims as ``slots`` says, all of one size."""

    def __init__(self, slots, stale=()):
        free = {provider: {'VCPU': number} for provider, number in slots.items()}
        super().__init__(free, resources=lambda request: {'VCPU': 1}, stale=stale)

    @property
    def slots(self):
        """The claims that each provider has left."""
        return {rp: amounts['VCPU'] for rp, amounts in self.free.by_provider.items()}

    @property
    def hosts(self):
        return {uuid: next(iter(amounts)) for uuid, amounts in self.allocations.items()}

    def claim_together(self, wanted, basis=FRESH):
        for request, _ in wanted:
            assert request.instance_uuid
            assert request.instance_uuid not in self.allocations
        return super().claim_together(wanted, basis)


class TraitsPlacement(CountingPlacement):
    """Says, too, which traits providers have."""

    def __init__(self, slots, traits):
        super().__init__(slots)
        self.traits = {
            provider: {'traits': [*names]} for provider, names in traits.items()
        }

    def candidates(self, request, basis=FRESH):
        offered = chain.from_iterable(super().candidates(request, basis).values())
        return AskedCandidates(
            offered, [json.dumps({'provider_summaries': self.traits}).encode()]
        )


def a_driver(
    hosts,
    *plugins,
    placement=None,
    slots=10,
    weighers=(),
    notifier=None,
    kind=FilterScheduler,
    **settings,
):
    """A driver over hosts that Placement has so many slots on; filters and weighers are
    classes, or are made already."""
    values = Settings(**settings)
    source = hosts if isinstance(hosts, MemoryHosts) else MemoryHosts(hosts)
    made = [
        [x(values) if isinstance(x, type) else x for x in row]
        for row in (plugins, weighers)
    ]
    counting = placement or CountingPlacement(dict.fromkeys(source.hosts, slots))
    return kind(SchedulerDeps(values, [], counting, source, *made, notifier=notifier))


def ask(driver, **fields):
    """The host of each instance of a request, with its alternates behind it."""
    rows = driver.select_destinations(a_request(**fields))
    return [[selection.service_host for selection in row] for row in rows]


class Bus:
    """A broker between schedulers: each has a queue, and all get the same order."""

    def __init__(self):
        self.queues = []
        self.lock = Lock()

    def send(self, text):
        with self.lock:
            for each in self.queues:
                each.put(text)

    @contextmanager
    def between(self, *all_claims):
        """The peers of each, once all have heard of all."""
        peers = [
            PeerSchedulers(each.ledger, f'controller{i}', 30.0)
            for i, each in enumerate(all_claims)
        ]
        for claims, its in zip(all_claims, peers, strict=True):
            claims.peers = its
        self.queues = [SimpleQueue() for _ in peers]
        over = Event()

        def speak(each):
            with each.sending():
                while not over.is_set():
                    for text in each.announcements():
                        self.send(text)

        def listen(each, queue):
            with each.receiving():
                while text := queue.get():
                    each.receive(text)

        work = [partial(speak, each) for each in peers]
        work += [
            partial(listen, *pair) for pair in zip(peers, self.queues, strict=True)
        ]
        threads = [Thread(target=each) for each in work]
        for thread in threads:
            thread.start()
        try:
            wait_until(
                lambda: all(x.position[1] == len(peers) for x in peers), 30, 'all peers'
            )
            yield peers
        finally:
            over.set()
            for each in peers:
                each.wake()
            self.send(b'')
            for thread in threads:
                thread.join()


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self):
        return self.now


@dataclass
class Audience:
    """Remembers what it is told: the phase, the server in hand, and the hosts
    chosen."""

    heard: list[tuple[str, str | None, list[str]]] = field(default_factory=list)

    def started(self, request):
        self.heard.append(('start', request.instance_uuid, []))

    def ended(self, request, flights):
        self.heard.append(
            ('end', request.instance_uuid, [x.host.host for x in flights])
        )

    def close(self):
        """Nobody waits."""


@dataclass
class StillAggregates:
    """Aggregates that nobody changes."""

    rows: Sequence[Aggregate]

    def all(self, since):
        return self.rows


@dataclass
class StillNetwork:
    """Ports by UUID, and the aggregates of networks and subnets; what is not among them
    Neutron fails to answer for."""

    known: Mapping[str, Port]
    aggregates: Mapping[str, Collection[str]] = field(default_factory=dict)
    down: bool = False
    asked: int = 0

    def ports(self, uuids):
        self.asked += 1
        if self.down:
            raise NetworkUnavailable('down')
        return {uuid: self.known[uuid] for uuid in uuids if uuid in self.known}

    def network_aggregates(self, uuid):
        if uuid not in self.aggregates:
            raise NetworkUnavailable(f'what is {uuid}?')
        return frozenset(self.aggregates[uuid])

    subnet_aggregates = network_aggregates


def sources(*aggregates, network=None):
    """What prefilters look up; each argument is all that there is of its kind."""
    return Sources(StillAggregates(aggregates), network)


class Notebook:
    """Keeps decisions as they are; a second passes between any two looks at its
    clock."""

    def __init__(self):
        self.decisions: list[Decision] = []
        self._seconds = count(1.0)

    def clock(self):
        return next(self._seconds)

    def __call__(self, decision):
        self.decisions.append(decision)

    @property
    def records(self):
        """The records of the decisions."""
        return [record_of(decision) for decision in self.decisions]


class Calling(Prefilter):
    """A function in the place of a prefilter."""

    def __init__(self, function):
        self._function = function

    def __call__(self, request, basis=FRESH):
        return self._function(request, basis)


class Decided:
    """A driver over hosts with so much room, and what it decided."""

    def __init__(
        self,
        hosts,
        placement=None,
        filters=None,
        prefilters=(),
        settings=None,
        clock=None,
    ):
        values = settings or Settings()
        self.notebook = Notebook()
        self.driver = FilterScheduler(
            SchedulerDeps(
                values,
                [*map(Calling, prefilters)],
                placement or CountingPlacement({host.uuid: 9 for host in hosts}),
                MemoryHosts(hosts),
                loading.filters(values) if filters is None else filters,
                loading.weighers(values),
                recorder=self.notebook,
                explain=render.explained if values.fault_detail == 'counts' else None,
                clock=clock or self.notebook.clock,
            )
        )

    def ask(self, request):
        """Decide a request, be it with a refusal."""
        with suppress(NoValidHost):
            self.driver.select_destinations(request)
        return self.notebook.decisions[-1]


def keep(path, decided, requests, clock=time.time):
    """Decide requests, with refusals too, and keep the records in a file."""
    with closing(RecordWriter(str(path), 1000, 10)) as writer:
        recorder = DecisionRecorder(Settings(), writer, clock=clock)
        decided.driver.deps = replace(decided.driver.deps, recorder=recorder)
        for request in requests:
            with suppress(NoValidHost):
                decided.driver.select_destinations(request)
        recorder.close()
    return str(path)


def record_of(decision):
    return from_decision.record_of(decision, 'id', 0.0)


class Asked:
    """A Placement that offers a MEMORY_MB of each host that has it, and counts
    questions."""

    def __init__(self, room: Mapping[str, int], amount: int = 512) -> None:
        self.room = room
        self.amount = amount
        self.strings: list[str] = []

    def __call__(self, what: Query) -> CandidatesWithSummaries:
        self.strings.append(what.string)
        fit = [rp for rp, left in self.room.items() if left >= self.amount]
        return CandidatesWithSummaries(
            [a_candidate(rp, MEMORY_MB=self.amount) for rp in fit],
            {
                rp: ProviderSummary({'MEMORY_MB': ProviderSummaryResource(left, 0)})
                for rp, left in self.room.items()
            },
        )


def a_simulator(
    hosts: Sequence[Host], ask: Asked | None = None, seed: int = 1, **settings: Any
) -> Simulator:
    """A simulator of the filter scheduler over hosts that have the memory that they
    say."""
    plugins = [
        NumInstancesFilter,
        ServerGroupAntiAffinityFilter,
        ServerGroupAffinityFilter,
    ]
    real = a_driver(hosts, *plugins, slots=0, weighers=[RAMWeigher], **settings)
    room = ask or Asked({host.uuid: host.free_ram_mb for host in hosts})
    return Simulator(
        real, SimulatedPlacement(room, Settings(**settings)), seed, moment=0.0
    )
