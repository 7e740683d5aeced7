# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud: what tenants ask for, computes with the servers that each has
and what it reports of them, what was answered, and what went wrong."""

import math
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tenacity

from tests.lab.builders import a_uuid
from tests.lab.compute_rows import Compute, Flavor, instance_row, used_by
from tests.lab.daemon import Group
from tests.lab.descriptions import Case
from tests.lab.large_cloud_hosts import CELLS, FAST, aggregates_of
from tests.lab.large_cloud_requests import Kind
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.placement_api import Allocations, Conflict, PlacementApi
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

FLAVORS = (Flavor(1, 2048, 10), Flavor(2, 4096, 20), Flavor(4, 8192, 40))
PINNED = Flavor(2, 2048, 10, extra_specs={'hw:cpu_policy': 'dedicated'})
IMPOSSIBLE = Flavor(vcpus=1000)
ZONES = ('az1', 'az2')
POLICIES = ('anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity')
DEVICE = {'vendor_id': '8086', 'product_id': '10fb'}
NUMA_CELLS = 2
CORES = 4
THREADS = 2
RAM = 32768
DEVICES = 4

Core = tuple[int, int]
"""The number of a NUMA cell, and that of a core in it."""


@dataclass(frozen=True)
class Wish:
    """So many servers of a flavor, and what their hosts must have."""

    name: str
    flavor: Flavor
    count: int = 1
    aggregate: str | None = None
    pinned: bool = False
    devices: int = 0
    group: Group | None = None
    avoided: Sequence[str] = ()

    def kind(self, **more):
        """As a conductor asks for it; ``more`` are fields of the request."""
        flavor = self.flavor
        specs = dict(flavor.extra_specs)
        fields: Case = {}
        if self.aggregate == FAST:
            specs[f'aggregate_instance_extra_specs:{FAST}'] = 'true'
        elif self.aggregate:
            fields['availability_zone'] = self.aggregate
        if self.devices:
            one = {
                'request_id': a_uuid('device'),
                'count': self.devices,
                'spec': [DEVICE],
            }
            fields['pci_requests'] = {'requests': [{**one, 'alias_name': 'nic'}]}
        if self.avoided:
            fields['scheduler_hints'] = {'different_host': [*self.avoided]}
        size = {
            'vcpus': flavor.vcpus,
            'memory_mb': flavor.ram_mb,
            'root_gb': flavor.disk_gb,
        }
        cell: Case = {
            'id': 0,
            'pcpuset': list(range(flavor.vcpus)),
            'memory': flavor.ram_mb,
        }
        group = self.group and {
            'uuid': self.group.uuid, 'policy': self.group.policy, '_rules': {},
            'policies': [self.group.policy], 'members': [*self.group.members],
            'hosts': sorted(set(self.group.hosts)),
        }  # fmt: skip
        return Kind(
            {**size, 'extra_specs': specs},
            guest=[{**cell, 'cpu_policy': 'dedicated'}] if self.pinned else (),
            group=group,
            count=self.count,
            more={**fields, **more},
        )


def draw(random, group, servers):
    """What somebody wants now.

    :param group: one that nobody else asks for meanwhile.
    :param servers: some that run.
    """
    flavor = random.choice(FLAVORS)
    wishes: dict[Callable[[], Wish], int] = {
        lambda: Wish('plain', flavor): 40,
        lambda: Wish('several', flavor, count=random.randint(2, 5)): 12,
        lambda: Wish(
            'zone', flavor, random.randint(1, 2), aggregate=random.choice(ZONES)
        ): 10,
        lambda: Wish('fast', flavor, aggregate=FAST): 8,
        lambda: Wish('pinned', PINNED, random.randint(1, 3), pinned=True): 12,
        lambda: Wish('devices', flavor, devices=random.randint(1, 2)): 8,
        lambda: Wish('group', flavor, random.randint(1, 2), group=group): 10
        if group
        else 0,
        lambda: Wish('apart', flavor, avoided=servers): 4 if servers else 0,
        lambda: Wish('impossible', IMPOSSIBLE): 2,
    }
    return random.choices(list(wishes), list(wishes.values()))[0]()


@dataclass(eq=False)
class Server:
    """One that runs. A pinned one has a core for itself."""

    uuid: str
    wish: Wish
    host: str | None = None
    core: Core | None = None


def a_compute(name, cell):
    """A host without servers."""
    pcpus = NUMA_CELLS * CORES * THREADS
    columns = {'numa_topology': _topology([]), 'pci_stats': some_devices(DEVICES, None)}
    return Compute(name, cell, ram_mb=RAM, pcpus=pcpus, columns=columns)


class Machine:
    """A compute host. What it is fit for is known with the moment since when (monotonic
    seconds): infinity while that changes."""

    def __init__(self, compute, database):
        self.compute = compute
        self.database = database
        self.name = compute.name
        self.servers: dict[str, Server] = {}
        self.aggregates: frozenset[str] = frozenset()
        self.aggregates_since = -math.inf
        self.unfit_since = math.inf
        self.silent = False
        self.disabled = False
        self._lock = threading.Lock()
        self._launched = 0

    def land(self, server, **states):
        """Let a server run here, unless there is no room for it.

        :param states: other columns of its row, of a server that has one already.
        """
        with self._lock:
            core = self._core() if server.wish.pinned else None
            if (
                server.wish.pinned and not core
            ) or server.wish.devices > self._devices_left():
                return False
            self.servers[server.uuid] = server
            server.core = core
            # The host's own account comes first, as nova-compute has it.
            self._report()
            self._launched += 1
            flavor = server.wish.flavor
            row = instance_row(
                server.uuid, self.compute, flavor, PROJECT, USER, self._launched
            )
            if server.host is None and not states:
                self.database.insert('instances', [row])
            else:
                place = {name: row[name] for name in ('host', 'node', 'updated_at')}
                self.database.update('instances', {**place, **states}, uuid=server.uuid)
            server.host = self.name
            return True

    def leave(self, server):
        with self._lock:
            del self.servers[server.uuid]
            self._report()

    def report(self, **wrong):
        """Write what there is, or columns that nobody can read."""
        with self._lock:
            self._report(**wrong)

    def _report(self, **wrong):
        self.database.update(
            'compute_nodes', {**self._usage(), **wrong}, uuid=self.compute.uuid
        )

    def _usage(self):
        row = self.compute.node_row()
        for each in self.servers.values():
            row |= used_by(each.wish.flavor, row)
        numa = _topology([each for each in self.servers.values() if each.core])
        return {
            **row,
            'numa_topology': numa,
            'pci_stats': some_devices(self._devices_left(), None),
        }

    def _core(self):
        taken = {each.core for each in self.servers.values()}
        every = ((cell, core) for cell in range(NUMA_CELLS) for core in range(CORES))
        return next((each for each in every if each not in taken), None)

    def _devices_left(self):
        return DEVICES - sum(each.wish.devices for each in self.servers.values())


def _topology(pinned):
    cells = []
    for cell in range(NUMA_CELLS):
        here = [each for each in pinned if each.core and each.core[0] == cell]
        cores = [each.core[1] for each in here if each.core]
        cpus = [
            (cell * CORES + core) * THREADS + i
            for core in cores
            for i in range(THREADS)
        ]
        used = sum(each.wish.flavor.ram_mb for each in here)
        usage = {'cpu_usage': len(cpus), 'memory_usage': used}
        cells.append(
            a_numa_cell(cell, CORES, THREADS, RAM // NUMA_CELLS, cpus, **usage)
        )
    return a_numa_topology(*cells)


MISMATCHES = 'mismatches'
WRONG = 'wrong hosts'
FAILED = 'failed'
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
    """What all who act in it share. Whoever works at a server or a group takes it, so
    that nobody else does."""

    def __init__(self, cloud):
        self.cloud = cloud
        for database in (cloud.api, *cloud.cells.values()):
            # Many write here: one locks no more than the rows that it writes.
            database.engine = database.engine.execution_options(
                isolation_level='READ COMMITTED'
            )
        self.placement = PlacementApi(cloud.placement_url)
        self.machines: dict[str, Machine] = {}
        self.expected: Allocations = {}
        self.counts: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.aggregates = {row['name']: row for row in cloud.api.rows('aggregates')}
        self._names: dict[str, str] = {}
        self._idle: dict[str, Server] = {}
        self._groups = [
            Group(POLICIES[number % len(POLICIES)]) for number in range(GROUPS)
        ]
        self._lock = threading.Lock()
        self._named = 0
        self._refusals = 0
        self._ebb: int | None = None

    def fill(self, count):
        """Put the first hosts into a cloud that has none."""
        computes = [self._compute() for _ in range(count)]
        self.cloud.grow(computes)
        for number, compute in enumerate(computes):
            self._machine(compute).aggregates = frozenset(aggregates_of(number))

    def add_host(self):
        """One host more, in a zone."""
        compute = self._compute()
        self.cloud.add_hosts([compute])
        self.change_members(self._machine(compute), frozenset({ZONES[self._named % 2]}))

    def _compute(self):
        self._named += 1
        return a_compute(f'host-{self._named:05}', CELLS[self._named % len(CELLS)])

    def _machine(self, compute):
        machine = Machine(compute, self.cloud.cells[compute.cell])
        self.machines[compute.name] = machine
        self._names[compute.uuid] = compute.name
        return machine

    def host_of(self, provider):
        """The name of the host, also of one that is gone, with this resource
        provider."""
        return self._names.get(provider, provider)

    def change_members(self, machine, names):
        """Put a host into the aggregates of these names, and take it out of others."""
        chosen = [self.aggregates[name] for name in sorted(names)]
        machine.aggregates_since = math.inf
        self.cloud.api.delete('aggregate_hosts', host=machine.name)
        for each in chosen:
            self.cloud.join_aggregate(each['id'], [machine.name])
        uuids = [each['uuid'] for each in chosen]
        persistently(self.placement.put, machine.compute.uuid, aggregates=uuids)
        machine.aggregates = names
        machine.aggregates_since = time.monotonic()

    def count(self, what, number=1):
        with self._lock:
            self.counts[what] += number

    def wrong(self, what, text):
        """Note that something must not have happened."""
        with self._lock:
            self.counts[what] += 1
            if self.counts[what] <= SHOWN:
                print(f'{what}: {text}', file=sys.stderr, flush=True)

    def full(self):
        """Note that a request was refused that fits almost anywhere: there is no room,
        if there are many servers."""
        if len(self.expected) <= CROWD * len(self.machines):
            return
        with self._lock:
            self._refusals += 1
            if self._refusals >= TURN and self._ebb is None:
                self._ebb = len(self._idle) // 2
                self.counts['times full'] += 1

    @property
    def ebbing(self):
        """Whether there are still too many servers."""
        with self._lock:
            if self._ebb is not None and len(self._idle) <= self._ebb:
                self._ebb = None
                self._refusals = 0
            return self._ebb is not None

    def take(self, random, suits=lambda server: True):
        """A server that nobody works at, if there is any that suits."""
        with self._lock:
            found = [uuid for uuid, each in self._idle.items() if suits(each)]
            if found:
                return self._idle.pop(random.choice(found))
            return None

    def give(self, server):
        with self._lock:
            self._idle[server.uuid] = server

    def withhold(self, uuid):
        """A server that nobody works at, so that nobody does until it is given back."""
        with self._lock:
            return self._idle.pop(uuid, None)

    def take_group(self):
        with self._lock:
            if self._groups:
                return self._groups.pop(0)
            return None

    def give_group(self, group):
        with self._lock:
            self._groups.append(group)

    def joined(self, server):
        """Note that a server is its group's on its host."""
        if (group := server.wish.group) and server.host:
            with self._lock:
                group.members.append(server.uuid)
                group.hosts.append(server.host)

    def left(self, server):
        """Note that it is so no more."""
        if group := server.wish.group:
            with self._lock:
                at = group.members.index(server.uuid)
                del group.members[at], group.hosts[at]

    def hosts_of_members(self, group, uuids):
        """The hosts of these instances, by UUID, without instances that have left the
        group."""
        with self._lock:
            members = zip(group.members, group.hosts, strict=True)
            return {uuid: host for uuid, host in members if uuid in uuids}

    def compare_room(self, held):
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

    def some(self, random, count):
        with self._lock:
            uuids = list(self._idle)
        return random.sample(uuids, min(count, len(uuids)))
