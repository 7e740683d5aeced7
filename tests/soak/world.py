# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud: who is there, what was answered, and what went wrong."""

import math
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random

import tenacity

from tests.lab.client import Group
from tests.lab.compute_rows import Compute
from tests.lab.large_cloud import LargeCloud
from tests.lab.large_cloud_hosts import CELLS, aggregates_of
from tests.lab.placement_api import Allocations, Conflict, PlacementApi
from tests.soak.machines import POLICIES, ZONES, Machine, Server, a_compute

MISMATCHES, WRONG, FAILED = 'mismatches', 'wrong hosts', 'failed'
TURNED_AWAY = 'turned away by computes'
SHOWN = 20  # of what went wrong, in words
GROUPS = 8
persistently = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(Conflict),
    stop=tenacity.stop_after_attempt(20),
    wait=tenacity.wait_random(0, 0.1),
)
"""Changes in Placement, made until claims of others do not come between."""

CROWD = 4  # servers of a host, from which on there may be no room
TURN = 8
"""After so many servers that there is no room for, tenants delete half of all."""


class World:
    """What all who act in it share. Whoever works at a server or a group takes it, so that
    nobody else does."""

    def __init__(self, cloud: LargeCloud) -> None:
        self.cloud = cloud
        for database in (cloud.api, *cloud.cells.values()):
            # Many write here: one locks no more than the rows that it writes.
            database.engine = database.engine.execution_options(isolation_level='READ COMMITTED')
        self.placement = PlacementApi(cloud.placement_url)
        self.machines: dict[str, Machine] = {}
        self.expected: Allocations = {}
        self.counts: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.aggregates = {row['name']: row for row in cloud.api.rows('aggregates')}
        self._names: dict[str, str] = {}
        self._idle: dict[str, Server] = {}
        self._groups = [Group(POLICIES[number % len(POLICIES)]) for number in range(GROUPS)]
        self._lock = threading.Lock()
        self._named = 0
        self._refusals = 0
        self._ebb: int | None = None

    def fill(self, count: int) -> None:
        """Put the first hosts into a cloud that has none."""
        computes = [self._compute() for _ in range(count)]
        self.cloud.grow(computes)
        for number, compute in enumerate(computes):
            self._machine(compute).aggregates = frozenset(aggregates_of(number))

    def add_host(self) -> None:
        """One host more, in a zone."""
        compute = self._compute()
        self.cloud.add_hosts([compute])
        self.change_members(self._machine(compute), frozenset({ZONES[self._named % 2]}))

    def _compute(self) -> Compute:
        self._named += 1
        return a_compute(f'host-{self._named:05}', CELLS[self._named % len(CELLS)])

    def _machine(self, compute: Compute) -> Machine:
        machine = Machine(compute, self.cloud.cells[compute.cell])
        self.machines[compute.name] = machine
        self._names[compute.uuid] = compute.name
        return machine

    def host_of(self, provider: str) -> str:
        """The name of the host, also of one that is gone, with this resource provider."""
        return self._names.get(provider, provider)

    def change_members(self, machine: Machine, names: frozenset[str]) -> None:
        """Put a host into the aggregates of these names, and take it out of others."""
        chosen = [self.aggregates[name] for name in sorted(names)]
        machine.aggregates_since = math.inf
        self.cloud.api.delete('aggregate_hosts', host=machine.name)
        for each in chosen:
            self.cloud.join_aggregate(each['id'], [machine.name])
        uuids = [each['uuid'] for each in chosen]
        persistently(self.placement.put, machine.compute.uuid, aggregates=uuids)
        machine.aggregates, machine.aggregates_since = names, time.monotonic()

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def wrong(self, what: str, text: str) -> None:
        """Note that something must not have happened."""
        with self._lock:
            self.counts[what] += 1
            if self.counts[what] <= SHOWN:
                print(f'{what}: {text}', file=sys.stderr, flush=True)

    def full(self) -> None:
        """Note that a request was refused that fits almost anywhere: there is no room, if there are
        many servers."""
        if len(self.expected) <= CROWD * len(self.machines):
            return
        with self._lock:
            self._refusals += 1
            if self._refusals >= TURN and self._ebb is None:
                self._ebb = len(self._idle) // 2
                self.counts['times full'] += 1

    @property
    def ebbing(self) -> bool:
        """Whether there are still too many servers."""
        with self._lock:
            if self._ebb is not None and len(self._idle) <= self._ebb:
                self._ebb, self._refusals = None, 0
            return self._ebb is not None

    def take(
        self, random: Random, suits: Callable[[Server], bool] = lambda server: True
    ) -> Server | None:
        """A server that nobody works at, if there is any that suits."""
        with self._lock:
            found = [uuid for uuid, each in self._idle.items() if suits(each)]
            return self._idle.pop(random.choice(found)) if found else None

    def give(self, server: Server) -> None:
        with self._lock:
            self._idle[server.uuid] = server

    def withhold(self, uuid: str) -> Server | None:
        """A server that nobody works at, so that nobody does until it is given back."""
        with self._lock:
            return self._idle.pop(uuid, None)

    def take_group(self) -> Group | None:
        with self._lock:
            return self._groups.pop(0) if self._groups else None

    def give_group(self, group: Group) -> None:
        with self._lock:
            self._groups.append(group)

    def joined(self, server: Server) -> None:
        """Note that a server is its group's on its host."""
        if (group := server.wish.group) and server.host:
            with self._lock:
                group.members.append(server.uuid)
                group.hosts.append(server.host)

    def left(self, server: Server) -> None:
        """Note that it is so no more."""
        if group := server.wish.group:
            with self._lock:
                at = group.members.index(server.uuid)
                del group.members[at], group.hosts[at]

    def compare_room(self, held: Allocations) -> None:
        """See that no provider gives more than it has."""
        taken: dict[str, Counter[str]] = defaultdict(Counter)
        for allocations in held.values():
            for provider, amounts in allocations.items():
                taken[provider].update(amounts)
        for machine in self.machines.values():
            for name, room in machine.compute.inventories().items():
                used = taken[machine.compute.uuid][name]
                if used > room['total'] * room['allocation_ratio']:
                    self.wrong(MISMATCHES, f'{machine.name} gives {used} {name}')

    def some(self, random: Random, count: int) -> Sequence[str]:
        with self._lock:
            uuids = list(self._idle)
        return random.sample(uuids, min(count, len(uuids)))
