# SPDX-License-Identifier: Apache-2.0
"""Decisions of the real scheduler in the cloud of five nodes, asked for as conductor does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from novasched import objects
from novasched.cells.heartbeat import BINARY
from novasched.sandbox import databases as db
from novasched.sandbox.cloud import Sandbox
from novasched.sandbox.computes import SERVICE_VERSION, cell_uuid
from tests.sandbox.conftest import AZ02, CELL1, CELL2, HALF, IMPOSSIBLE, IN_AZ02, NAMES, SMALL

REFUSED = 'No valid host was found. '
FILTERED = REFUSED + 'There are not enough hosts available.'


def test_a_server_gets_a_host(cloud: Sandbox) -> None:
    """One server of a size that fits, claimed on the node that the answer names."""
    boot = cloud.boot(SMALL)
    assert boot.fault is None
    (server,) = boot.servers
    assert server.host in NAMES
    assert list(cloud.placement.allocations(server.uuid)) == [server.node_uuid]


def test_zone(cloud: Sandbox) -> None:
    """Servers asked for in az02 land there."""
    boots = [cloud.boot(SMALL, zone=AZ02) for _ in range(4)]
    assert {server.host for boot in boots for server in boot.servers} <= IN_AZ02
    assert all(len(boot.servers) == 1 for boot in boots)


def test_usage_is_seen_by_the_next_request(cloud: Sandbox) -> None:
    """Like servers spread over like hosts, each to where most memory is left."""
    hosts = [server.host for _ in NAMES for server in cloud.boot(HALF, count=1).servers]
    assert sorted(hosts) == sorted(NAMES)
    assert cloud.boot(HALF).fault == REFUSED


def test_anti_affinity(cloud: Sandbox) -> None:
    """Eight servers of a group on five hosts: five are placed, three refused."""
    group = cloud.group('anti-affinity')
    boots = [cloud.boot(SMALL, group=group) for _ in range(8)]
    assert sorted(server.host for boot in boots for server in boot.servers) == sorted(NAMES)
    assert [boot.fault for boot in boots] == [None] * 5 + [FILTERED] * 3


def test_anti_affinity_with_a_limit(cloud: Sandbox) -> None:
    """Two servers of the group per host: eleven do not fit."""
    group = cloud.group('anti-affinity', max_server_per_host='2')
    boots = [cloud.boot(SMALL, group=group) for _ in range(11)]
    assert sorted(server.host for boot in boots for server in boot.servers) == sorted([*NAMES] * 2)
    assert boots[-1].fault == FILTERED


def test_affinity(cloud: Sandbox) -> None:
    """Three servers of a group share a host, asked for one by one or at once."""
    for counts in ((1, 1, 1), (3,)):
        group = cloud.group('affinity')
        boots = [cloud.boot(SMALL, count, group=group) for count in counts]
        servers = [server for boot in boots for server in boot.servers]
        assert len(servers) == 3
        assert len({server.host for server in servers}) == 1


def test_multi_create(cloud: Sandbox) -> None:
    """Ten servers in one request are all placed, in the order of their UUIDs."""
    boot = cloud.boot(SMALL, count=10)
    assert tuple(server.uuid for server in boot.servers) == boot.uuids


def test_multi_create_that_does_not_fit(cloud: Sandbox) -> None:
    """Where the sixth of six servers finds no host, none of the six keeps anything."""
    boot = cloud.boot(SMALL, count=6, group=cloud.group('anti-affinity'))
    assert boot.fault == FILTERED
    assert boot.servers == ()
    assert all(cloud.placement.allocations(uuid) == {} for uuid in boot.uuids)


def test_impossible_flavor(cloud: Sandbox) -> None:
    """More than any host has: nova's text for an empty answer from Placement."""
    boot = cloud.boot(IMPOSSIBLE)
    assert boot.fault == REFUSED
    assert cloud.placement.allocations(boot.uuids[0]) == {}


def test_forced_host(cloud: Sandbox) -> None:
    """Each forced host is taken; one that is not there is refused by name."""
    for name in sorted(NAMES):
        assert [x.host for x in cloud.boot(SMALL, force_hosts=[name]).servers] == [name]
    fault = cloud.boot(SMALL, force_hosts=['osdev-99']).fault
    assert fault is not None
    assert 'osdev-99' in fault


def test_image_properties(cloud: Sandbox) -> None:
    """An image for another architecture is refused; one for that of the hosts is not."""
    assert cloud.boot(SMALL, image_properties={'hw_architecture': 'x86_64'}).servers
    assert cloud.boot(SMALL, image_properties={'hw_architecture': 'aarch64'}).fault == FILTERED


def test_ignored_hosts(cloud: Sandbox) -> None:
    """With all hosts but one ignored, that one is taken."""
    boot = cloud.boot(SMALL, ignore_hosts=sorted(NAMES - {'osdev-gpu'}))
    assert [server.host for server in boot.servers] == ['osdev-gpu']


def test_requested_destination(cloud: Sandbox) -> None:
    """A host or a cell that is named is where the server goes."""
    host = objects.Destination(host='osdev-ceph')
    assert [x.host for x in cloud.boot(SMALL, requested_destination=host).servers] == ['osdev-ceph']
    cell = objects.Destination(cell=objects.CellMapping(uuid=cell_uuid(CELL1)))
    (server,) = cloud.boot(SMALL, requested_destination=cell).servers
    assert server.selection.value('cell_uuid') == cell_uuid(CELL1)


def test_alternates(cloud: Sandbox) -> None:
    """Alternates are other hosts of the same cell, as many as there may be attempts."""
    for forced, expected in ((CELL1, 1), (CELL2, 2)):
        cell = objects.Destination(cell=objects.CellMapping(uuid=cell_uuid(forced)))
        (server,) = cloud.boot(SMALL, requested_destination=cell).servers
        hosts = [server.host, *(each.value('service_host') for each in server.alternates)]
        assert len(set(hosts)) == len(hosts) == 1 + expected
        assert {each.value('cell_uuid') for each in server.alternates} == {cell_uuid(forced)}
        assert all(each.value('allocation_request') for each in server.alternates)


def test_requests_at_once(cloud: Sandbox) -> None:
    """Requests that overlap are all answered; the books are checked at the end."""
    with ThreadPoolExecutor(4) as pool:
        boots = list(pool.map(lambda _: cloud.boot(SMALL), range(16)))
    assert [boot.fault for boot in boots] == [None] * 16


def test_the_scheduler_shows_that_it_is_alive(cloud: Sandbox) -> None:
    """Its services row is there, with the version that the deployment runs."""
    table = db.services
    query = sa.select(table).where(table.c.binary == BINARY)
    with cloud.databases.main.connect() as connection:
        (row,) = connection.execute(query).all()
    assert (row.topic, row.disabled, row.version) == ('scheduler', False, SERVICE_VERSION)
    assert row.last_seen_up is not None
