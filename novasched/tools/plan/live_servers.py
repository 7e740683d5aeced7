# SPDX-License-Identifier: Apache-2.0
"""The servers of the live cloud, from the databases and Placement."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from oslo_config import cfg
from oslo_utils import timeutils

from novasched.cells.mappings import Cell
from novasched.placement.query import HOST_CLASSES
from novasched.rpc.wire import BadObject, InstanceNUMATopology, loads
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.memory import Amounts
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import CellFit, Fit
from novasched.scheduler.model.request import Request
from novasched.tools.plan.board import Board, demand_of
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.simulate.evacuations import Evacuee, rows_in
from novasched.tools.simulate.simulation import LiveSimulation, open_simulation

Part = TypeVar('Part')
NOTHING_KNOWN = Request(flavor=Flavor())
"""The request of a server whose request is unknown. Such a server stays."""


MOVED = frozenset({'completed', 'confirmed', 'done', 'finished'})
"""The states of the moves (``migrations.status``) of which the server is on the new
host."""


@dataclass(frozen=True, slots=True)
class Details:
    """What is read of the servers on demand, since it takes a query for each thousand.

    :ivar metadata: the metadata of the servers.
    :ivar moves: the time of the latest move of each server.
    """

    metadata: bool = False
    moves: bool = False


NO_DETAILS = Details()


@contextmanager
def live_board(
    conf: cfg.ConfigOpts, seed: int, details: Details
) -> Iterator[tuple[LiveSimulation, Board]]:
    """The live cloud in memory, with all servers; closed at the end.

    :raises NovaschedError: a database or Placement does not answer.
    """
    with open_simulation(conf, seed, with_full_hosts=True) as live:
        simulator = live.simulator
        # A refusal is explained by what is in memory: the real Placement knows no move.
        simulator.diagnose = None
        simulator.read_all()
        board = Board(simulator)
        # Placement's free resources are known once a first request asks for them.
        board.accepting(NOTHING_KNOWN)
        for server in _LiveServers(live, board.hosts).read(details):
            board.enter(server)
        yield live, board


class _LiveServers:
    """Reads the servers on hosts."""

    def __init__(self, live: LiveSimulation, hosts: Mapping[str, Host]) -> None:
        self._live = live
        self._hosts = {host.key: host for host in hosts.values()}
        self._parts: dict[str, object] = {}

    def read(self, details: Details) -> Iterator[PlacedServer]:
        """The servers on the hosts."""
        evacuees = []
        for evacuee in self._live.evacuations().on(None):
            if (evacuee.host, evacuee.node) in self._hosts:
                evacuees.append(evacuee)
        cells = self._live.application.cells.all()
        fits = _fits(cells, evacuees)
        uuids = [evacuee.uuid for evacuee in evacuees]
        metadata = _metadata(cells, uuids if details.metadata else ())
        moved_ago_s = _moved_ago_s(cells, uuids if details.moves else ())
        for evacuee in evacuees:
            yield replace(
                self._server(evacuee, fits),
                metadata=metadata.get(evacuee.uuid, {}),
                moved_ago_s=moved_ago_s.get(evacuee.uuid),
            )

    def _server(self, evacuee: Evacuee, fits: Mapping[str, Fit]) -> PlacedServer:
        host = self._hosts[evacuee.host, evacuee.node]
        request = evacuee.request
        if isinstance(request, str):
            return self._made(evacuee, host, NOTHING_KNOWN, unknown=request)

        request = replace(
            request,
            flavor=self._shared(request.flavor),
            image=self._shared(request.image),
        )
        try:
            demand = {name: n for name, n in demand_of(request).items() if n}
        except NoValidHost as error:
            return self._made(evacuee, host, request, unknown=str(error))

        is_plain = not request.pci_requests and demand.keys() <= HOST_CLASSES
        if request.numa_topology is None and is_plain:
            return self._made(evacuee, host, request, {host.uuid: demand})

        # The CPUs may count as VCPU or PCPU, and the devices are those of the claim.
        amounts = self._live.application.placement.allocations(evacuee.uuid)
        unknown = ''
        if not amounts.get(host.uuid):
            unknown = 'has no allocations on its host'
        if request.numa_topology is not None and evacuee.uuid not in fits:
            unknown = 'has NUMA cells that cannot be read (instance_extra)'
        fit = fits.get(evacuee.uuid)
        return self._made(evacuee, host, request, amounts, fit, unknown)

    def _made(
        self,
        evacuee: Evacuee,
        host: Host,
        request: Request,
        amounts: Amounts | None = None,
        fit: Fit | None = None,
        unknown: str = '',
    ) -> PlacedServer:
        return PlacedServer(
            evacuee.uuid,
            evacuee.name,
            host.host,
            host.uuid,
            request,
            amounts or {},
            fit,
            evacuee.state,
            evacuee.task,
            evacuee.is_locked,
            unknown=unknown,
        )

    def _shared(self, part: Part) -> Part:
        """The first of equal flavors or images. Servers are compared by identity."""
        shared = self._parts.setdefault(repr(part), part)
        assert isinstance(shared, type(part))
        return shared


def _fits(cells: Collection[Cell], evacuees: Collection[Evacuee]) -> Mapping[str, Fit]:
    """The NUMA cells and CPUs of the servers that have a topology."""
    uuids = set()
    for evacuee in evacuees:
        request = evacuee.request
        if isinstance(request, Request) and request.numa_topology is not None:
            uuids.add(evacuee.uuid)

    fits = {}
    columns = ('instance_uuid', 'numa_topology')
    for cell in cells if uuids else ():
        for row in rows_in(
            cell.database, 'instance_extra', columns, 'instance_uuid', uuids
        ):
            fit = _fit(row.numa_topology)
            if fit is not None:
                fits[row.instance_uuid] = fit
    return fits


def _fit(text: str | None) -> Fit | None:
    """The cells of a topology as nova keeps it; None if it cannot be read."""
    try:
        topology = loads(text or '')
    except BadObject:
        return None
    if not isinstance(topology, InstanceNUMATopology):
        return None
    cells = []
    for cell in topology.value('cells', ()):
        pins = cell.value('cpu_pinning_raw', {})
        fit = CellFit(
            cell.value('id', -1),
            tuple(sorted((int(vcpu), int(cpu)) for vcpu, cpu in pins.items())),
            frozenset(cell.value('cpuset_reserved', ())),
            cell.value('pagesize'),
        )
        cells.append(fit)
    return Fit(tuple(cells))


def _metadata(
    cells: Collection[Cell], uuids: Collection[str]
) -> Mapping[str, Mapping[str, str]]:
    """The metadata of servers."""
    metadata: dict[str, dict[str, str]] = {}
    columns = ('instance_uuid', 'key', 'value')
    for cell in cells:
        for row in rows_in(
            cell.database, 'instance_metadata', columns, 'instance_uuid', uuids
        ):
            metadata.setdefault(row.instance_uuid, {})[row.key] = row.value or ''
    return metadata


def _moved_ago_s(
    cells: Collection[Cell], uuids: Collection[str]
) -> Mapping[str, float]:
    """The seconds since the latest moves of servers, by whomever they were moved."""
    ages: dict[str, float] = {}
    columns = ('instance_uuid', 'status', 'updated_at')
    now = timeutils.utcnow()
    for cell in cells:
        for row in rows_in(
            cell.database, 'migrations', columns, 'instance_uuid', uuids
        ):
            if row.status in MOVED and row.updated_at is not None:
                age_s = (now - row.updated_at).total_seconds()
                ages[row.instance_uuid] = min(age_s, ages.get(row.instance_uuid, age_s))
    return ages
