# SPDX-License-Identifier: Apache-2.0
"""The faults that befall a simulated cloud."""

import math
from contextlib import suppress
from functools import partial
from random import Random

import msgspec
import os_traits

from novasched.rpc.peer_protocol import REUNION_S
from novasched.tools.sandbox.computes import stable_uuid
from tests.simulation.exchange import Disconnected
from tests.simulation.loop import WORLD
from tests.simulation.placement_http import Weather
from tests.simulation.world import ZONE, World, new_uuid

MAX_JUMP_S = 20.0
"""The largest error of a wall clock, in seconds. Beyond service_down_time less the
interval of reports, services count as down."""
REPORT_S = 10.0
"""Seconds between two reports of the nova-computes."""
LAGS_S = (0.5, 4.0)
"""Seconds between a change of aggregates in nova's database and in Placement. Each
change takes one of these times."""
CLAIM_WAIT_S = 8.0
"""The longest seconds for which a stop of Placement waits for a claim."""
CLAIM_LOOK_S = 0.004
"""Seconds between two looks for a claim, a part of the time of an answer."""
READ_LAGS_S = (0.2, 2.0)
"""The longest seconds by which a replica of a database is behind."""
BRIDGED_S = 5.0
"""Seconds for which schedulers bridge a lag, and hosts look fuller than they are."""
AT_ONCE = (1, 6)
"""Numbers of hosts that change their zone at once."""
MEET_S = 5.0
"""Seconds after the start of the broker in which the schedulers meet."""
FORGED_ROWS = 5
"""Rows of an announcement with invalid rows."""
BAD_FIELDS = (
    {'state': 'claimed', 'age': -1e9, 'claimed_age': -1e9},
    {'age': math.inf},
    {'memory_mb': -(2**50)},
    {'amounts': {'provider': {'MEMORY_MB': -1}}},
    {'mappings': 'xx', 'pci': [{'count': 1, 'spec': []}]},
    {'numa': {'cells': []}},
)
"""Fields that make a row invalid."""


class Faults:
    """The faults. Each method takes the random numbers of its action."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Actions that let databases lag at present.
        self._lags = 0

    def bad_weather(self, random: Random) -> None:
        """Let requests to Placement be slow, and be lost, for a while."""
        weather = Weather(slow_s=random.choice((0.03, 0.3, 2.0)))
        for name in ('lost_before', 'lost_after', 'late', 'twice', 'busy'):
            setattr(weather, name, random.choice((0.0, 0.0, 0.05, 0.2)))
        self._world.weather.become(weather)
        self._world.troubles.lost_at = math.inf
        self._world.tell(f'Placement: {weather}')
        self._world.loop.sleep(random.uniform(10, 90))
        self._end_weather()
        self._world.tell('Placement is well again')

    def _end_weather(self) -> None:
        self._world.weather.become(Weather())
        self._world.troubles.lost_at = self._world.loop.now

    def placement_stops(self, random: Random) -> None:
        """Stop Placement for a while, often just after a claim: its answer gets lost,
        and repetitions find no Placement."""
        world = self._world
        self._wait_for_claim(random.uniform(0, CLAIM_WAIT_S))
        if world.weather.is_down:
            return
        world.tell('Placement stops')
        world.weather.down_since = world.loop.now
        world.loop.sleep(random.uniform(1, random.choice((10, 20, 45, 150))))
        world.weather.down_since = math.inf
        world.troubles.lost_at = max(world.troubles.lost_at, world.loop.now)
        world.tell('Placement starts')

    def _wait_for_claim(self, seconds: float) -> None:
        """Wait for the next new consumer in Placement, for some seconds at most."""
        loop = self._world.loop
        consumers = self._world.model.consumers
        until = loop.now + seconds
        number = len(consumers)
        while len(consumers) <= number and loop.now < until:
            loop.sleep(CLAIM_LOOK_S)

    def broker_stops(self, random: Random) -> None:
        """Stop the broker for a while."""
        troubles = self._world.troubles
        seconds = random.uniform(1, 30)
        self._world.tell('the broker stops')
        troubles.note_broken_connections()
        troubles.unheard_at = math.inf
        if seconds > REUNION_S - MEET_S:
            troubles.alone_at = math.inf
        self._world.broker.stop()
        self._world.loop.sleep(seconds)
        self._start_broker()

    def _start_broker(self) -> None:
        if self._world.broker.is_down:
            self._world.broker.is_down = False
            self._hear_again()
            self._world.tell('the broker starts')

    def _hear_again(self) -> None:
        broker = self._world.broker
        if not broker.is_down and not broker.lost and not broker.twice:
            troubles = self._world.troubles
            troubles.unheard_at = self._world.loop.now
            troubles.alone_at = min(troubles.alone_at, self._world.loop.now)

    def connections_break(self, random: Random) -> None:
        """Break all connections to the broker."""
        self._world.tell('the connections to the broker break')
        self._world.broker.break_connections()
        self._world.troubles.note_broken_connections()

    def kill(self, random: Random) -> None:
        """Kill a scheduler, and start another one after a while."""
        process = self._world.ready_process(random)
        if process is None:
            return
        self._world.tell(f'{process.name} is killed')
        process.kill()
        self._world.troubles.note_unheard()
        self._world.processes.remove(process)
        self._world.loop.sleep(random.uniform(0, 20))
        self._world.start_process()

    def restart(self, random: Random) -> None:
        """Start a scheduler in place of one that ends in good order."""
        process = self._world.ready_process(random)
        if process is None:
            return
        self._world.tell(f'{process.name} is restarted')
        process.stop()
        self._world.troubles.note_unheard()
        self._world.processes.remove(process)
        self._world.stopping.append(process)
        self._world.start_process()

    def messages_get_lost(self, random: Random) -> None:
        """Let the broker lose and repeat messages for a while."""
        broker = self._world.broker
        broker.lost = random.choice((0.0, 0.1, 0.5))
        broker.twice = random.choice((0.0, 0.1))
        self._world.tell(f'messages: {broker.lost} lost, {broker.twice} twice')
        self._world.troubles.unheard_at = math.inf
        self._world.troubles.alone_at = math.inf
        self._world.loop.sleep(random.uniform(1, 20))
        self._deliver_messages()

    def _deliver_messages(self) -> None:
        broker = self._world.broker
        broker.lost = broker.twice = 0.0
        self._hear_again()

    def database_fails(self, random: Random) -> None:
        """Let a database refuse queries, or answer none, for a while."""
        world = self._world
        name = random.choice(['api', *world.computes.databases.cells])
        troubled, how, longest_s = random.choice(
            (
                (world.database_health.down, 'fails', 5.0),
                (world.database_health.down, 'fails', 40.0),
                (world.database_health.hung, 'hangs', 70.0),
            )
        )
        hosts = []
        for machine in world.computes.machines.values():
            if name in ('api', machine.cell):
                hosts.append(machine.name)
        world.tell(f'the database {name} {how}')
        troubled.add(name)
        world.troubles.begin(hosts)
        world.loop.sleep(random.uniform(0.5, longest_s))
        troubled.discard(name)
        world.troubles.end(hosts)
        world.troubles.databases_well_since = world.loop.now
        world.tell(f'the database {name} is well again')

    def databases_lag(self, random: Random) -> None:
        """Let the replicas of the databases lag behind for a while."""
        world = self._world
        hosts = [*world.computes.machines]
        longest_s = random.choice(READ_LAGS_S)
        world.tell(f'the replicas of the databases are up to {longest_s} s behind')
        world.database_health.replicas.begin_lag(random, longest_s)
        world.troubles.begin(hosts)
        self._lags += 1
        world.loop.sleep(random.uniform(10, 150))
        self._lags -= 1
        if not self._lags:
            world.database_health.replicas.end_lag()
        world.troubles.end(hosts, BRIDGED_S)

    def clock_jumps(self, random: Random) -> None:
        """Set the wall clock of a scheduler."""
        process = self._world.ready_process(random)
        if process is None:
            return
        clocks = self._world.loop.clocks[process.name]
        clocks.wall_offset = random.uniform(-MAX_JUMP_S, MAX_JUMP_S)
        self._world.tell(
            f'the clock of {process.name} is {clocks.wall_offset:.1f} s ahead'
        )

    def reload(self, random: Random) -> None:
        """Send SIGHUP to a scheduler."""
        process = self._world.ready_process(random)
        if process is not None:
            self._world.tell(f'{process.name} is reloaded')
            process.reload()

    def compute_is_silent(self, random: Random) -> None:
        """Let a nova-compute not report for a while."""
        world = self._world
        name = random.choice([*world.computes.machines])
        world.tell(f'the nova-compute of {name} is silent')
        world.computes.silent.add(name)
        world.troubles.begin([name])
        world.loop.sleep(random.uniform(10, 150))
        world.computes.silent.discard(name)
        world.troubles.end([name], REPORT_S)
        world.tell(f'the nova-compute of {name} reports again')

    def host_is_disabled(self, random: Random) -> None:
        """Disable a host for a while."""
        world = self._world
        name = random.choice([*world.computes.machines])
        if name in world.disabled_since:
            return
        traits = world.model.providers[world.computes.machines[name].uuid].traits
        world.tell(f'{name} is disabled')
        world.computes.set_disabled(name, True)
        traits.append(os_traits.COMPUTE_STATUS_DISABLED)
        world.disabled_since[name] = world.loop.now
        world.troubles.begin([name])
        world.loop.sleep(random.uniform(10, 150))
        world.tell(f'{name} is enabled')
        world.computes.set_disabled(name, False)
        traits.remove(os_traits.COMPUTE_STATUS_DISABLED)
        del world.disabled_since[name]
        world.troubles.end([name])

    def hosts_change_zone(self, random: Random) -> None:
        """Let hosts join the availability zone, or leave it."""
        machines = self._world.computes.machines
        for name in random.sample([*machines], random.choice(AT_ONCE)):
            lag = random.choice(LAGS_S)
            self._world.loop.spawn(partial(self._change_zone, name, lag), WORLD)

    def _change_zone(self, name: str, lag: float) -> None:
        """Change the zone of a host. nova-api writes to its database first, and to
        Placement afterwards."""
        world = self._world
        provider = world.model.providers[world.computes.machines[name].uuid]
        zone = stable_uuid('aggregate', ZONE)
        is_inside = name in world.outside_since
        if is_inside is (zone in provider.aggregates):
            return  # another change is in progress
        world.tell(f'{name} {"joins" if is_inside else "leaves"} the zone')
        world.computes.set_zone(name, is_inside)
        if is_inside:
            del world.outside_since[name]
        else:
            world.outside_since[name] = world.loop.now
        world.loop.sleep(lag)
        provider.generation += 1
        if is_inside:
            provider.aggregates.add(zone)
        else:
            provider.aggregates.discard(zone)

    def messages_are_forged(self, random: Random) -> None:
        """Send announcements with invalid rows, as everybody can who has the password of
        the broker."""
        self._world.tell('invalid announcements arrive')
        machines = [*self._world.computes.machines.values()]
        rows = []
        for number in range(1, FORGED_ROWS + 1):
            machine = random.choice(machines)
            row = {
                'number': number,
                'state': random.choice(('chosen', 'claimed')),
                'instance': new_uuid(random),
                'uuid': machine.uuid,
                'host': machine.name,
                'node': machine.name,
                'cell': stable_uuid('cell', machine.cell),
                'memory_mb': 60_000,
            }
            rows.append({**row, **random.choice(BAD_FIELDS)})
        message = {'sender': 'forger', 'number': 1, 'rows': rows}
        with suppress(Disconnected):
            self._world.broker.publish(msgspec.msgpack.encode(message))

    def end(self) -> None:
        """End all faults that concern everybody."""
        self._end_weather()
        self._world.weather.down_since = math.inf
        self._world.database_health.down.clear()
        self._world.database_health.hung.clear()
        self._world.database_health.replicas.end_lag()
        self._start_broker()
        self._deliver_messages()
        self._world.tell('the faults end')
