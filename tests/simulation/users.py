# SPDX-License-Identifier: Apache-2.0
"""The users of a simulated cloud: they boot and delete servers. ``moves.py`` has the
moves of servers."""

from collections.abc import Sequence
from functools import partial
from random import Random

from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import ServerGroup
from tests.simulation.conductor import Conductor, request_for
from tests.simulation.flavors import FLAVORS, PINNED, PINNED_FLAVORS, SHARES, SMALL
from tests.simulation.slow_filter import SECONDS_PER_HOST
from tests.simulation.world import ZONE, Call, Server, World, new_uuid

MAX_MEMBERS = 8
"""Members of a group that takes more members."""
BUILD_FAILS = 0.2
"""The share of the builds that fail."""
MANY = (15, 40)
"""The fewest and the most servers of a long request."""
MANY_IN_GROUP = (8, 12)
"""The same for members of a group, which have a host each."""
MANY_ARE_IN_GROUP = 0.4
"""The share of the long requests without dedicated CPUs that are for a group."""
SPARE_CELLS = (3, 10)
"""The fewest and the most NUMA cells that a long request for guests with dedicated CPUs
leaves to the guests of other requests."""
PINNED_BESIDE = 3
PINNED_BESIDE_S = 40.0
"""Guests with dedicated CPUs that others boot beside such a request, and the seconds in
which their boots begin. The request has read the hosts before, and ends when the claims
of these guests are old."""
FILTERS_TAKE_S = (0.0, 4.0, 10.0)
"""Seconds that filters take for each server of a long request. Schedulers forget a claim
two minutes after hosts show its server, unless a request in progress needs the claim."""
MESSAGE_WAITS_S = (0.0, 0.0, 0.0, 12.0)
"""Seconds for which a message for a member of a group waits in the broker. Members that
are placed meanwhile are not in the message."""
NETWORK_TAKES_S = (0.05, 1.0)
"""Seconds from the report of a host with a new server to the next step of the build."""
COUNTS_TWICE_S = 4.0
"""Seconds after which the next step of the build is also in a replica that lags behind."""
NEEDED_S = (5.0, 60.0)
"""The fewest and the most seconds for which users need the servers of a long
request."""


class Users:
    """The actions of users. Each method takes the random numbers of its action."""

    def __init__(self, world: World, conductor: Conductor) -> None:
        self._world = world
        self._conductor = conductor
        self._loop = world.loop

    def boot(self, random: Random) -> None:
        """Boot one server, or several at once."""
        self._boot_few(random)

    def boot_in_group(self, random: Random) -> None:
        """Boot members of a group with hard anti-affinity."""
        self._boot_few(random, is_in_group=True)

    def boot_in_zone(self, random: Random) -> None:
        """Boot servers in the availability zone."""
        self._boot_few(random, zone=ZONE)

    def boot_pinned(self, random: Random) -> None:
        """Boot a guest with dedicated CPUs, with or without devices near them."""
        self._boot(random, random.choice(PINNED_FLAVORS), 1)

    def boot_many(self, random: Random) -> None:
        """Boot many servers by one request, for which a scheduler decides for minutes,
        and delete the servers soon. A second request of this kind has to wait, since a
        scheduler may have two threads only."""
        if any(call.is_long and call.is_open for call in self._world.calls):
            return
        flavor = random.choice((SMALL, PINNED))
        is_in_group = flavor is SMALL and random.random() < MANY_ARE_IN_GROUP
        if flavor is PINNED:
            count = self._world.free_cells() - random.randint(*SPARE_CELLS)
            for _ in range(PINNED_BESIDE):
                seed = random.getrandbits(32)
                self._loop.spawn(partial(self._boot_pinned_soon, Random(seed)))
        elif is_in_group:
            count = random.randint(*MANY_IN_GROUP)
        else:
            count = random.randint(*MANY)
        self._boot(random, flavor, max(1, count), is_in_group, is_long=True)

    def _boot_pinned_soon(self, random: Random) -> None:
        """Boot a guest with dedicated CPUs, shortly after a long request has begun."""
        self._loop.sleep(random.uniform(0, PINNED_BESIDE_S))
        self.boot_pinned(random)

    def _boot_few(
        self, random: Random, is_in_group: bool = False, zone: str | None = None
    ) -> None:
        flavor = random.choices(FLAVORS, SHARES)[0]
        count = random.choices((1, 3), (4, 1))[0]
        self._boot(random, flavor, count, is_in_group, zone)

    def _boot(
        self,
        random: Random,
        flavor: Flavor,
        count: int,
        is_in_group: bool = False,
        zone: str | None = None,
        is_long: bool = False,
    ) -> None:
        uuids = [new_uuid(random) for _ in range(count)]
        process = self._world.ready_process(random)
        if process is None:
            return
        group = None
        if is_in_group:
            group = self._group_with(uuids, random)
        call = Call(uuids, flavor, process, self._loop.now, is_long=is_long, zone=zone)
        for server_uuid in uuids:
            server = Server(server_uuid, flavor, call, zone=zone)
            if group is not None:
                server.group = group.uuid
            self._world.servers[server_uuid] = server
        self._world.computes.ask_for(uuids)
        spec = request_for(uuids, flavor, group, zone)
        may_wait = group is not None and not is_long
        if may_wait:
            self._loop.sleep(random.choice(MESSAGE_WAITS_S))
        # The scheduler may stop during the wait, and during the query of nova-api.
        if may_wait or not process.is_ready:
            call.process = self._conductor.ready_process(random)
            call.began = self._loop.now
        if is_long:
            hosts = len(self._world.computes.machines)
            seconds = random.choice(FILTERS_TAKE_S) / hosts
            hints = spec.value('scheduler_hints', {})
            spec.scheduler_hints = {**hints, SECONDS_PER_HOST: [str(seconds)]}
        self._conductor.call(call, spec)
        if not call.is_placed:
            self._world.computes.bury(uuids)
            return
        for server_uuid, [first, *_] in zip(uuids, call.answer, strict=True):
            host = first.value('service_host')
            server = self._world.servers[server_uuid]
            seed = random.getrandbits(32)
            self._loop.spawn(
                lambda s=server, h=host, r=seed: self._live(s, h, is_long, Random(r))
            )

    def _live(self, server: Server, host: str, is_brief: bool, random: Random) -> None:
        """Build a server.

        :param is_brief: delete the server soon, unless it is moving then.
        """
        self._build(server, host, random)
        if not is_brief:
            return
        self._loop.sleep(random.uniform(*NEEDED_S))
        if server.is_resting:
            self._delete(server, random)

    def _group_with(self, uuids: Sequence[str], random: Random) -> ServerGroup:
        """A hard group that new servers join."""
        name = new_uuid(random)
        growing = []
        for group_uuid, members in self._world.groups.items():
            if len(members) < MAX_MEMBERS:
                growing.append(group_uuid)
        if growing:
            name = random.choice(growing)
        self._world.groups.setdefault(name, []).extend(uuids)
        return self._conductor.group(name, uuids)

    def _build(self, server: Server, host: str, random: Random) -> None:
        """Build a server on the selected host. After a failed build, nova-conductor
        deletes the allocations and asks for another host."""
        computes = self._world.computes
        computes.create(server.uuid, server.flavor, host)
        next_host: str | None = host
        while next_host is not None:
            host = next_host
            self._world.tell(f'{server.uuid} gets {host}')
            server.host = host
            self._loop.sleep(random.uniform(2, 20))
            is_refused = self._world.is_refused_by_compute(server)
            if random.random() > BUILD_FAILS and not is_refused:
                self._world.note_pending(host, COUNTS_TWICE_S)
                self._world.arrive(server, host, random)
                self._loop.sleep(random.uniform(*NETWORK_TAKES_S))
                computes.build(server.uuid, host)
                server.is_built = True
                return

            self._world.tell(f'the build of {server.uuid} fails')
            self._world.note_pending(host)
            server.host = None
            server.settled_at = self._loop.now
            self._world.model.handle('DELETE', f'/allocations/{server.uuid}', None)
            # The message to nova-conductor waits in the broker.
            self._loop.sleep(random.uniform(0.1, 5))
            next_host = self._conductor.host_for(server, random, host, ignored=[host])
        computes.fail(server.uuid, host)

    def delete(self, random: Random) -> None:
        """Delete a server from its host and from Placement."""
        server = self._world.resting_server(random)
        if server is not None:
            self._delete(server, random)

    def _delete(self, server: Server, random: Random) -> None:
        host = str(server.host)
        server.is_wanted = False
        self._loop.sleep(random.uniform(0.1, 5))
        self._world.computes.delete(server.uuid, host)
        self._loop.sleep(random.uniform(0.01, 1))
        self._world.model.handle('DELETE', f'/allocations/{server.uuid}', None)
        server.is_deleted = True
        self._world.tell(f'{server.uuid} is deleted')
