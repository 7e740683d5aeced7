# SPDX-License-Identifier: Apache-2.0
"""nova's own client requests servers of the daemon, and gets claimed hosts.

The tests hold for novasched and for nova-scheduler (see daemon.SCHEDULER_VARIABLE).
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

# Some hosts are so much larger that the weighers choose them several times before other
# hosts. The factor by the number of the host.
LARGER = {7: 4, 18: 3, 29: 2, 40: 1}


def compute_of_fifty(number):
    """The compute of a number from 0 to 49. No two computes have the same size."""
    factor = LARGER.get(number, 0)
    return Compute(
        f'host-{number:02}',
        'cell1' if number % 2 else 'cell2',
        vcpus=16 + number * 7 % 24 + 32 * factor,
        ram_mb=65536 + 1024 * (number * 13 % 50) + 98304 * factor,
        disk_gb=1000 + 20 * (number * 29 % 50) + 1000 * factor,
    )


FIFTY = [compute_of_fifty(number) for number in range(50)]


def expected_hosts(computes, flavor, count):
    """The hosts of servers placed in sequence with nova's default weighers.

    A host's weight is the sum of the free RAM, CPUs and disk, as shares of the largest
    free amounts, minus the servers under construction as a share of the busiest host's.
    """
    free = {}
    for compute in computes:
        vcpus = compute.vcpus * compute.cpu_ratio
        free[compute.name] = [compute.ram_mb, vcpus, compute.disk_gb]
    builds = dict.fromkeys(free, 0)
    requested = [flavor.ram_mb, flavor.vcpus, flavor.disk_gb]

    hosts = []
    for _ in range(count):
        weights = expected_weights(free, builds)
        best, second = sorted(weights, key=lambda name: -weights[name])[:2]
        assert weights[best] - weights[second] > 1e-6, (
            'a tie: choose other sizes for the hosts'
        )

        hosts.append(best)
        builds[best] += 1
        for i, amount in enumerate(requested):
            free[best][i] -= amount
    return hosts


def expected_weights(free, builds):
    """The weight of every host.

    :param free: host to free amounts of RAM, CPUs and disk.
    :param builds: host to servers under construction.
    """
    maxima = [max(column) for column in zip(*free.values(), strict=True)]
    busiest = max(*builds.values(), 1)

    weights = {}
    for name, amounts in free.items():
        shares = 0
        for amount, maximum in zip(amounts, maxima, strict=True):
            shares += amount / maximum
        weights[name] = shares - builds[name] / busiest
    return weights


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


def test_instances_get_the_hosts_that_the_default_weighers_prefer(fifty_hosts, client):
    """Ten servers of a request get the expected hosts in the order of their UUIDs, and
    a claim on the host. The scheduler is fresh, without claims of earlier tests."""
    servers = new_uuids(10)
    with Daemon(fifty_hosts) as fresh:
        found = client.select_destinations(servers, LARGE)
        assert fresh.stop() == 0

    hosts = [selections[0]['service_host'] for selections in found]
    assert hosts == expected_hosts(FIFTY, LARGE, 10)
    assert 2 < len(set(hosts)) < 10
    assert {fifty_hosts.computes[host].cell for host in hosts} == {'cell1', 'cell2'}

    for server, host, selections in zip(servers, hosts, found, strict=True):
        assert len(selections) == 1
        assert fifty_hosts.allocations(server) == {host: LARGE.resources()}


@pytest.mark.usefixtures('daemon')
class TestFiftyHosts:
    """Tests with a shared scheduler, since no test depends on the selected host."""

    def test_a_selection_names_host_node_cell_and_allocation_request(
        self, fifty_hosts, client
    ):
        """A selection names host, node and cell, and the allocation request granted by
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

    def test_alternates_are_unselected_hosts_of_the_same_cell(
        self, fifty_hosts, client
    ):
        """Every server has alternates in the cell of the selected host. No alternate is
        a selected host or holds an allocation of the server."""
        servers = new_uuids(4)
        found = client.select_destinations(servers, SMALL, return_alternates=True)

        selected = {selections[0]['service_host'] for selections in found}
        for server, (first, *alternates) in zip(servers, found, strict=True):
            assert len(alternates) == ALTERNATES
            for alternate in alternates:
                assert alternate['cell_uuid'] == first['cell_uuid']
                assert alternate['service_host'] not in selected
                assert _claimable(fifty_hosts, alternate)
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
    def test_a_refused_request_gets_no_valid_host_and_no_allocation(
        self, fifty_hosts, client, flavor, reason
    ):
        """The conductor gets nova.exception.NoValidHost, and no allocation remains."""
        before = fifty_hosts.all_allocations()

        first_line = client.refusal(*new_uuids(2), flavor=flavor).splitlines()[0]
        assert first_line.strip() == f'No valid host was found. {reason}'.strip()
        assert fifty_hosts.all_allocations() == before

    def test_the_service_of_the_scheduler_is_up_in_nova(
        self, fifty_hosts, client, daemon
    ):
        """nova considers the scheduler's service up, the service has the deployment's
        version, and the heartbeat goes on."""
        services = client('services')
        [service] = [row for row in services if row['host'] == daemon.host]
        assert service == {
            'host': daemon.host,
            'binary': 'nova-scheduler',
            'topic': 'scheduler',
            'version': fifty_hosts.nova.service_version,
            'up': True,
        }

        def heartbeats():
            rows = fifty_hosts.service_rows('nova-scheduler')
            [row] = [row for row in rows if row['host'] == daemon.host]
            return int(row['report_count'])

        before = heartbeats()
        wait_until(lambda: heartbeats() > before, 30, 'heartbeat of the scheduler')


def _claimable(cloud, alternate):
    """True if an alternate has the allocation request for a later claim on its node."""
    request = json.loads(alternate['allocation_request'])
    node = cloud.computes[alternate['service_host']].uuid
    return node in request['allocations']


ZONES = {
    'az01': ['osdev-01', 'osdev-02'],
    'az02': ['osdev-03', 'osdev-ceph', 'osdev-gpu'],
}
ALL_IN_ZONES = [*ZONES['az01'], *ZONES['az02']]


def boot(cloud, client, group=None, zone=None):
    """Place a server as the conductor does and let it run; the host of the server."""
    [server] = new_uuids()
    if group is not None:
        group.members.append(server)

    [host] = client.chosen(server, flavor=SMALL, group=group, zone=zone)

    cloud.boot(server, host, SMALL)
    if group is not None:
        group.hosts.append(host)
    return host


@pytest.fixture
def two_zones(cloud):
    """A small cloud of two availability zones. A host has room for one LARGE server."""
    cloud.reset()
    computes = []
    for name in ALL_IN_ZONES:
        computes.append(Compute(name, 'cell1', vcpus=8, ram_mb=12288, disk_gb=200))
    cloud.add_hosts(computes)
    for zone, hosts in ZONES.items():
        cloud.add_aggregate(f'zone-{zone}', hosts, zone=zone)
    return cloud


def test_zones_and_anti_affinity_groups_are_kept_on_five_hosts(two_zones, client):
    """A request for more servers than the hosts have room for is refused and leaves no
    allocation. Servers of an availability zone land in the zone and spread over the
    hosts. Servers of an anti-affinity group, requested in sequence, get different
    hosts. A further server is refused when every host has a server of the group."""
    with Daemon(two_zones):
        too_many = new_uuids(8)
        group = Group('anti-affinity', members=list(too_many))
        client.refusal(*too_many, flavor=SMALL, group=group)
        assert two_zones.all_allocations() == {}

        client.refusal(*new_uuids(6), flavor=LARGE, group=None)
        assert two_zones.all_allocations() == {}

        zone_hosts = {boot(two_zones, client, zone='az02') for _ in range(6)}
        assert zone_hosts == set(ZONES['az02'])

        group = Group('anti-affinity')
        for _ in ALL_IN_ZONES:
            boot(two_zones, client, group)
        assert sorted(group.hosts) == sorted(ALL_IN_ZONES)

        client.refusal(flavor=SMALL, group=group)
        assert len(two_zones.all_allocations()) == 6 + len(ALL_IN_ZONES)
