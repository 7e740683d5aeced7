# SPDX-License-Identifier: Apache-2.0
"""A cloud in memory, whose servers move from host to host as the scheduler decides.

The scheduler of nova.conf decides each move, by the request that nova-conductor sends:
prefilters, filters, the fit of NUMA cells and the search for devices are those of the
daemon. The board holds the allocation on the present host until a move has ended, as
nova does.

Each change can be undone: a plan is found by trying moves.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from novasched.observe.records import render
from novasched.observe.records.from_decision import rejections_of
from novasched.scheduler import fitting
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import Amounts
from novasched.scheduler.model.host import Host, Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher, host_alone
from novasched.tools.plan.servers import Kind, PlacedServer, kind_of_move, obstacle
from novasched.tools.simulate.simulator import Simulator


class Preference(Enum):
    """The host that a server moves to, among the hosts that fit."""

    NOVA_CONF = 'best by the weighers of nova.conf'
    FULLEST = 'the fullest host'
    EMPTIEST = 'the emptiest host'


def share_in_use(host: Host) -> float:
    """The share of memory or floating vCPUs in use, overcommit included: the greater of
    both."""
    shares = [0.0]
    total_mb = host.total_usable_ram_mb * host.ram_allocation_ratio
    if total_mb:
        shares.append((host.total_usable_ram_mb - host.free_ram_mb) / total_mb)
    vcpus, used = host.floating_vcpus
    if vcpus:
        shares.append(used / vcpus)
    return max(shares)


def demand_of(request: Request) -> Mapping[str, int]:
    """The amounts of a request by resource class."""
    demand: Counter[str] = Counter()
    for group in request.request_groups().values():
        demand.update(group.resources)
    return demand


def directed(request: Request, host: Host) -> Request:
    """A request for one host."""
    return request.with_requested_destination(host=host.host, node=host.nodename)


class _UseWeigher(Weigher):
    """Prefers the host that is used most."""

    multiplier = ''
    scope = Scope.HOST
    request_key = host_alone

    def scale(self, host: Host) -> float:
        return 1.0

    def weigh(self, host: Host, request: Request) -> float:
        return share_in_use(host)


class _RoomWeigher(_UseWeigher):
    """Prefers the host that is used least."""

    def scale(self, host: Host) -> float:
        return -1.0


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a server.

    :ivar server: the server before the move.
    :ivar host: the name of the new host.
    :ivar node: the name of the new compute node.
    :ivar purpose: what the move is good for.
    """

    server: PlacedServer
    host: str
    node: str
    kind: Kind
    purpose: str


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a host, with the state before.

    :ivar amounts: the amounts that were taken from Placement, or given back.
    :ivar sign: -1 for amounts that were taken.
    :ivar server: the server before a move away from the host; otherwise None.
    """

    host: Host
    amounts: Amounts
    sign: int
    server: PlacedServer | None = None


class Mark(NamedTuple):
    """A state of a board: the numbers of changes, moves and new instances so far."""

    changes: int
    moves: int
    added: int


class Board:
    """The cloud of a simulator, and the servers there.

    :ivar servers: the servers by UUID, on their present hosts.
    :ivar moves: the moves so far.
    :ivar added: the requests of new instances so far, each with its host.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.servers: dict[str, PlacedServer] = {}
        self.moves: list[Move] = []
        self.added: list[tuple[Request, Selection]] = []
        settings = simulator.settings
        self._drivers: Mapping[Preference, FilterScheduler | None] = {
            Preference.NOVA_CONF: None,
            Preference.FULLEST: simulator.driver_with(_UseWeigher(settings)),
            Preference.EMPTIEST: simulator.driver_with(_RoomWeigher(settings)),
        }
        simulator.leave_out_weights()
        self._changes: list[_Change] = []
        # The UUIDs of the servers on each compute node, in a definite order.
        self._on_node: dict[str, dict[str, None]] = defaultdict(dict)
        # The UUIDs of the members of each server group.
        self._members: dict[str | None, set[str]] = defaultdict(set)
        versions = [host.service.version for host in self.hosts.values()]
        self._minimum_version = min(filter(None, versions), default=0)
        self._incompatible: dict[object, Sequence[str]] = {}

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The hosts by UUID of the compute node."""
        return self.simulator.simulated_hosts.hosts

    def place(self, server: PlacedServer, chosen: Selection | None = None) -> None:
        """Place a server on its host, before the first move.

        :param chosen: the NUMA cells and devices of the server; None for a server that
            has allocations and neither.
        """
        if chosen is None:
            before = self.hosts[server.node_uuid]
            host = before.with_instance(server.request)
            host = replace(host, num_io_ops=before.num_io_ops)
            self.simulator.simulated_hosts.put(host)
            self.simulator.placement.free.change(server.amounts, -1)
        else:
            server = self._arrive(server, chosen)
        self.enter(server)
        self._changes.clear()

    def enter(self, server: PlacedServer) -> None:
        """Note a server, which its host has already."""
        self.servers[server.uuid] = server
        self._on_node[server.node_uuid][server.uuid] = None
        if server.group_uuid is not None:
            self._members[server.group_uuid].add(server.uuid)

    def delete(self, uuid: str) -> None:
        """Delete a server, and begin anew: moves before cannot be undone."""
        server = self.servers.pop(uuid)
        self._leave(server)
        del self._on_node[server.node_uuid][uuid]
        self._members[server.group_uuid].discard(uuid)
        self.settle()

    def settle(self) -> None:
        """Begin anew: moves before cannot be undone."""
        self._changes.clear()
        self.moves.clear()
        self.added.clear()

    def on(self, node_uuid: str) -> Sequence[PlacedServer]:
        """The servers on a compute node."""
        return [self.servers[uuid] for uuid in self._on_node.get(node_uuid, ())]

    def free(self, node_uuid: str) -> Mapping[str, int]:
        """The unused capacity of a compute node in Placement, by resource class;
        negative if more is in use than there is."""
        return self.simulator.placement.free.by_provider.get(node_uuid, {})

    def obstacle(self, server: PlacedServer) -> str:
        """Why nova does not move a server; empty if nova does."""
        return obstacle(server, self.hosts[server.node_uuid], self._minimum_version)

    def request_of(
        self, server: PlacedServer, avoid: Sequence[str] = (), to: Host | None = None
    ) -> Request:
        """The request of nova-conductor for a move of a server.

        :param avoid: names of hosts to which the server must not move.
        :param to: the host to which the server must move.
        """
        request = self.with_present_members(server.request)
        if to is not None:
            request = directed(request, to)
        unfit = self._unfit_for(self.hosts[server.node_uuid])
        return replace(request, ignore_hosts=(server.host, *unfit, *avoid))

    def with_present_members(self, request: Request) -> Request:
        """The request with the present members of its server group, and their hosts."""
        group = request.instance_group
        if group is None:
            return request
        members = group.members | self._members[group.uuid]
        present = members & self.servers.keys()
        hosts = frozenset(self.servers[uuid].host for uuid in present)
        group = replace(group, members=members, hosts=hosts)
        return replace(request, instance_group=group)

    def choice(
        self, request: Request, preference: Preference = Preference.NOVA_CONF
    ) -> Selection | None:
        """The host that the scheduler chooses for an instance; None if no host fits.
        Nothing changes."""
        decision = self._decided(request, preference)
        if decision.refusal is not None:
            return None
        return decision.selections[0][0]

    def why_nowhere(self, request: Request) -> str:
        """Why no host fits a request, in a line; empty if a host fits."""
        decision = self._decided(request, Preference.NOVA_CONF)
        if decision.refusal is None:
            return ''
        return render.headline(self.simulator.explained(decision).record(0))

    def why_not(self, request: Request, host: Host) -> str:
        """Why a host does not fit a request, in a line; empty if it fits."""
        decision = self._decided(directed(request, host), Preference.FULLEST)
        if decision.refusal is None:
            return ''
        reasons = rejections_of(decision).against(host.host)
        if reasons:
            return reasons[0]
        return self._why_unoffered(decision.prefiltered or request, host)

    def _why_unoffered(self, request: Request, host: Host) -> str:
        """Why Placement does not offer a host, as far as known.

        :param request: the request after the prefilters.
        """
        zone = host.zone(self.simulator.settings.default_availability_zone)
        wanted = request.availability_zone
        if wanted and wanted != zone:
            return f'{host.host} is in the zone {zone}, and not in {wanted}'

        present = {aggregate.uuid for aggregate in host.aggregates}
        destination = request.requested_destination
        if destination is not None:
            if not destination.forbidden_aggregates.isdisjoint(present):
                return f'{host.host} is in an aggregate for others'
            if any(map(present.isdisjoint, destination.aggregates)):
                return f'{host.host} is outside of an aggregate that is needed'

        lacking = []
        free = self.free(host.uuid)
        for name, amount in demand_of(request).items():
            if free.get(name, 0) < amount:
                lacking.append(f'{amount - free.get(name, 0):,} {name}')
        if lacking:
            return f'{host.host} lacks {", ".join(lacking)}'
        return f'{host.host} lacks a trait or a device'

    def accepting(self, request: Request) -> Collection[str]:
        """The UUIDs of the compute nodes that fit a request."""
        decision = self._decided(request, Preference.FULLEST)
        if decision.refusal is not None:
            return frozenset()
        [attempt] = decision.attempts
        return frozenset(host.uuid for host in attempt.ranking.hosts)

    def move(
        self,
        server: PlacedServer,
        purpose: str,
        avoid: Sequence[str] = (),
        preference: Preference = Preference.NOVA_CONF,
        to: Host | None = None,
    ) -> Move | None:
        """Move a server to a host that fits; None if no host fits.

        :param purpose: what the move is good for.
        :param avoid: names of hosts to which the server must not move.
        :param to: the host to which the server must move.
        """
        chosen = self.choice(self.request_of(server, avoid, to), preference)
        if chosen is None:
            return None

        kind = kind_of_move(server, self.hosts[server.node_uuid])
        assert kind is not None, 'moved beside an obstacle'
        moved = self._arrive(server, chosen)
        self._leave(server)
        self.servers[server.uuid] = moved
        del self._on_node[server.node_uuid][server.uuid]
        self._on_node[moved.node_uuid][server.uuid] = None
        made = Move(server, chosen.service_host, chosen.nodename, kind, purpose)
        self.moves.append(made)
        return made

    def add(self, request: Request, chosen: Selection) -> PlacedServer:
        """Place a new instance, which stays where it is; the server."""
        self.added.append((request, chosen))
        return self._arrive(_newcomer(request, chosen), chosen)

    def take_off(self, servers: Iterable[PlacedServer]) -> None:
        """Take servers off their hosts, until the change is undone."""
        on_node: dict[str, list[PlacedServer]] = {}
        for server in servers:
            on_node.setdefault(server.node_uuid, []).append(server)

        emptied = []
        for node_uuid, leaving in on_node.items():
            before = self.hosts[node_uuid]
            host = before
            amounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for server in leaving:
                host = fitting.without_instance_claimed(
                    host, server.request, server.fit
                )
                for provider, of_provider in server.amounts.items():
                    amounts[provider].update(of_provider)
            emptied.append(replace(host, num_io_ops=before.num_io_ops))
            self._changes.append(_Change(before, amounts, 1))
            self.simulator.placement.free.change(amounts, 1)
        self.simulator.simulated_hosts.put(*emptied)

    def mark(self) -> Mark:
        """The present state, for :meth:`undo`."""
        return Mark(len(self._changes), len(self.moves), len(self.added))

    def undo(self, mark: Mark) -> None:
        """Undo all changes since a state."""
        del self.moves[mark.moves :]
        del self.added[mark.added :]
        hosts = {}
        while len(self._changes) > mark.changes:
            change = self._changes.pop()
            # The earliest change of a host, which is undone last, counts.
            hosts[change.host.uuid] = change.host
            self.simulator.placement.free.change(change.amounts, -change.sign)
            before = change.server
            if before is not None and self.servers[before.uuid] is not before:
                moved = self.servers[before.uuid]
                del self._on_node[moved.node_uuid][before.uuid]
                self._on_node[before.node_uuid][before.uuid] = None
                self.servers[before.uuid] = before
        self.simulator.simulated_hosts.put(*hosts.values())

    def _decided(self, request: Request, preference: Preference) -> Decision:
        return self.simulator.choice(request, self._drivers[preference])

    def _arrive(self, server: PlacedServer, chosen: Selection) -> PlacedServer:
        """Place a server on a host beside its present host; the server there."""
        before = self.hosts[chosen.compute_node_uuid]
        settings = self.simulator.settings
        request = server.request
        candidate = chosen.candidate
        fit = fitting.claimed_fit(before, request, candidate, chosen.limits, settings)
        host = fitting.with_instance_claimed(before, request, candidate, fit)
        amounts: Amounts = {}
        if candidate is not None:
            amounts = candidate.resources()
        self._change(before, replace(host, num_io_ops=before.num_io_ops), amounts, -1)
        return replace(
            server,
            host=before.host,
            node_uuid=before.uuid,
            amounts=amounts,
            fit=fit,
        )

    def _leave(self, server: PlacedServer) -> None:
        before = self.hosts[server.node_uuid]
        host = fitting.without_instance_claimed(before, server.request, server.fit)
        host = replace(host, num_io_ops=before.num_io_ops)
        self._change(before, host, server.amounts, 1, server)

    def _change(
        self,
        before: Host,
        after: Host,
        amounts: Amounts,
        sign: int,
        server: PlacedServer | None = None,
    ) -> None:
        self._changes.append(_Change(before, amounts, sign, server))
        self.simulator.simulated_hosts.put(after)
        self.simulator.placement.free.change(amounts, sign)

    def _unfit_for(self, source: Host) -> Sequence[str]:
        """The names of the hosts to which nova does not migrate servers of a host: of
        another or an older hypervisor, or with an older nova-compute. nova evacuates
        servers to any host."""
        if not source.service.up:
            return ()
        key = source.hypervisor_type, source.hypervisor_version, source.service.version
        if key not in self._incompatible:
            names = []
            for host in self.hosts.values():
                is_other = host.hypervisor_type != source.hypervisor_type
                version = host.hypervisor_version or 0
                is_older = version < (source.hypervisor_version or 0)
                is_outdated = host.service.version < source.service.version
                if is_other or is_older or is_outdated:
                    names.append(host.host)
            self._incompatible[key] = names
        return self._incompatible[key]


def _newcomer(request: Request, chosen: Selection) -> PlacedServer:
    """A server that has no host yet."""
    uuid = request.instance_uuid or ''
    return PlacedServer(
        uuid, '', chosen.service_host, chosen.compute_node_uuid, request, {}
    )
