# SPDX-License-Identifier: Apache-2.0
"""The cloud of a simulation: databases, Placement, the broker, the schedulers, and the
servers of the users.

:mod:`tests.simulation.users` and :mod:`tests.simulation.faults` act on the cloud, and
:mod:`tests.simulation.checks` looks at the cloud.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import os_resource_classes as classes

from novasched.conf.settings import ALL_FILTERS
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.computes import SandboxHost
from novasched.tools.sandbox.databases import Databases
from tests.simulation.computes import Computes
from tests.simulation.database_health import DatabaseHealth
from tests.simulation.devices import DEVICES, TRAITS, Device, devices_of
from tests.simulation.exchange import Broker
from tests.simulation.flavors import AMOUNTS, CELL_CPUS, CELLS, PINNED, PINNED_FLAVORS
from tests.simulation.loop import Loop
from tests.simulation.placement import Inventory, PlacementModel, Provider
from tests.simulation.placement_http import SimulatedHttp, Weather
from tests.simulation.process import SchedulerProcess
from tests.simulation.troubles import Troubles

Allocations = dict[str, Mapping[str, int]]
"""Amounts by provider and resource class."""
FILTERS = (
    'SlowFilter',
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
    'NUMATopologyFilter',
    'PciPassthroughFilter',
    'NumInstancesFilter',
)
SLOW_FILTER = 'tests.simulation.slow_filter.SlowFilter'
IN_FLIGHT_TIMEOUT_S = 60.0
"""``[novasched] in_flight_timeout``, by default."""
REPORT_TAKES_S = (0.001, 0.1)
"""Seconds from the host in the row of a server to the report of the host."""
ANSWERS_LAST_S = 10.0
"""``[novasched] candidates_max_age``: longer than by default for so few hosts, so that
many requests are decided on earlier answers of Placement."""
ZONE = 'zone1'
"""The availability zone of half of the hosts."""
HOSTS_PER_DEVICES = 5
"""One of so many hosts has devices."""
MAX_PER_HOST = 7
"""``[filter_scheduler] max_instances_per_host``."""


@dataclass
class Call:
    """A call of a scheduler for some servers.

    :ivar is_move: the call is for a host of the same cell.
    :ivar is_long: the scheduler may decide for minutes.
    :ivar zone: the availability zone that the servers need.
    :ivar answer: the selections, or an error; None before the reply.
    :ivar given_up: nova-conductor waits no longer.
    """

    uuids: Sequence[str]
    flavor: Flavor
    process: SchedulerProcess
    began: float
    is_move: bool = False
    is_long: bool = False
    zone: str | None = None
    answer: Any = None
    answered_at: float | None = None
    replies: int = 0
    given_up: bool = False

    @property
    def is_open(self) -> bool:
        """True while nova-conductor waits for an answer."""
        return self.answered_at is None and not self.given_up

    @property
    def is_placed(self) -> bool:
        """True if the answer has a host for each server."""
        is_error = isinstance(self.answer, Exception)
        return self.answered_at is not None and not is_error

    @property
    def has_failed(self) -> bool:
        """True if the call will not give a host to any server."""
        return self.given_up or isinstance(self.answer, Exception)


@dataclass
class Server:
    """A server of a user.

    :ivar call: the last call of a scheduler for the server.
    :ivar placed_by: the last call that gave the server a host.
    :ivar unsettled: the calls for the server whose schedulers may have to delete
        allocations of the server yet: calls without a host, and calls that were
        answered while the scheduler had to delete allocations.
    :ivar group: the UUID of its group.
    :ivar zone: the availability zone that the user has chosen.
    :ivar host: the name of its host; None before a scheduler has chosen, and while the
        server is shelved.
    :ivar is_built: the databases tell the host.
    :ivar is_wanted: False as soon as the user deletes the server.
    :ivar is_moving: a move is in progress.
    :ivar destination: the host to which the server is moving, once it is chosen.
    :ivar next_flavor: the flavor on the destination of a migration.
    :ivar migration: the consumer that has the allocations on the host during a
        migration.
    :ivar devices: by host, the providers of the devices that a scheduler has given to
        the server there.
    :ivar settled_at: when the last of the unsettled calls ended, or a migration or a
        build failed.
    """

    uuid: str
    flavor: Flavor
    call: Call
    placed_by: Call | None = None
    unsettled: list[Call] = field(default_factory=list)
    group: str | None = None
    zone: str | None = None
    host: str | None = None
    is_built: bool = False
    is_wanted: bool = True
    is_deleted: bool = False
    is_moving: bool = False
    destination: str | None = None
    next_flavor: Flavor | None = None
    migration: str | None = None
    devices: dict[str, frozenset[str]] = field(default_factory=dict)
    settled_at: float = 0.0

    @property
    def is_resting(self) -> bool:
        """True for a server on a host with which nothing happens."""
        is_there = self.is_built and self.host is not None
        return is_there and self.is_wanted and not self.is_moving

    @property
    def flavor_there(self) -> Flavor:
        """The flavor on the host to which the server moves, or else on its host."""
        if self.destination is not None and self.next_flavor is not None:
            return self.next_flavor
        return self.flavor

    @property
    def devices_there(self) -> frozenset[str]:
        """The devices on the host to which the server moves, or else on its host."""
        return self.devices.get(self.destination or self.host or '', frozenset())

    @property
    def may_get_host(self) -> bool:
        """True while a scheduler may be choosing a host for the server."""
        if self.is_moving:
            return self.destination is None
        return not self.is_built and self.host is None and not self.call.has_failed


@dataclass
class World:
    """The cloud of a simulation.

    :ivar folder: for the databases.
    :ivar schedulers: the number of schedulers that run at the same time.
    :ivar tell: takes a line of the story.
    :ivar calls: the calls of the day.
    :ivar servers: the servers that may have allocations, by UUID.
    :ivar processes: the schedulers that users reach.
    :ivar stopping: the schedulers that were told to stop.
    :ivar groups: the members of each server group.
    :ivar devices: the devices of the hosts that have devices.
    :ivar disabled_since: the hosts that are disabled, and since when.
    :ivar outside_since: the hosts that are not in the zone, and since when.
    """

    loop: Loop
    folder: Path
    schedulers: int
    hosts: int = 20
    tell: Callable[[str], None] = lambda text: None
    calls: list[Call] = field(default_factory=list)
    servers: dict[str, Server] = field(default_factory=dict)
    processes: list[SchedulerProcess] = field(default_factory=list)
    stopping: list[SchedulerProcess] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)
    devices: dict[str, Sequence[Device]] = field(default_factory=dict)
    disabled_since: dict[str, float] = field(default_factory=dict)
    outside_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.troubles = Troubles(self.loop)
        self.broker = Broker(self.loop)
        self.weather = Weather()
        self.database_health = DatabaseHealth(self.loop)
        machines = []
        for number in range(self.hosts):
            zone = ZONE if number % 4 < 2 else None
            cell = f'cell{number % 2 + 1}'
            machines.append(SandboxHost(f'host-{number:02}', zone=zone, cell=cell))
        databases = Databases(self.folder, ['cell1', 'cell2'])
        self.model = PlacementModel(machines)
        for provider in self.model.providers.values():
            provider.inventories[classes.PCPU] = Inventory(CELLS * CELL_CPUS)
        for machine in machines[::HOSTS_PER_DEVICES]:
            self._add_devices(machine)
        self.computes = Computes(databases, machines, self.devices, self._devices_on)
        self.computes.deploy()
        self.database_health.replicas.follow(
            {'api': databases.api, 'main': databases.main, **databases.cells}
        )
        for machine in machines:
            if machine.zone is None:
                self.outside_since[machine.name] = 0.0
        self._arguments = self._configured()
        self._number = 0

    def _add_devices(self, machine: SandboxHost) -> None:
        """Give a host its devices, each a provider below the provider of the host."""
        devices = devices_of(machine)
        self.devices[machine.name] = devices
        self.model.providers[machine.uuid].traits.append(DEVICES)
        for device in devices:
            inventories = {device.resource_class: Inventory(1)}
            traits = [*TRAITS]
            self.model.add(
                Provider(device.uuid, inventories, traits, root=machine.uuid)
            )

    def _devices_on(self, server_uuid: str, host: str) -> Collection[str]:
        """The devices of a server on a host."""
        return self.servers[server_uuid].devices.get(host, ())

    def _configured(self) -> Sequence[str]:
        """Write a nova.conf; the arguments of a command that reads it."""
        databases = self.computes.databases
        further = self.folder / 'nova.conf.d'
        further.mkdir()
        groups: dict[str, dict[str, str]] = {
            'DEFAULT': {
                'transport_url': 'rabbit://nobody:nothing@127.0.0.1:1/',
                'host': 'simulated',
                'state_path': str(self.folder),
            },
            'database': {'connection': databases.url('main')},
            'api_database': {'connection': databases.url('api')},
            'placement': {'auth_type': 'none', 'endpoint_override': 'http://placement'},
            'novasched': {
                'decisions_file': '',
                'decisions': '10',
                'candidates_max_age': str(ANSWERS_LAST_S),
            },
            'workarounds': {'disable_fallback_pcpu_query': 'true'},
            'filter_scheduler': {
                'available_filters': ALL_FILTERS,
                'enabled_filters': ','.join(FILTERS),
                'max_instances_per_host': str(MAX_PER_HOST),
                'pci_in_placement': 'true',
            },
        }
        ini = ConfigParser(interpolation=None)
        ini.read_dict(groups)
        # An option of several values takes one from each file.
        (further / 'slow_filter.conf').write_text(
            f'[filter_scheduler]\navailable_filters = {SLOW_FILTER}\n'
        )
        path = self.folder / 'nova.conf'
        with path.open('w', encoding='utf-8') as file:
            ini.write(file)
        return '--config-file', str(path), '--config-dir', str(further)

    def start_process(self) -> SchedulerProcess:
        """Start a scheduler."""
        self._number += 1
        name = f'scheduler-{self._number}'
        self.tell(f'{name} starts')
        http = SimulatedHttp(self.loop, self.model, self.weather)
        process = SchedulerProcess(name, self.loop, self._arguments, http, self.broker)
        process.start()
        self.processes.append(process)
        self.troubles.note_unheard()
        return process

    def ready_process(self, random: Random) -> SchedulerProcess | None:
        """A scheduler that takes requests; None without any."""
        ready = [process for process in self.processes if process.is_ready]
        if not ready:
            return None
        return random.choice(ready)

    def resting_server(self, random: Random) -> Server | None:
        """A server with which nothing happens; None without any."""
        resting = [server for server in self.servers.values() if server.is_resting]
        if not resting:
            return None
        return random.choice(resting)

    def free_cells(self) -> int:
        """The number of NUMA cells for guests with dedicated CPUs that are free."""
        hosts = self.computes.machines.keys() - self.devices.keys()
        free = CELLS * len(hosts)
        for server in self.servers.values():
            if server.flavor is PINNED and server.host is not None:
                free -= 1
        return free

    def begin_move(self, random: Random) -> Server | None:
        """Choose a server that moves. The server has its allocations and no others.
        None without such a server."""
        server = self.resting_server(random)
        if server is None:
            return None
        for consumer, amounts in self.allocations_of(server).items():
            if self.model.held_by(consumer) != amounts:
                return None
        server.is_moving = True
        return server

    def is_refused_by_compute(self, server: Server) -> bool:
        """True if the nova-compute of a server's host refuses the build, since no NUMA
        cell is free, or since another member of the hard group is there."""
        host = str(server.host)
        is_pinned = server.flavor in PINNED_FLAVORS
        if is_pinned and not self.computes.has_free_cell(host, server.devices_there):
            return True
        for server_uuid in self.groups.get(server.group or '', ()):
            member = self.servers.get(server_uuid)
            if member is None or member is server or not member.is_built:
                continue
            if member.host == host:
                return True
        return False

    def note_pending(self, host: str, seconds: float = IN_FLIGHT_TIMEOUT_S) -> None:
        """Note that a server may count on a host although the host does not have it, or
        count twice.

        :param seconds: until its row has changed, or the claim is late.
        """
        self.troubles.begin([host])
        self.troubles.end([host], seconds)

    def arrive(self, server: Server, host: str, random: Random) -> None:
        """Let a server arrive on a host, which reports the server a moment after the
        host is in the row of the server."""
        self.computes.name_host(server.uuid, host)
        self.loop.sleep(random.uniform(*REPORT_TAKES_S))
        self.computes.report_usage(host)

    def cell_of(self, host: str) -> str:
        """The name of the cell of a host."""
        return self.computes.machines[host].cell

    def allocations_of(self, server: Server) -> dict[str, Allocations]:
        """The allocations that a server should have, and its migration, by
        consumer."""
        if server.migration is not None:
            return {
                server.uuid: self._on(server, server.next_flavor, server.destination),
                server.migration: self._on(server, server.flavor, server.host),
            }
        # An evacuated server has allocations on both hosts.
        return {
            server.uuid: self._on(
                server, server.flavor, server.host, server.destination
            ),
        }

    def _on(
        self, server: Server, flavor: Flavor | None, *hosts: str | None
    ) -> Allocations:
        allocations: Allocations = {}
        for name in hosts:
            if name is not None and flavor is not None:
                machine = self.computes.machines[name]
                allocations[machine.uuid] = AMOUNTS[flavor.name]
                for device in self.devices.get(name, ()):
                    if device.uuid in server.devices[name]:
                        allocations[device.uuid] = {device.resource_class: 1}
        return allocations


def new_uuid(random: Random) -> str:
    """A random UUID."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
