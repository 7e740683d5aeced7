# SPDX-License-Identifier: Apache-2.0
"""The servers of a described cloud."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace

from novasched.placement.query import HOST_CLASSES
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Destination, Request, ServerGroup
from novasched.tools.plan.board import Board, demand_of, directed
from novasched.tools.plan.servers import PlacedServer
from novasched.tools.sandbox.computes import stable_uuid
from novasched.tools.simulate.cloud_file import DescribedServer
from novasched.tools.simulate.described_cloud import DescribedCloud
from novasched.tools.simulate.simulation import RequestOptions, Simulation
from novasched.tools.simulate.sources import Unusable


def described_board(simulation: Simulation, cloud: DescribedCloud) -> Board:
    """A board of a described cloud, with its servers on their hosts.

    NUMA cells, CPUs and devices of a server are those that the scheduler would choose
    today.

    :param simulation: a simulation of the same cloud.
    :raises NovaschedError: the flavor of a server contradicts its image, or a server
        with NUMA cells or devices does not fit its host.
    """
    simulator = simulation.simulator
    simulator.read_all()
    for tree in cloud.providers.values():
        for provider in tree:
            free = simulator.placement.free.by_provider
            free[provider.uuid] = dict(provider.capacities)

    board = Board(simulator)
    for server in _servers(simulation, cloud):
        if server.amounts:
            board.place(server)
            continue
        host = board.hosts[server.node_uuid]
        chosen = board.choice(directed(server.request, host))
        if chosen is None:
            why = board.why_not(server.request, host)
            raise Unusable(f'{server.name} does not fit {server.host}: {why}')
        board.place(server, chosen)
    return board


def _servers(simulation: Simulation, cloud: DescribedCloud) -> Iterator[PlacedServer]:
    """The servers in the order of the file; without allocations if the scheduler has to
    choose NUMA cells or devices."""
    members = defaultdict[str, set[str]](set)
    for described in cloud.servers:
        if described.group is not None:
            members[described.group].add(_uuid_of(described))
    groups = {}
    for name, group in cloud.groups.items():
        groups[name] = ServerGroup(
            uuid=stable_uuid('group', name),
            name=name,
            policy=group.policy,
            rules=_rules(group.policy, group.max_server_per_host),
            members=frozenset(members[name]),
        )

    # Equal servers share a request, and with it the flavor and the image.
    requests: dict[Hashable, Request] = {}
    host_of = {host.host: host for host in cloud.hosts}
    for described in cloud.servers:
        key = _key(described)
        if key not in requests:
            requests[key] = _request(simulation, described)
        group_of_server = None
        if described.group is not None:
            group_of_server = groups[described.group]
        host = host_of[described.host]
        yield _server(described, host, requests[key], group_of_server)


def _server(
    described: DescribedServer,
    host: Host,
    request: Request,
    group: ServerGroup | None,
) -> PlacedServer:
    uuid = _uuid_of(described)
    hints: Mapping[str, tuple[str, ...]] = {}
    if group is not None:
        hints = {'group': (str(group.uuid),)}
    request = replace(
        request,
        instance_uuids=(uuid,),
        instance_uuid=uuid,
        scheduler_hints=hints,
        instance_group=group,
        requested_destination=Destination(cell_uuid=host.cell_uuid),
    )
    demand = {name: amount for name, amount in demand_of(request).items() if amount}
    amounts = {}
    if request.numa_topology is None and demand.keys() <= HOST_CLASSES:
        amounts[host.uuid] = demand
    return PlacedServer(
        uuid,
        described.name,
        host.host,
        host.uuid,
        request,
        amounts,
        state=described.state,
        is_locked=described.locked,
        metadata=described.metadata,
    )


def _uuid_of(described: DescribedServer) -> str:
    return stable_uuid('server', described.name)


def _key(described: DescribedServer) -> Hashable:
    """Equal for servers with equal requests."""
    return (
        described.flavor,
        described.project,
        described.zone,
        described.is_volume_backed,
        tuple(sorted(described.image_properties.items())),
    )


def _request(simulation: Simulation, described: DescribedServer) -> Request:
    options = RequestOptions(
        project=described.project,
        zone=described.zone,
        image_properties=described.image_properties,
    )
    request = simulation.new_request(simulation.flavor(described.flavor), options)
    return replace(request, is_bfv=described.is_volume_backed)


def _rules(policy: str, most: int) -> Mapping[str, str]:
    """The rules of a server group, as nova keeps them."""
    if policy == 'anti-affinity':
        return {'max_server_per_host': str(most)}
    return {}
