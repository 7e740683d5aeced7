# SPDX-License-Identifier: Apache-2.0
"""The cloud around the schedulers: users, nova-conductor, nova-computes, and faults.

A day begins with new schedulers. For some minutes the actions of its script happen
(:mod:`tests.simulation.script`); then the faults end, and what is in progress comes to
its end. Checks run all the time (:mod:`tests.simulation.checks`).
"""

import math
import uuid
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import os_traits

from novasched.rpc import wire
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.memory import flavor_resources
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import ServerGroup
from novasched.tools.sandbox.cloud import request_spec
from novasched.tools.sandbox.computes import SandboxHost, stable_uuid
from novasched.tools.sandbox.databases import Databases
from tests.simulation import script
from tests.simulation.computes import Computes
from tests.simulation.exchange import Broker
from tests.simulation.loop import WORLD, Loop
from tests.simulation.placement import (
    Inventory,
    PlacementModel,
    Provider,
    SimulatedHttp,
    Weather,
)
from tests.simulation.process import SchedulerProcess
from tests.simulation.script import Action

FLAVORS = (
    Flavor('small', 'small', 1, 1, 2048, 10),
    Flavor('medium', 'medium', 2, 4, 8192, 20),
    Flavor('large', 'large', 3, 8, 24576, 40),
)
SHARES = (6, 3, 2)
"""How often each flavor is asked for."""
IN_GROUP = 0.25
"""The share of the boots that are for a group."""
MAX_MEMBERS = 8
MAX_TRIES = 4
"""Calls of schedulers for an evacuation."""
BUILD_FAILS = 0.1
"""The share of the builds that fail."""
START_S = 10.0
"""Seconds in which the schedulers of a day start."""
CALM_S = 600.0
"""Seconds at the end of a day: more than a request may wait, and a deletion may
take."""
LOST_CALL_S = 60.0
"""Seconds after which nova-conductor gives up a scheduler that is gone."""
REPORT_S = 10.0
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class Call:
    """A call of a scheduler for some servers.

    :ivar is_move: the call is for another host of the same cell.
    :ivar answer: the selections, or an error; None before the reply.
    :ivar given_up: nova-conductor waits no longer.
    """

    uuids: Sequence[str]
    flavor: Flavor
    process: SchedulerProcess
    began: float
    group: ServerGroup | None = None
    is_move: bool = False
    answer: Any = None
    answered_at: float | None = None
    replies: int = 0
    given_up: bool = False

    @property
    def is_answered(self) -> bool:
        """True with a host for each server."""
        is_error = isinstance(self.answer, Exception)
        return self.answered_at is not None and not is_error


@dataclass
class Server:
    """A server of a user.

    :ivar call: the last call of a scheduler for the server.
    :ivar failed: the calls for the server that got no host. Their schedulers may have
        to delete allocations yet.
    :ivar group: the UUID of its group.
    :ivar host: the name of its host; None before a scheduler has chosen.
    :ivar is_built: the databases tell the host.
    :ivar is_wanted: False as soon as the user deletes the server.
    :ivar destination: the host to which the server is being evacuated.
    :ivar is_moving: an evacuation is in progress.
    :ivar settled_at: when the last evacuation ended.
    """

    uuid: str
    flavor: Flavor
    call: Call
    failed: list[Call] = field(default_factory=list)
    group: str | None = None
    host: str | None = None
    is_built: bool = False
    is_wanted: bool = True
    is_deleted: bool = False
    destination: str | None = None
    is_moving: bool = False
    settled_at: float = 0.0

    @property
    def is_resting(self) -> bool:
        """True for a server with which nothing happens."""
        return self.is_built and self.is_wanted and not self.is_moving


@dataclass
class World:
    """The cloud of a simulation.

    :ivar folder: for the databases.
    :ivar tell: takes a line of the story.
    :ivar calls: the calls of the day.
    :ivar servers: the servers that may have allocations, by UUID.
    :ivar processes: the schedulers that users reach.
    :ivar stopping: the schedulers that were told to stop.
    :ivar groups: the members of each server group.
    :ivar troubled_at: when schedulers may last not have heard each other; infinite
        during an outage of the broker.
    """

    loop: Loop
    folder: Path
    hosts: int = 20
    schedulers: int = 3
    tell: Callable[[str], None] = lambda text: None
    weather: Weather = field(default_factory=Weather)
    model: PlacementModel = field(default_factory=PlacementModel)
    calls: list[Call] = field(default_factory=list)
    servers: dict[str, Server] = field(default_factory=dict)
    processes: list[SchedulerProcess] = field(default_factory=list)
    stopping: list[SchedulerProcess] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)
    troubled_at: float = 0.0

    def __post_init__(self) -> None:
        self.broker = Broker(self.loop)
        machines = [
            SandboxHost(f'host-{number:02}', cell=f'cell{number % 2 + 1}')
            for number in range(self.hosts)
        ]
        databases = Databases(self.folder, ['cell1', 'cell2'])
        self.computes = Computes(databases, machines)
        self.computes.deploy()
        for machine in machines:
            inventories = {}
            for name, values in machine.inventories.items():
                inventories[name] = Inventory(
                    int(values['total']),
                    int(values['reserved']),
                    values['allocation_ratio'],
                )
            provider = Provider(machine.uuid, inventories, [os_traits.OWNER_NOVA])
            self.model.providers[machine.uuid] = provider
        self._arguments = self._configured()
        self._number = 0
        self._actions: dict[str, Callable[[Random], None]] = {
            script.BOOT: self._boot,
            script.DELETE: self._delete,
            script.EVACUATE: self._evacuate,
            script.BAD_WEATHER: self._bad_weather,
            script.PLACEMENT_STOPS: self._placement_stops,
            script.BROKER_STOPS: self._broker_stops,
            script.CONNECTIONS_BREAK: self._connections_break,
            script.KILL: self._kill,
            script.RESTART: self._restart,
        }

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
            'novasched': {'decisions_file': '', 'decisions': '10'},
        }
        ini = ConfigParser(interpolation=None)
        ini.read_dict(groups)
        path = self.folder / 'nova.conf'
        with path.open('w', encoding='utf-8') as file:
            ini.write(file)
        return '--config-file', str(path), '--config-dir', str(further)

    # A day

    def day(self, actions: Sequence[Action]) -> None:
        """Let a day with the actions of a script pass."""
        loop = self.loop
        for _ in range(self.schedulers):
            self._start_process()
        loop.spawn(self._report, WORLD)
        loop.run_until(loop.now + START_S)
        begin = loop.now
        for action in actions:
            loop.run_until(begin + action.at)
            self._begin(action)
        loop.run_until(begin + script.BUSY_S)
        self._end_faults()
        loop.run_until(loop.now + CALM_S)

    def _begin(self, action: Action) -> None:
        """Begin an action in a task of its own."""
        act = self._actions[action.kind]
        self.loop.spawn(lambda: act(Random(action.seed)), WORLD)

    def _start_process(self) -> None:
        self._number += 1
        name = f'scheduler-{self._number}'
        self.tell(f'{name} starts')
        http = SimulatedHttp(self.loop, self.model, self.weather)
        process = SchedulerProcess(name, self.loop, self._arguments, http, self.broker)
        process.start()
        self.processes.append(process)
        self._note_trouble()

    def _report(self) -> None:
        """Let the computes report, for ever."""
        while True:
            self.computes.report()
            self.loop.sleep(REPORT_S)

    # Users and nova-conductor

    def _boot(self, random: Random) -> None:
        """Boot one server, or several at once."""
        flavor = random.choices(FLAVORS, SHARES)[0]
        count = random.choices((1, 3), (8, 1))[0]
        is_in_group = random.random() < IN_GROUP
        uuids = [_new_uuid(random) for _ in range(count)]
        process = self._ready_process(random)
        if process is None:
            return
        group = None
        if is_in_group:
            group = self._group_with(uuids, random)
        call = Call(uuids, flavor, process, self.loop.now, group)
        for server_uuid in uuids:
            server = Server(server_uuid, flavor, call)
            if group is not None:
                server.group = group.uuid
            self.servers[server_uuid] = server
        self.computes.ask_for(uuids)
        self._ask(call, request_spec(uuids, flavor, group=group))
        if not call.is_answered:
            self.computes.bury(uuids)
            return
        for server_uuid, [first, *_] in zip(uuids, call.answer, strict=True):
            host = first.value('service_host')
            server = self.servers[server_uuid]
            seed = random.getrandbits(32)
            self.loop.spawn(
                lambda s=server, h=host, r=seed: self._build(s, h, Random(r))
            )

    def _ask(self, call: Call, spec: wire.RequestSpec) -> None:
        """Call a scheduler, and wait for the reply. nova-conductor waits as long as the
        scheduler is there."""
        loop = self.loop
        self.calls.append(call)
        names = ' '.join(call.uuids)
        self.tell(f'{call.process.name} is asked for a {call.flavor.name}: {names}')

        def reply(answer: Any) -> None:
            call.answer = answer
            call.answered_at = loop.now
            call.replies += 1

        call.process.call(spec, call.uuids, reply)
        gone_at = None
        while call.answered_at is None:
            if gone_at is None and loop.is_dead(call.process.name):
                gone_at = loop.now
            if gone_at is not None and loop.now > gone_at + LOST_CALL_S:
                call.given_up = True
                break
            loop.sleep(0.5)
        if not call.is_answered:
            for server_uuid in call.uuids:
                self.servers[server_uuid].failed.append(call)
            why = 'nova-conductor gives up' if call.given_up else repr(call.answer)
            self.tell(f'no host for {names}: {why}')

    def _group_with(self, uuids: Sequence[str], random: Random) -> ServerGroup:
        """A hard group that new servers join."""
        name = _new_uuid(random)
        growing = []
        for group_uuid, members in self.groups.items():
            if len(members) < MAX_MEMBERS:
                growing.append(group_uuid)
        if growing:
            name = random.choice(growing)
        self.groups.setdefault(name, []).extend(uuids)
        return self._present_group(name, uuids)

    def _present_group(self, name: str, asked: Sequence[str]) -> ServerGroup:
        """A hard group as nova-conductor finds it in the databases.

        :param asked: the servers for which a scheduler is asked. Their own hosts do not
            count.
        """
        hosts = set()
        for member in self.groups[name]:
            server = self.servers.get(member)
            if server is not None and server.is_built and member not in asked:
                hosts.add(str(server.host))
        return ServerGroup(
            name,
            name,
            policy='anti-affinity',
            members=frozenset(self.groups[name]),
            hosts=frozenset(hosts),
        )

    def _build(self, server: Server, host: str, random: Random) -> None:
        """Build a server on the selected host. After a failed build, nova-conductor
        deletes the allocations and asks for another host."""
        uuids = [server.uuid]
        self.computes.create(server.uuid, server.flavor, host)
        while True:
            self.tell(f'{server.uuid} gets {host}')
            server.host = host
            self.loop.sleep(random.uniform(2, 20))
            if random.random() > BUILD_FAILS:
                self.computes.build(server.uuid, host)
                server.is_built = True
                return

            self.tell(f'the build of {server.uuid} fails')
            server.host = None
            self.model.handle('DELETE', f'/allocations/{server.uuid}', None)
            process = self._ready_process(random)
            while process is None:
                self.loop.sleep(5.0)
                process = self._ready_process(random)
            moment = self.loop.now
            server.call = Call(uuids, server.flavor, process, moment, is_move=True)
            self._ask(server.call, self._another_host(server, host))
            if not server.call.is_answered:
                self.computes.fail(server.uuid, host)
                return
            [[first, *_]] = server.call.answer
            host = first.value('service_host')

    def _delete(self, random: Random) -> None:
        """Delete a server from its host and from Placement."""
        server = self._resting_server(random)
        if server is None:
            return
        host = str(server.host)
        server.is_wanted = False
        self.loop.sleep(random.uniform(0.1, 5))
        self.computes.delete(server.uuid, host)
        self.loop.sleep(random.uniform(0.01, 1))
        self.model.handle('DELETE', f'/allocations/{server.uuid}', None)
        server.is_deleted = True
        self.tell(f'{server.uuid} is deleted')

    def _evacuate(self, random: Random) -> None:
        """Evacuate a server, as if its host were lost. After an error of a service, and
        after a call without an answer, the user tries again."""
        loop = self.loop
        server = self._resting_server(random)
        if server is None:
            return
        server.is_moving = True
        source = str(server.host)
        tries = 0
        while True:
            process = self._ready_process(random)
            if process is None:
                loop.sleep(5.0)
                continue
            self.computes.set_task(server.uuid, source, 'rebuilding')
            uuids = [server.uuid]
            server.call = Call(uuids, server.flavor, process, loop.now, is_move=True)
            self._ask(server.call, self._another_host(server, source))
            tries += 1
            is_refused = isinstance(server.call.answer, NoValidHost)
            if server.call.is_answered or is_refused or tries == MAX_TRIES:
                break
            server.settled_at = loop.now
            loop.sleep(random.uniform(0, 30))

        if server.call.is_answered:
            [[first, *_]] = server.call.answer
            self._rebuild(server, source, first.value('service_host'), random)
        else:
            self.computes.set_task(server.uuid, source, None)
        server.is_moving = False
        server.settled_at = loop.now

    def _another_host(self, server: Server, host: str) -> wire.RequestSpec:
        """The request for another host of the same cell."""
        cell = self.computes.machines[host].cell
        group = None
        if server.group is not None:
            group = self._present_group(server.group, [server.uuid])
        return request_spec(
            [server.uuid],
            server.flavor,
            group=group,
            requested_destination=wire.Destination(
                cell=wire.CellMapping(uuid=stable_uuid('cell', cell))
            ),
            ignore_hosts=[host],
        )

    def _rebuild(self, server: Server, source: str, host: str, random: Random) -> None:
        """Rebuild a server on another host. Then the source comes back, and gives up
        the server."""
        server.destination = host
        self.tell(f'{server.uuid} is evacuated to {host}')
        self.loop.sleep(random.uniform(1, 20))
        self.computes.move(server.uuid, source, host)
        self.loop.sleep(random.uniform(0.1, 20))
        server.host = host
        server.destination = None
        self.model.remove(server.uuid, self.computes.machines[source].uuid)

    def _resting_server(self, random: Random) -> Server | None:
        resting = [server for server in self.servers.values() if server.is_resting]
        if not resting:
            return None
        return random.choice(resting)

    def _ready_process(self, random: Random) -> SchedulerProcess | None:
        ready = [process for process in self.processes if process.is_ready]
        if not ready:
            return None
        return random.choice(ready)

    # Faults

    def _bad_weather(self, random: Random) -> None:
        weather = Weather(slow_s=random.choice((0.03, 0.3, 2.0)))
        for name in ('lost_before', 'lost_after', 'late', 'twice', 'busy'):
            setattr(weather, name, random.choice((0.0, 0.0, 0.03, 0.1)))
        self.weather.become(weather)
        self.tell(f'Placement: {weather}')
        self.loop.sleep(random.uniform(5, 60))
        self.weather.become(Weather())
        self.tell('Placement is well again')

    def _placement_stops(self, random: Random) -> None:
        self.tell('Placement stops')
        self.weather.is_down = True
        self.loop.sleep(random.uniform(1, 45))
        self.weather.is_down = False
        self.tell('Placement starts')

    def _broker_stops(self, random: Random) -> None:
        self.tell('the broker stops')
        self.troubled_at = math.inf
        self.broker.stop()
        self.loop.sleep(random.uniform(1, 30))
        self._start_broker()

    def _start_broker(self) -> None:
        if self.broker.is_down:
            self.broker.is_down = False
            self.troubled_at = self.loop.now
            self.tell('the broker starts')

    def _connections_break(self, random: Random) -> None:
        self.tell('the connections to the broker break')
        self.broker.break_connections()
        self._note_trouble()

    def _note_trouble(self) -> None:
        """Note that schedulers may not hear each other now."""
        self.troubled_at = max(self.troubled_at, self.loop.now)

    def _kill(self, random: Random) -> None:
        process = self._ready_process(random)
        if process is None:
            return
        self.tell(f'{process.name} is killed')
        process.kill()
        self._note_trouble()
        self.processes.remove(process)
        self.loop.sleep(random.uniform(0, 20))
        self._start_process()

    def _restart(self, random: Random) -> None:
        process = self._ready_process(random)
        if process is None:
            return
        self.tell(f'{process.name} is restarted')
        process.stop()
        self._note_trouble()
        self.processes.remove(process)
        self.stopping.append(process)
        self._start_process()

    def _end_faults(self) -> None:
        self.weather.become(Weather())
        self._start_broker()
        self.tell('the faults end')

    # For the checks

    def amounts_of(self, server: Server) -> dict[str, dict[str, int]]:
        """The allocations of a server with a host: those on its host, and on its
        destination."""
        amounts = {}
        for name in (server.host, server.destination):
            if name is not None:
                machine = self.computes.machines[name]
                amounts[machine.uuid] = dict(flavor_resources(server.flavor))
        return amounts


def _new_uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


class Clock:
    """The wall clock of oslo.utils, in virtual time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def pop(self, _: int) -> datetime:
        """The present moment. ``timeutils.utcnow`` takes the clock for a list of
        moments."""
        moment = EPOCH + timedelta(seconds=self._loop.now)
        return moment.replace(tzinfo=None)
