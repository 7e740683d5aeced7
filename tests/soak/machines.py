# SPDX-License-Identifier: Apache-2.0
"""What tenants ask for, and computes that are simulated: which servers each has, and what it
reports of them."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.lab.builders import a_uuid
from tests.lab.client import Group
from tests.lab.compute_rows import Compute, Flavor, Row, instance_row, used_by
from tests.lab.descriptions import Case
from tests.lab.large_cloud_hosts import FAST
from tests.lab.large_cloud_requests import Kind
from tests.lab.nova_cloud import PROJECT, USER, Database
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

FLAVORS = (Flavor(1, 2048, 10), Flavor(2, 4096, 20), Flavor(4, 8192, 40))
PINNED = Flavor(2, 2048, 10, extra_specs={'hw:cpu_policy': 'dedicated'})
IMPOSSIBLE = Flavor(vcpus=1000)
ZONES = ('az1', 'az2')
POLICIES = ('anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity')
DEVICE = {'vendor_id': '8086', 'product_id': '10fb'}
CELLS, CORES, THREADS = 2, 4, 2
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

    def kind(self, **more: Any) -> Kind:
        """As a conductor asks for it; ``more`` are fields of the request."""
        flavor = self.flavor
        specs = dict(flavor.extra_specs)
        fields: Case = {}
        if self.aggregate == FAST:
            specs[f'aggregate_instance_extra_specs:{FAST}'] = 'true'
        elif self.aggregate:
            fields['availability_zone'] = self.aggregate
        if self.devices:
            one = {'request_id': a_uuid('device'), 'count': self.devices, 'spec': [DEVICE]}
            fields['pci_requests'] = {'requests': [{**one, 'alias_name': 'nic'}]}
        if self.avoided:
            fields['scheduler_hints'] = {'different_host': [*self.avoided]}
        size = {'vcpus': flavor.vcpus, 'memory_mb': flavor.ram_mb, 'root_gb': flavor.disk_gb}
        cell: Case = {'id': 0, 'pcpuset': list(range(flavor.vcpus)), 'memory': flavor.ram_mb}
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


def draw(random: Random, group: Group | None, servers: Sequence[str]) -> Wish:
    """What somebody wants now.

    :param group: one that nobody else asks for meanwhile.
    :param servers: some that run.
    """
    flavor = random.choice(FLAVORS)
    wishes: dict[Callable[[], Wish], int] = {
        lambda: Wish('plain', flavor): 40,
        lambda: Wish('several', flavor, count=random.randint(2, 5)): 12,
        lambda: Wish('zone', flavor, random.randint(1, 2), aggregate=random.choice(ZONES)): 10,
        lambda: Wish('fast', flavor, aggregate=FAST): 8,
        lambda: Wish('pinned', PINNED, random.randint(1, 3), pinned=True): 12,
        lambda: Wish('devices', flavor, devices=random.randint(1, 2)): 8,
        lambda: Wish('group', flavor, random.randint(1, 2), group=group): 10 if group else 0,
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


def a_compute(name: str, cell: str) -> Compute:
    """A host without servers."""
    pcpus = CELLS * CORES * THREADS
    columns = {'numa_topology': _topology([]), 'pci_stats': some_devices(DEVICES, None)}
    return Compute(name, cell, ram_mb=RAM, pcpus=pcpus, columns=columns)


class Machine:
    """A compute host. What it is fit for is known with the moment since when (monotonic
    seconds): infinity while that changes."""

    def __init__(self, compute: Compute, database: Database) -> None:
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

    def land(self, server: Server, **states: Any) -> bool:
        """Let a server run here, unless there is no room for it.

        :param states: other columns of its row, of a server that has one already.
        """
        with self._lock:
            core = self._core() if server.wish.pinned else None
            if (server.wish.pinned and not core) or server.wish.devices > self._devices_left():
                return False
            self.servers[server.uuid] = server
            server.core = core
            # The host's own account comes first, as nova-compute has it.
            self._report()
            self._launched += 1
            row = instance_row(
                server.uuid, self.compute, server.wish.flavor, PROJECT, USER, self._launched
            )
            if server.host is None and not states:
                self.database.insert('instances', [row])
            else:
                place = {name: row[name] for name in ('host', 'node', 'updated_at')}
                self.database.update('instances', {**place, **states}, uuid=server.uuid)
            server.host = self.name
            return True

    def leave(self, server: Server) -> None:
        with self._lock:
            del self.servers[server.uuid]
            self._report()

    def report(self, **wrong: Any) -> None:
        """Write what there is, or columns that nobody can read."""
        with self._lock:
            self._report(**wrong)

    def _report(self, **wrong: Any) -> None:
        self.database.update('compute_nodes', {**self._usage(), **wrong}, uuid=self.compute.uuid)

    def _usage(self) -> Row:
        row = self.compute.node_row()
        for each in self.servers.values():
            row |= used_by(each.wish.flavor, row)
        numa = _topology([each for each in self.servers.values() if each.core])
        return {**row, 'numa_topology': numa, 'pci_stats': some_devices(self._devices_left(), None)}

    def _core(self) -> Core | None:
        taken = {each.core for each in self.servers.values()}
        every = ((cell, core) for cell in range(CELLS) for core in range(CORES))
        return next((each for each in every if each not in taken), None)

    def _devices_left(self) -> int:
        return DEVICES - sum(each.wish.devices for each in self.servers.values())


def _topology(pinned: list[Server]) -> str:
    cells = []
    for cell in range(CELLS):
        here = [each for each in pinned if each.core and each.core[0] == cell]
        cores = [each.core[1] for each in here if each.core]
        cpus = [(cell * CORES + core) * THREADS + i for core in cores for i in range(THREADS)]
        used = sum(each.wish.flavor.ram_mb for each in here)
        cells.append(
            a_numa_cell(
                cell, CORES, THREADS, RAM // CELLS, cpus, cpu_usage=len(cpus), memory_usage=used
            )
        )
    return a_numa_topology(*cells)
