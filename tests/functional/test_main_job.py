# SPDX-License-Identifier: Apache-2.0
"""A conductor's request in, a claimed host out: nova's own client against the daemon.

Holds for novasched and for nova's own scheduler alike (see daemon.SCHEDULER_VARIABLE).
"""

import json
from dataclasses import replace

import pytest

from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, new_uuids
from tests.lab.processes import wait_until

SMALL = Flavor(vcpus=1, ram_mb=1024, disk_gb=10)
LARGE = Flavor(vcpus=4, ram_mb=8192, disk_gb=40)
IMPOSSIBLE = Flavor(vcpus=1000)

# [scheduler] max_attempts is 3: the selected host and two more.
ALTERNATES = 2

# A few are larger by so much that they are chosen again before others are at all.
LARGER = {7: 4, 18: 3, 29: 2, 40: 1}

FIFTY = [
    Compute(
        f'host-{n:02}',
        'cell1' if n % 2 else 'cell2',
        vcpus=16 + n * 7 % 24 + 32 * LARGER.get(n, 0),
        ram_mb=65536 + 1024 * (n * 13 % 50) + 98304 * LARGER.get(n, 0),
        disk_gb=1000 + 20 * (n * 29 % 50) + 1000 * LARGER.get(n, 0),
    )
    for n in range(50)
]


def expected_hosts(computes, flavor, count):
    """The hosts of servers placed one after the other: RAM, CPU and disk that are left
    count as a part of what the best host has, servers being built as a part of what the
    busiest host builds."""
    free = {c.name: [c.ram_mb, c.vcpus * c.cpu_ratio, c.disk_gb] for c in computes}
    builds = dict.fromkeys(free, 0)
    needed = [flavor.ram_mb, flavor.vcpus, flavor.disk_gb]
    chosen = []
    for _ in range(count):
        most = [max(column) for column in zip(*free.values(), strict=True)]
        busiest = max(*builds.values(), 1)
        score = {
            name: sum(part / whole for part, whole in zip(left, most, strict=True))
            - builds[name] / busiest
            for name, left in free.items()
        }
        best, second = sorted(score, key=lambda name: -score[name])[:2]
        assert score[best] - score[second] > 1e-6, (
            'a tie: choose other sizes for the hosts'
        )
        chosen.append(best)
        builds[best] += 1
        free[best] = [
            left - part for left, part in zip(free[best], needed, strict=True)
        ]
    return chosen


@pytest.fixture(scope='class')
def fifty_hosts(cloud):
    """Fifty hosts of different sizes in two cells."""
    cloud.reset()
    cloud.add_hosts([replace(compute) for compute in FIFTY])
    return cloud


@pytest.fixture(scope='class')
def daemon(fifty_hosts):
    with Daemon(fifty_hosts) as running:
        yield running


def test_the_expected_hosts(fifty_hosts, client):
    """Ten servers of a request come in the order of their UUIDs, each claimed on its
    host. The scheduler is fresh: what it has placed before does not count."""
    servers = new_uuids(10)
    with Daemon(fifty_hosts) as fresh:
        found = client.select_destinations(servers, LARGE)
        assert fresh.stop() == 0
    hosts = [selections[0]['service_host'] for selections in found]
    assert hosts == expected_hosts(FIFTY, LARGE, 10)
    assert 2 < len(set(hosts)) < 10
    assert {fifty_hosts.computes[host].cell for host in hosts} == {'cell1', 'cell2'}
    assert [len(selections) for selections in found] == [1] * 10
    assert {server: fifty_hosts.allocations(server) for server in servers} == {
        server: {host: LARGE.resources()}
        for server, host in zip(servers, hosts, strict=True)
    }


@pytest.mark.usefixtures('daemon')
class TestFiftyHosts:
    """One scheduler for all: nothing depends on which host it is."""

    def test_selection(self, fifty_hosts, client):
        """A selection names host, node and cell, and the allocation that stands in
        Placement."""
        [server] = new_uuids()
        [[selection]] = client.select_destinations([server], SMALL)
        compute = fifty_hosts.computes[selection['service_host']]
        assert selection['nodename'] == compute.name
        assert selection['compute_node_uuid'] == compute.uuid
        assert selection['cell_uuid'] == fifty_hosts.cell_uuids[compute.cell]
        assert selection['allocation_request_version'] == '1.36'
        request = json.loads(selection['allocation_request'])
        assert request['allocations'] == {
            compute.uuid: {'resources': SMALL.resources()}
        }
        assert fifty_hosts.allocations(server) == {compute.name: SMALL.resources()}

    def test_alternates(self, fifty_hosts, client):
        """Each server has alternates in its own host's cell, none of them selected, and
        nothing is claimed there."""
        servers = new_uuids(4)
        found = client.select_destinations(servers, SMALL, return_alternates=True)
        selected = {selections[0]['service_host'] for selections in found}
        for server, (first, *alternates) in zip(servers, found, strict=True):
            assert len(alternates) == ALTERNATES
            assert {a['cell_uuid'] for a in alternates} == {first['cell_uuid']}
            assert not selected & {a['service_host'] for a in alternates}
            assert all(_claimable(fifty_hosts, alternate) for alternate in alternates)
            assert list(fifty_hosts.allocations(server)) == [first['service_host']]

    @pytest.mark.parametrize(
        ('flavor', 'reason'),
        [
            pytest.param(IMPOSSIBLE, '', id='no candidates'),
            pytest.param(
                Flavor(extra_specs={'capabilities:hypervisor_type': 'none-such'}),
                'There are not enough hosts available.',
                id='all filtered out',
            ),
        ],
    )
    def test_no_valid_host(self, fifty_hosts, client, flavor, reason):
        """The conductor catches nova.exception.NoValidHost and nothing is left
        behind."""
        before = fifty_hosts.all_allocations()
        first_line = client.refusal(*new_uuids(2), flavor=flavor).splitlines()[0]
        assert first_line.strip() == f'No valid host was found. {reason}'.strip()
        assert fifty_hosts.all_allocations() == before

    def test_service_row(self, fifty_hosts, client, daemon):
        """The scheduler's service is up in nova's own eyes, of the deployment's
        version, and its heart beats."""
        [service] = [one for one in client('services') if one['host'] == daemon.host]
        assert service == {
            'host': daemon.host,
            'binary': 'nova-scheduler',
            'topic': 'scheduler',
            'version': fifty_hosts.nova.service_version,
            'up': True,
        }

        def beats():
            rows = fifty_hosts.service_rows('nova-scheduler')
            [row] = [row for row in rows if row['host'] == daemon.host]
            return int(row['report_count'])

        before = beats()
        wait_until(lambda: beats() > before, 30, 'heartbeat of the scheduler')


def _claimable(cloud, alternate):
    """Whether an alternate brings what the conductor needs to claim it later."""
    request = json.loads(alternate['allocation_request'])
    node = cloud.computes[alternate['service_host']].uuid
    return node in request['allocations']


ZONES = {
    'az01': ['osdev-01', 'osdev-02'],
    'az02': ['osdev-03', 'osdev-ceph', 'osdev-gpu'],
}


def boot(cloud, client, group=None, zone=None):
    """Place one server as the conductor does and let it run; the host it is on."""
    [server] = new_uuids()
    if group is not None:
        group.members.append(server)
    [host] = client.chosen(server, flavor=SMALL, group=group, zone=zone)
    cloud.boot(server, host, SMALL)
    if group is not None:
        group.hosts.append(host)
    return host


def test_five_nodes(cloud, client):
    """In a small cloud of two zones, with room for one LARGE server on each host: a
    request for more servers than there is room for is refused and leaves no allocation.
    Servers that are asked for in a zone land there, and spread over it; those of an
    anti-affinity group, one after the other, get a host each, and one more is
    refused."""
    cloud.reset()
    names = [name for zone in ZONES.values() for name in zone]
    cloud.add_hosts(
        [Compute(x, vcpus=8, ram_mb=12288, disk_gb=200, cell='cell1') for x in names]
    )
    for zone, hosts in ZONES.items():
        cloud.add_aggregate(f'zone-{zone}', hosts, zone=zone)
    with Daemon(cloud):
        for flavor, policy, count in ((SMALL, 'anti-affinity', 8), (LARGE, None, 6)):
            servers = new_uuids(count)
            group = Group(policy, members=list(servers)) if policy else None
            client.refusal(*servers, flavor=flavor, group=group)
            assert cloud.all_allocations() == {}

        assert {boot(cloud, client, zone='az02') for _ in range(6)} == set(
            ZONES['az02']
        )
        group = Group('anti-affinity')
        for _ in names:
            boot(cloud, client, group)
        assert sorted(group.hosts) == sorted(names)
        client.refusal(flavor=SMALL, group=group)
        assert len(cloud.all_allocations()) == 6 + len(names)
