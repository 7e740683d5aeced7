# SPDX-License-Identifier: Apache-2.0
"""The faults that befall a simulated cloud."""

import math
from random import Random

from tests.simulation.placement_http import Weather
from tests.simulation.world import World


class Faults:
    """The faults. Each method takes the random numbers of its action."""

    def __init__(self, world: World) -> None:
        self._world = world

    def bad_weather(self, random: Random) -> None:
        """Let requests to Placement be slow, and be lost, for a while."""
        weather = Weather(slow_s=random.choice((0.03, 0.3, 2.0)))
        for name in ('lost_before', 'lost_after', 'late', 'twice', 'busy'):
            setattr(weather, name, random.choice((0.0, 0.0, 0.03, 0.1)))
        self._world.weather.become(weather)
        self._world.tell(f'Placement: {weather}')
        self._world.loop.sleep(random.uniform(5, 60))
        self._world.weather.become(Weather())
        self._world.tell('Placement is well again')

    def placement_stops(self, random: Random) -> None:
        """Stop Placement for a while."""
        self._world.tell('Placement stops')
        self._world.weather.is_down = True
        self._world.loop.sleep(random.uniform(1, 45))
        self._world.weather.is_down = False
        self._world.tell('Placement starts')

    def broker_stops(self, random: Random) -> None:
        """Stop the broker for a while."""
        self._world.tell('the broker stops')
        self._world.troubled_at = math.inf
        self._world.broker.stop()
        self._world.loop.sleep(random.uniform(1, 30))
        self._start_broker()

    def _start_broker(self) -> None:
        if self._world.broker.is_down:
            self._world.broker.is_down = False
            self._world.troubled_at = self._world.loop.now
            self._world.tell('the broker starts')

    def connections_break(self, random: Random) -> None:
        """Break all connections to the broker."""
        self._world.tell('the connections to the broker break')
        self._world.broker.break_connections()
        self._world.note_trouble()

    def kill(self, random: Random) -> None:
        """Kill a scheduler, and start another one after a while."""
        process = self._world.ready_process(random)
        if process is None:
            return
        self._world.tell(f'{process.name} is killed')
        process.kill()
        self._world.note_trouble()
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
        self._world.note_trouble()
        self._world.processes.remove(process)
        self._world.stopping.append(process)
        self._world.start_process()

    def end(self) -> None:
        """End all faults."""
        self._world.weather.become(Weather())
        self._start_broker()
        self._world.tell('the faults end')
