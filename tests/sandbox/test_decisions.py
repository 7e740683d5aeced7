# SPDX-License-Identifier: Apache-2.0
"""Decisions of the real scheduler in the cloud of five nodes, asked for as conductor does."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from novasched.cells.servicegroup import SCHEDULER
from novasched.rpc import wire
from novasched.tools.sandbox import databases as db
from novasched.tools.sandbox.computes import SERVICE_VERSION, cell_uuid
from tests.sandbox.conftest import AZ02, CELL1, CELL2, HALF, IMPOSSIBLE, IN_AZ02, NAMES, SMALL

REFUSED = 'No valid host was found. '
FILTERED = REFUSED + 'There are not enough hosts available.'


@pytest.mark.parametrize(
    ('fields', 'hosts'),
    [
        ({'zone': AZ02}, IN_AZ02),
        ({'force_hosts': ['osdev-02']}, {'osdev-02'}),
        ({'ignore_hosts': sorted(NAMES - {'osdev-gpu'})}, {'osdev-gpu'}),
        ({'requested_destination': wire.Destination(host='osdev-ceph')}, {'osdev-ceph'}),
        ({'image_properties': {'hw_architecture': 'x86_64'}}, NAMES),
    ],
)
def test_what_is_asked_for(cloud, fields, hosts):
    """Servers land where the request says."""
    boots = [cloud.boot(SMALL, **fields) for _ in range(3)]
    assert {server.host for boot in boots for server in boot.servers} <= hosts
    assert all(len(boot.servers) == 1 for boot in boots)


@pytest.mark.parametrize(
    ('flavor', 'fields', 'fault'),
    [
        (IMPOSSIBLE, {}, REFUSED),
        (
            SMALL,
            {'force_hosts': ['osdev-99']},
            f'{REFUSED}No such host - host: osdev-99 node: None ',
        ),
        (SMALL, {'image_properties': {'hw_architecture': 'aarch64'}}, FILTERED),
    ],
)
def test_refusals(cloud, flavor, fields, fault):
    """An empty answer of Placement, a host that is not there and a filter have nova's texts."""
    assert cloud.boot(flavor, **fields).fault == fault


def test_usage_is_seen_by_the_next_request(cloud):
    """Like servers spread over like hosts, each to where most memory is left."""
    hosts = [server.host for _ in NAMES for server in cloud.boot(HALF, count=1).servers]
    assert sorted(hosts) == sorted(NAMES)
    assert cloud.boot(HALF).fault == REFUSED


@pytest.mark.parametrize(('rules', 'fit'), [({}, 1), ({'max_server_per_host': '2'}, 2)])
def test_anti_affinity(cloud, rules, fit):
    """Each host takes one server of the group, or as many as its rule says."""
    group = cloud.group('anti-affinity', **rules)
    boots = [cloud.boot(SMALL, group=group) for _ in range(11)]
    hosts = [server.host for boot in boots for server in boot.servers]
    assert sorted(hosts) == sorted([*NAMES] * fit)
    assert [boot.fault for boot in boots[5 * fit :]] == [FILTERED] * (11 - 5 * fit)


def test_affinity(cloud):
    """Three servers of a group share a host, asked for one by one or at once."""
    for counts in ((1, 1, 1), (3,)):
        group = cloud.group('affinity')
        boots = [cloud.boot(SMALL, count, group=group) for count in counts]
        servers = [server for boot in boots for server in boot.servers]
        assert len(servers) == 3
        assert len({server.host for server in servers}) == 1


def test_multi_create(cloud):
    """Ten servers in one request are all placed, in the order of their UUIDs."""
    boot = cloud.boot(SMALL, count=10)
    assert tuple(server.uuid for server in boot.servers) == boot.uuids


def test_multi_create_that_does_not_fit(cloud):
    """Where the sixth of six servers finds no host, none of the six keeps anything."""
    boot = cloud.boot(SMALL, count=6, group=cloud.group('anti-affinity'))
    assert boot.fault == FILTERED
    assert boot.servers == ()


def test_alternates(cloud):
    """Alternates are other hosts of the same cell, as many as there may be attempts."""
    for forced, expected in ((CELL1, 1), (CELL2, 2)):
        cell = wire.Destination(cell=wire.CellMapping(uuid=cell_uuid(forced)))
        (server,) = cloud.boot(SMALL, requested_destination=cell).servers
        hosts = [server.host, *(each.value('service_host') for each in server.alternates)]
        assert len(set(hosts)) == len(hosts) == 1 + expected
        assert {each.value('cell_uuid') for each in server.alternates} == {cell_uuid(forced)}
        assert all(each.value('allocation_request') for each in server.alternates)


def test_requests_at_once(cloud):
    """Requests that overlap are all answered; the books are checked at the end."""
    with ThreadPoolExecutor(4) as pool:
        boots = list(pool.map(lambda _: cloud.boot(SMALL), range(16)))
    assert [boot.fault for boot in boots] == [None] * 16


def test_the_scheduler_shows_that_it_is_alive(cloud):
    """Its services row is there, with the version that the deployment runs."""
    table = db.services
    query = sa.select(table).where(table.c.binary == SCHEDULER)
    with cloud.databases.main.connect() as connection:
        (row,) = connection.execute(query).all()
    assert (row.topic, row.disabled, row.version) == ('scheduler', False, SERVICE_VERSION)
    assert row.last_seen_up is not None
