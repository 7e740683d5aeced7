# SPDX-License-Identifier: Apache-2.0
"""Conditions that hold in the simulated cloud at any moment, while services fail."""

import math
from collections.abc import Sequence

import os_resource_classes as classes

from novasched.placement.cleanup_task import CLEANUP_LIMIT_S
from novasched.rpc.faults import translate_error
from novasched.scheduler.claims.decision_lock import DECISION_TIMEOUT_S
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.claim import PendingClaim
from tests.simulation.day import CALM_S
from tests.simulation.devices import Device, cells_of
from tests.simulation.faults import LAGS_S
from tests.simulation.flavors import (
    AMOUNTS,
    CELLS,
    DEVICES_OF,
    FLAVORS,
    PINNED,
    PINNED_FLAVORS,
)
from tests.simulation.newcomer import differences
from tests.simulation.placement_http import CLIENT_TIMEOUT_S
from tests.simulation.troubles import HEARD_S
from tests.simulation.world import MAX_PER_HOST, Call, Server, World

LOOK_S = 1.0
"""Seconds between looks at all servers."""
ANSWER_S = 300.0
"""Seconds within which every call is answered, or its process is killed."""
LONG_ANSWER_S = 850.0
"""The same for a call for many servers, at least."""
LONG_ANSWER_PER_SERVER_S = 50.0
"""The same for each server of such a call: a decision takes ten seconds at most, each
server is decided twice if the claims for all servers together fail, both once more if
the hosts have changed before a refusal, and turns of other calls come in between."""
PLACEMENT_PATIENCE_S = 30.0
"""``[novasched] placement_patience``, by default."""
SLACK_S = 20.0
"""Seconds beyond the patience in which a call is answered. The last try repeats requests
to Placement for some seconds, and a call may wait for the thread of such a try."""
TURNS_S = 100.0
"""Further seconds for a call beside a long call: ten turns, each after a decision that
takes ten seconds."""
SLICE_LIMIT_S = DECISION_TIMEOUT_S
"""Seconds between two turns of requests for several instances while a request for a
single instance waits: a tenth, and nine tenths of the decision before, which may
take this time."""
KNOWN_S = 30.0
"""Seconds in which schedulers learn that a host is disabled."""
LEFT_S = CLEANUP_LIMIT_S + 150.0
"""Seconds after an answer in which the allocations of a refused server are deleted."""
assert LEFT_S < CALM_S, 'a day ends too early to see allocations that are left'


class Broken(Exception):
    """Ends a day at its first problem."""


class Checks:
    """Looks at the cloud.

    The conditions:

    - A server has allocations on its host, and on its destination during a move, from
      the answer of the scheduler until the server is deleted. During a migration, the
      consumer of the migration has those on the host.
    - A server has no other allocations. A call without a host, and a call that ends
      while its scheduler has allocations to delete, may leave allocations for as long
      as a cleanup may take; for ever, if the scheduler ends meanwhile.
    - A call has one answer, in time: hosts, or a fault that a conductor knows. While
      Placement refuses connections, in time means: within its patience.
    - No two members of a hard group share a host, unless their schedulers decided
      without hearing each other.
    - No host has more guests than places, or than places for guests with dedicated CPUs,
      unless their schedulers decided without hearing each other.
    - The devices of a guest are near one NUMA cell. No other guest has this cell, unless
      their schedulers decided without hearing each other.
    - A call for one server is refused only if no host had room all the time, of which
      schedulers could know that the host works, and which no other request had chosen.
    - No server goes to a host that was disabled long before, or that is outside the
      availability zone of the server.
    - A ledger has claims only for servers of users.
    - Requests for several instances do not have one turn after the other while a request
      for a single instance waits.
    - At the end of a day, no scheduler has allocations to delete, and each ranks hosts
      as a scheduler does that has just started.
    - A scheduler that decides nothing has no choice of its own in its ledger. A choice
      of another scheduler leaves the ledger soon after that scheduler has ended it.

    :ivar problems: conditions that did not hold.
    """

    def __init__(self, world: World, is_patient: bool = True) -> None:
        """:param is_patient: go on after a problem."""
        self.world = world
        self._is_patient = is_patient
        self.problems: list[str] = []
        self.placed = 0
        self.refused = 0
        self.failed = 0
        # The number of calls at the last look, and the calls without an answer.
        self._begun = 0
        self._open: list[Call] = []
        self._deleted: dict[str, Server] = {}
        # By scheduler and instance, since when the scheduler believes in the choice of
        # another scheduler that has no such choice.
        self._believed: dict[tuple[str, str | None], float] = {}
        # The UUIDs of all servers of the day.
        self._known: set[str | None] = set()
        # The hosts that were chosen now, and at the last look.
        self._chosen: set[str] = set()
        # The devices of each compute node that has devices.
        self._devices: dict[str, Sequence[Device]] = {}
        for host, devices in world.devices.items():
            self._devices[world.computes.machines[host].uuid] = devices
        # By compute node and flavor, since when the flavor fits; infinite while it does
        # not.
        self._fits_since: dict[str, dict[str, float]] = {}
        for machine in world.computes.machines.values():
            self._fits_since[machine.uuid] = dict.fromkeys(AMOUNTS, -math.inf)
            self._changed(machine.uuid)
        world.model.changed = self._changed

    def watch(self) -> None:
        """Look at all servers again and again."""
        while True:
            self.look()
            self.world.loop.sleep(LOOK_S)

    def at_the_end(self) -> None:
        """Look at all servers at the end of a day."""
        self.look()
        for call in self.world.calls:
            if call.answered_at is None and not call.given_up:
                self._problem(f'{call.uuids} never got an answer')
            if call.replies > 1:
                self._problem(f'{call.uuids} got {call.replies} answers')
        for uuid, server in self._deleted.items():
            held = self.world.model.held_by(uuid)
            if held and not self._is_orphaned(server):
                self._problem(f'{uuid} was deleted long ago and has {held}')
        for process in self.world.processes:
            if process.pending_deletions:
                self._problem(f'{process.name} still deletes allocations')
            if process.longest_slice > SLICE_LIMIT_S:
                seconds = process.longest_slice
                self._problem(f'a single server waits for {seconds:.0f} s of turns')
        for difference in differences(self.world):
            self._problem(difference)

    def look(self) -> None:
        """Look at all calls, servers and groups."""
        self._chosen |= self._chosen_hosts()
        self._known |= self.world.servers.keys()
        self._look_at_calls()
        for server in [*self.world.servers.values()]:
            self._look_at_server(server)
        self._look_at_groups()
        self._look_at_places()
        self._look_at_devices()
        self._look_at_ledgers()
        self._chosen = self._chosen_hosts()

    def _look_at_calls(self) -> None:
        loop = self.world.loop
        calls = self._open + self.world.calls[self._begun :]
        self._begun = len(self.world.calls)
        self._open = []
        for call in calls:
            if call.answered_at is not None:
                self._look_at_answer(call)
                continue
            self._open.append(call)
            is_dead = loop.is_dead(call.process.name)
            if not is_dead and loop.now > call.began + self._patience_of(call):
                self._problem(f'{call.uuids} got no answer in time')

    def _look_at_answer(self, call: Call) -> None:
        if not isinstance(call.answer, Exception):
            self.placed += len(call.uuids)
            self._look_at_hosts(call)
        elif isinstance(call.answer, NoValidHost):
            self.refused += len(call.uuids)
            self._look_at_refusal(call)
        else:
            self.failed += len(call.uuids)
            fault = translate_error(call.answer)
            if 'internal error' in str(fault):
                self._problem(f'{call.uuids}: {call.answer!r} is an internal error')

    def _patience_of(self, call: Call) -> float:
        """Seconds in which a call is answered, if there was no other trouble: its own
        patience while Placement refuses connections."""
        world = self.world
        health = world.database_health
        has_database_trouble = (
            health.down
            or health.hung
            or world.troubles.databases_well_since > call.began
        )
        # A request that got lost occupies its thread until its timeout. After an outage,
        # a call may use up its patience again for another try.
        has_lost = world.troubles.lost_at > call.began - CLIENT_TIMEOUT_S
        has_stopped = call.began < world.weather.down_since < math.inf
        if call.is_long:
            return max(LONG_ANSWER_S, LONG_ANSWER_PER_SERVER_S * len(call.uuids))
        if has_stopped or has_database_trouble or has_lost:
            return ANSWER_S
        seconds = PLACEMENT_PATIENCE_S + SLACK_S
        if self._waits_for_turns(call):
            seconds += TURNS_S
        return seconds

    def _waits_for_turns(self, call: Call) -> bool:
        """True if each turn of a call waits for a decision of a long call, which takes
        seconds. A call needs several turns if claims are refused."""
        for other in self.world.calls:
            if other.is_long and other.process is call.process:
                ended = other.answered_at
                if ended is None or ended > call.began:
                    return True
        return False

    def _changed(self, root: str) -> None:
        """Note the flavors that fit on a compute node after a write."""
        model = self.world.model
        used = model.used(root)
        guests = model.consumers_on(root)
        full_cells = used[classes.PCPU] // PINNED.vcpus
        devices = self._devices.get(root, ())
        if devices:
            full_cells = len(cells_of(devices, model.providers_in_use()))
        inventories = model.providers[root].inventories
        since = self._fits_since[root]
        for flavor in FLAVORS:
            name = flavor.name
            fits = all(
                used[resource] + amount <= inventories[resource].capacity
                for resource, amount in AMOUNTS[name].items()
            )
            if flavor in PINNED_FLAVORS:
                # No guest is on the cell of a free device, and no device near a free
                # cell is in use.
                is_for_host = bool(devices) is (name in DEVICES_OF)
                fits = fits and is_for_host and full_cells < CELLS
            if not fits or guests >= MAX_PER_HOST:
                since[name] = math.inf
            elif since[name] == math.inf:
                since[name] = self.world.loop.now

    def _look_at_refusal(self, call: Call) -> None:
        """A single server without a group is refused only if no host had room all the
        time."""
        is_in_group = self.world.servers[call.uuids[0]].group is not None
        if len(call.uuids) > 1 or is_in_group or call.is_move or call.zone:
            return
        for machine in self.world.computes.machines.values():
            if machine.name in self._chosen:
                continue
            since = max(
                self._fits_since[machine.uuid][call.flavor.name],
                self.world.troubles.usable_since(machine.name),
            )
            if since < call.began:
                self._problem(f'{call.uuids} was refused, and {machine.name} had room')
                return

    def _look_at_hosts(self, call: Call) -> None:
        """No server goes to a host that has been disabled for a while, or that has left
        the zone of the server."""
        for server_uuid, [first, *_] in zip(call.uuids, call.answer, strict=True):
            host = first.value('service_host')
            since = self.world.disabled_since.get(host, math.inf)
            if since < call.began - KNOWN_S:
                self._problem(f'{server_uuid} gets {host}, which is disabled')
            since = self.world.outside_since.get(host, math.inf)
            if call.zone is not None and since < call.began - max(LAGS_S):
                self._problem(f'{server_uuid} gets {host}, which is outside its zone')

    def _look_at_server(self, server: Server) -> None:
        world = self.world
        if server.is_deleted:
            held = world.model.held_by(server.uuid)
            if held:
                self._problem(f'{server.uuid} is deleted and has {held}')
            self._deleted[server.uuid] = world.servers.pop(server.uuid)
            return
        if not server.is_wanted:
            return
        for consumer, expected in world.allocations_of(server).items():
            held = world.model.held_by(consumer)
            if held == expected:
                continue
            # An unsettled call may leave a claim for a while.
            may_hold_more = (
                server.may_get_host
                or world.loop.now <= server.settled_at + LEFT_S
                or self._is_orphaned(server)
            )
            if not may_hold_more or not expected.items() <= held.items():
                self._problem(f'{consumer} has {held}, should have {expected}')

    def _is_orphaned(self, server: Server) -> bool:
        """True if a scheduler has ended that may have had to delete allocations of the
        server."""
        is_dead = self.world.loop.is_dead
        return any(is_dead(call.process.name) for call in server.unsettled)

    def _look_at_groups(self) -> None:
        """No two members of a hard group are on one host, unless schedulers decided
        without hearing each other."""
        world = self.world
        for members in world.groups.values():
            on_host: dict[str, Server] = {}
            for uuid in members:
                server = world.servers.get(uuid)
                if server is None or server.host is None or not server.is_wanted:
                    continue
                host = server.destination or server.host
                other = on_host.setdefault(host, server)
                began = min(other.call.began, server.call.began)
                heard_since = world.troubles.alone_at + HEARD_S
                if other is not server and heard_since < began:
                    self._problem(
                        f'{other.uuid} and {uuid} of a group are both on {host}'
                    )

    def _look_at_places(self) -> None:
        """No host has more guests than places, unless schedulers decided without
        hearing each other."""
        on_host: dict[str, list[Server]] = {}
        for server in self.world.servers.values():
            host = server.destination or server.host
            # The row of a server goes before its allocations.
            if host is not None and server.is_wanted:
                on_host.setdefault(host, []).append(server)

        for host in self.world.computes.machines:
            guests = on_host.get(host, [])
            pinned = []
            for server in guests:
                if server.flavor_there in PINNED_FLAVORS:
                    pinned.append(server)
            for servers, places in ((guests, MAX_PER_HOST), (pinned, CELLS)):
                if len(servers) > places and self._decided_together(servers):
                    names = sorted(server.uuid for server in servers)
                    self._problem(f'{host} has {len(servers)} of {places}: {names}')

    def _look_at_devices(self) -> None:
        """The devices of a guest are near one cell. No other guest has devices near this
        cell, unless schedulers decided without hearing each other."""
        on_cell: dict[tuple[str, int], Server] = {}
        for server in self.world.servers.values():
            host = server.destination or server.host
            if host not in self.world.devices or not server.is_wanted:
                continue
            cells = cells_of(self.world.devices[host], server.devices_there)
            if len(cells) > 1:
                self._problem(f'{server.uuid} has devices near {cells} of {host}')
            for cell in cells:
                other = on_cell.setdefault((host, cell), server)
                if other is not server and self._decided_together([other, server]):
                    self._problem(
                        f'{other.uuid} and {server.uuid} are both on cell {cell} of {host}'
                    )

    def _decided_together(self, servers: list[Server]) -> bool:
        """True if no scheduler decided without hearing its peers when the last few of
        some servers were placed."""
        calls = []
        for server in servers:
            if server.placed_by is not None:
                calls.append(server.placed_by)
        calls.sort(key=lambda call: call.began)
        last = calls[-self.world.schedulers :]
        # A long call may have begun much earlier, and ended beside the last few.
        for call in calls:
            if call.answered_at is None or call.answered_at >= last[0].began:
                return self.world.troubles.alone_at + HEARD_S < call.began
        return True

    def _chosen_hosts(self) -> set[str]:
        """The hosts of choices that are neither claimed nor released."""
        return {
            claim.host.host
            for process in (*self.world.processes, *self.world.stopping)
            for claim in process.choices()
        }

    def _look_at_ledgers(self) -> None:
        """Every choice of a host ends as a claim, or is released."""
        world = self.world
        has_heard = world.troubles.unheard_at + HEARD_S < world.loop.now
        own: set[str | None] = set()
        of_others: list[tuple[str, PendingClaim]] = []
        for process in (*world.processes, *world.stopping):
            for instance in process.instances() - self._known:
                self._problem(f'{process.name} counts {instance}, which nobody knows')
            for claim in process.choices():
                instance = claim.request.instance_uuid
                if not claim.is_ours:
                    of_others.append((process.name, claim))
                    continue
                own.add(instance)
                if not process.deciding:
                    self._problem(f'{process.name} still chooses for {instance}')

        believed = {}
        for name, claim in of_others:
            instance = claim.request.instance_uuid
            if instance in own:
                continue
            since = self._believed.get((name, instance), world.loop.now)
            believed[name, instance] = since
            if has_heard and since < world.loop.now - HEARD_S:
                self._problem(f'{name} believes that another one chooses {instance}')
        self._believed = believed

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.world.tell(f'PROBLEM: {text}')
            self.problems.append(text)
            if not self._is_patient:
                raise Broken(text)
