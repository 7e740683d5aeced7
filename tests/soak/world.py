# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud: the requests of tenants, the compute hosts with their servers and
reports, the answers of schedulers, and the failures."""

import itertools
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
"""The number of a NUMA cell, and the number of a core in the cell."""


@dataclass(frozen=True)
class InstanceTemplate:
    """Servers of a flavor, and the requirements on their hosts.

    :ivar count: number of servers.
    :ivar aggregate: the name of the aggregate of the hosts.
    :ivar devices: number of PCI devices of each server.
    :ivar avoided: UUIDs of servers with which no host may be shared.
    """

    name: str
    flavor: Flavor
    count: int = 1
    aggregate: str | None = None
    pinned: bool = False
    devices: int = 0
    group: Group | None = None
    avoided: Sequence[str] = ()

    def kind(self, **fields):
        """The request of a conductor for these servers.

        :param fields: additional fields of the request spec.
        """
        flavor: Case = {
            'vcpus': self.flavor.vcpus,
            'memory_mb': self.flavor.ram_mb,
            'root_gb': self.flavor.disk_gb,
            'extra_specs': dict(self.flavor.extra_specs),
        }
        required: Case = {}
        if self.aggregate == FAST:
            flavor['extra_specs'][f'aggregate_instance_extra_specs:{FAST}'] = 'true'
        elif self.aggregate:
            required['availability_zone'] = self.aggregate
        if self.devices:
            request = {
                'request_id': a_uuid('device'),
                'count': self.devices,
                'spec': [DEVICE],
                'alias_name': 'nic',
            }
            required['pci_requests'] = {'requests': [request]}
        if self.avoided:
            required['scheduler_hints'] = {'different_host': [*self.avoided]}

        guest: list[Case] = []
        if self.pinned:
            guest_cell = {
                'id': 0,
                'pcpuset': list(range(self.flavor.vcpus)),
                'memory': self.flavor.ram_mb,
                'cpu_policy': 'dedicated',
            }
            guest.append(guest_cell)

        return Kind(
            flavor,
            guest=guest,
            group=self._group_fields(),
            count=self.count,
            more={**required, **fields},
        )

    def _group_fields(self):
        """The server group as in a request spec; None without a group."""
        if not self.group:
            return None
        return {
            'uuid': self.group.uuid,
            'policy': self.group.policy,
            '_rules': {},
            'policies': [self.group.policy],
            'members': [*self.group.members],
            'hosts': sorted(set(self.group.hosts)),
        }


def draw_template(random, group, servers):
    """The next request of a tenant, by chance.

    :param group: a server group that no other request uses meanwhile, or None.
    :param servers: the UUIDs of some running servers.
    """
    flavor = random.choice(FLAVORS)
    # Functions, so that chance decides the details of the drawn template alone.
    templates: dict[Callable[[], InstanceTemplate], int] = {
        lambda: InstanceTemplate('plain', flavor): 40,
        lambda: InstanceTemplate('several', flavor, count=random.randint(2, 5)): 12,
        lambda: InstanceTemplate(
            'zone', flavor, random.randint(1, 2), aggregate=random.choice(ZONES)
        ): 10,
        lambda: InstanceTemplate('fast', flavor, aggregate=FAST): 8,
        lambda: InstanceTemplate(
            'pinned', PINNED, random.randint(1, 3), pinned=True
        ): 12,
        lambda: InstanceTemplate('devices', flavor, devices=random.randint(1, 2)): 8,
        lambda: InstanceTemplate('group', flavor, random.randint(1, 2), group=group): 10
        * bool(group),
        lambda: InstanceTemplate('apart', flavor, avoided=servers): 4 * bool(servers),
        lambda: InstanceTemplate('impossible', IMPOSSIBLE): 2,
    }
    return random.choices(list(templates), list(templates.values()))[0]()


@dataclass(eq=False)
class Server:
    """A running server. A pinned server has a core of its own."""

    uuid: str
    template: InstanceTemplate
    host: str | None = None
    core: Core | None = None


def a_compute(name, cell):
    """A host without servers."""
    pcpus = NUMA_CELLS * CORES * THREADS
    columns = {'numa_topology': _topology([]), 'pci_stats': some_devices(DEVICES, None)}
    return Compute(name, cell, ram_mb=RAM, pcpus=pcpus, columns=columns)


class Machine:
    """A compute host with its servers.

    Moments are monotonic seconds, and infinite while a state changes.

    :ivar aggregates: the names of the aggregates of the host.
    :ivar aggregates_since: when the host came into these aggregates.
    :ivar unfit_since: when the host became down, disabled or gone.
    """

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
        """Run a server on the host, unless the host lacks a core or devices.

        :param states: additional columns of the row of a server that has a row already.
        :returns: False if the host does not take the server.
        """
        template = server.template
        with self._lock:
            core = None
            if template.pinned:
                core = self._free_core()
                if core is None:
                    return False
            if template.devices > self._free_devices():
                return False

            self.servers[server.uuid] = server
            server.core = core
            # Like nova-compute, which updates the node before the instance.
            self._report()
            self._launched += 1

            row = instance_row(
                server.uuid,
                self.compute,
                template.flavor,
                PROJECT,
                USER,
                self._launched,
            )
            if server.host is None and not states:
                self.database.insert('instances', [row])
            else:
                place = {name: row[name] for name in ('host', 'node', 'updated_at')}
                self.database.update('instances', {**place, **states}, uuid=server.uuid)
            server.host = self.name
            return True

    def leave(self, server):
        """Remove a server from the host."""
        with self._lock:
            del self.servers[server.uuid]
            self._report()

    def report(self, **unreadable):
        """Write the row of the compute node.

        :param unreadable: columns whose values cannot be read.
        """
        with self._lock:
            self._report(**unreadable)

    def _report(self, **unreadable):
        row = {**self._usage(), **unreadable}
        self.database.update('compute_nodes', row, uuid=self.compute.uuid)

    def _usage(self):
        row = self.compute.node_row()
        for server in self.servers.values():
            row |= used_by(server.template.flavor, row)
        row['numa_topology'] = _topology(self.servers.values())
        row['pci_stats'] = some_devices(self._free_devices(), None)
        return row

    def _free_core(self):
        taken = {server.core for server in self.servers.values()}
        for core in itertools.product(range(NUMA_CELLS), range(CORES)):
            if core not in taken:
                return core
        return None

    def _free_devices(self):
        servers = self.servers.values()
        return DEVICES - sum(server.template.devices for server in servers)


def _topology(servers):
    """The NUMA topology of a host, with the cores of pinned servers in use."""
    cells = []
    for number in range(NUMA_CELLS):
        pinned_cpus: list[int] = []
        used_mb = 0
        for server in servers:
            if not server.core or server.core[0] != number:
                continue
            first = (number * CORES + server.core[1]) * THREADS
            pinned_cpus += range(first, first + THREADS)
            used_mb += server.template.flavor.ram_mb

        cell = a_numa_cell(
            number,
            CORES,
            THREADS,
            RAM // NUMA_CELLS,
            pinned_cpus,
            cpu_usage=len(pinned_cpus),
            memory_usage=used_mb,
        )
        cells.append(cell)
    return a_numa_topology(*cells)


MISMATCHES = 'mismatches'
WRONG = 'wrong hosts'
FAILED = 'failed'
TURNED_AWAY = 'turned away by computes'
SHOWN = 20  # failures of each kind that are printed
GROUPS = 8
retrying_conflicts = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(Conflict),
    stop=tenacity.stop_after_attempt(20),
    wait=tenacity.wait_random(0, 0.1),
)
"""Repeats a change in Placement that conflicts with the claim of a scheduler."""

FULL_HOST_SERVERS = 4
"""Servers on the average host from which on a cloud may have no room."""
MAX_REFUSALS = 8
"""Number of refusals for lack of room after which tenants delete half of all servers."""


class World:
    """The state that all tenants share. A tenant takes a server or a server group before
    working with it, and gives it back afterwards.

    :ivar machines: hosts by name.
    :ivar expected: the allocations due to each consumer, by provider UUID.
    :ivar counts: requests, answers and failures.
    :ivar events: events of :class:`tests.soak.chaos.Chaos` by name.
    """

    def __init__(self, cloud):
        self.cloud = cloud
        for database in (cloud.api, *cloud.cells.values()):
            # Many threads write: a statement shall lock no more than its rows.
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
        self._groups = []
        for number in range(GROUPS):
            self._groups.append(Group(POLICIES[number % len(POLICIES)]))
        self._lock = threading.Lock()
        self._named = 0
        self._refusals = 0
        self._max_servers: int | None = None

    def fill(self, count):
        """Put the first hosts into an empty cloud."""
        computes = [self._compute() for _ in range(count)]
        self.cloud.grow(computes)
        for number, compute in enumerate(computes):
            self._machine(compute).aggregates = frozenset(aggregates_of(number))

    def add_host(self):
        """Add a host to the cloud and to a zone."""
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
        """The name of the present or former host of a resource provider."""
        return self._names.get(provider, provider)

    def change_members(self, machine, names):
        """Make a host a member of the named aggregates, and of no other aggregate."""
        aggregates = [self.aggregates[name] for name in sorted(names)]
        machine.aggregates_since = math.inf
        self.cloud.api.delete('aggregate_hosts', host=machine.name)
        for aggregate in aggregates:
            self.cloud.join_aggregate(aggregate['id'], [machine.name])

        uuids = [aggregate['uuid'] for aggregate in aggregates]
        retrying_conflicts(self.placement.put, machine.compute.uuid, aggregates=uuids)
        machine.aggregates = names
        machine.aggregates_since = time.monotonic()

    def count(self, name, number=1):
        with self._lock:
            self.counts[name] += number

    def wrong(self, failure, text):
        """Count a failure, and print the first failures of each kind."""
        with self._lock:
            self.counts[failure] += 1
            if self.counts[failure] <= SHOWN:
                print(f'{failure}: {text}', file=sys.stderr, flush=True)

    def full(self):
        """Note the refusal of a request that fits almost anywhere. If there are many
        servers, the cloud has no room."""
        if len(self.expected) <= FULL_HOST_SERVERS * len(self.machines):
            return
        with self._lock:
            self._refusals += 1
            if self._refusals >= MAX_REFUSALS and self._max_servers is None:
                self._max_servers = len(self._idle) // 2
                self.counts['times full'] += 1

    @property
    def is_emptying(self):
        """True while tenants delete servers, since the cloud was full."""
        with self._lock:
            if self._max_servers is not None and len(self._idle) <= self._max_servers:
                self._max_servers = None
                self._refusals = 0
            return self._max_servers is not None

    def take(self, random, suits=lambda server: True):
        """An idle server that suits; None without such a server."""
        with self._lock:
            suitable = [uuid for uuid, server in self._idle.items() if suits(server)]
            if suitable:
                return self._idle.pop(random.choice(suitable))
            return None

    def give(self, server):
        with self._lock:
            self._idle[server.uuid] = server

    def withhold(self, uuid):
        """Take an idle server by UUID; None if the server is not idle."""
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
        """Note that a server is a member of its group on its host."""
        if (group := server.template.group) and server.host:
            with self._lock:
                group.members.append(server.uuid)
                group.hosts.append(server.host)

    def left(self, server):
        """Note that a server is no longer a member of its group."""
        if group := server.template.group:
            with self._lock:
                index = group.members.index(server.uuid)
                del group.members[index]
                del group.hosts[index]

    def hosts_of_members(self, group, uuids):
        """The hosts of instances by UUID, without instances that left the group."""
        with self._lock:
            members = zip(group.members, group.hosts, strict=True)
            return {uuid: host for uuid, host in members if uuid in uuids}

    def compare_capacity(self, allocations):
        """Report hosts whose allocations exceed their capacity.

        :param allocations: consumer to provider to resource class to amount.
        """
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for by_provider in allocations.values():
            for provider, amounts in by_provider.items():
                used[provider].update(amounts)

        for machine in self.machines.values():
            for name, inventory in machine.compute.inventories().items():
                amount = used[machine.compute.uuid][name]
                if amount > inventory['total'] * inventory['allocation_ratio']:
                    self.wrong(MISMATCHES, f'{machine.name} gives {amount} {name}')

    def some(self, random, count):
        """The UUIDs of at most ``count`` idle servers."""
        with self._lock:
            uuids = list(self._idle)
        return random.sample(uuids, min(count, len(uuids)))
