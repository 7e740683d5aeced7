# SPDX-License-Identifier: Apache-2.0
"""Pinned servers and PCI devices. Placement knows the number of CPUs and devices, the
hosts know their NUMA cells."""

from collections import Counter

import pytest

from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Refused, a_call, is_reference, new_uuids
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

FILTERS = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter'
    },
    'novasched': {'in_flight_timeout': 3600},  # no claim expires
}
PINNED = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
FOUR = Flavor(vcpus=4, extra_specs=PINNED)
NOT_ENOUGH = 'No valid host was found. There are not enough hosts available.'

TAKEN = {
    'half': [*range(8)],
    'split': [*range(6), 8, 9],
    'empty': [],
    'crumbs': [*range(5), *range(8, 13)],
    'uneven': [*range(4), 8],
    'nearly-full': [*range(4), *range(8, 16)],
}
"""CPUs pinned by existing servers. The first NUMA cell has the CPUs 0 to 7, the second
cell 8 to 15."""

ROOM = {'half': 2, 'split': 1, 'empty': 4, 'uneven': 2, 'nearly-full': 1}
"""Number of servers with four CPUs in one NUMA cell that fit on the hosts. By the
number of CPUs alone, Placement would allow a second server on 'split' and one on
'crumbs'."""


@pytest.fixture(scope='module')
def running(cloud):
    cloud.reset()
    with Daemon(cloud, FILTERS) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def said(running, cloud):
    """A function that returns the scheduler's log since the cloud was emptied."""
    cloud.reset()
    before = len(running.text())
    return lambda: running.text()[before:]


def add_host(cloud, name, taken=(), **columns):
    """Add a host of two NUMA cells with 8 CPUs each.

    :param taken: CPUs pinned by existing servers.
    """
    first = a_numa_cell(0, pinned=[cpu for cpu in taken if cpu < 8])
    second = a_numa_cell(1, pinned=[cpu for cpu in taken if cpu >= 8])
    topology = a_numa_topology(first, second)
    compute = cloud.add_host(
        name, pcpus=16, columns={'numa_topology': topology, **columns}
    )
    if taken:
        cloud.placement.allocate(new_uuids()[0], compute.uuid, {'PCPU': len(taken)})


def refused(cloud, client, count, flavor, **asked):
    """Check that the conductor gets NoValidHost, and that no allocation remains."""
    before = cloud.all_allocations()
    with pytest.raises(Refused) as caught:
        client.select_destinations(new_uuids(count), flavor, **asked)

    assert caught.value.no_valid_host
    assert caught.value.message.splitlines()[0] == NOT_ENOUGH
    assert cloud.all_allocations() == before


def placed(client, count, flavor, **asked):
    """Place servers; host to its number of new servers."""
    return Counter(client.chosen(*new_uuids(count), flavor=flavor, **asked))


def test_pinned_instances_of_a_request_fill_the_free_cpus(cloud, client):
    """Ten servers fill the places where nova-compute can pin free CPUs. A request for
    eleven servers is refused, and so is a further server after the computes have
    reported the ten servers."""
    for name, taken in TAKEN.items():
        add_host(cloud, name, taken)
    refused(cloud, client, 11, FOUR)

    hosts = placed(client, 10, FOUR)
    assert hosts == ROOM

    for name, count in hosts.items():
        database = cloud.cells[cloud.computes[name].cell]
        [row] = database.rows('compute_nodes', host=name)
        pins, topology = client.land(row['numa_topology'], FOUR, count)

        cpus = flatten(pins)
        assert len(cpus) == len({*cpus} - {*TAKEN[name]}) == 4 * count
        database.update('compute_nodes', {'numa_topology': topology}, host=name)
    refused(cloud, client, 1, FOUR)


def flatten(pins):
    """The CPUs of all servers.

    :param pins: the CPUs of every server.
    """
    cpus = []
    for cpus_of_server in pins:
        cpus += cpus_of_server
    return cpus


CLIENTS = 16
HOSTS = 50
SERVERS_PER_HOST = 4
THREE = Flavor(vcpus=3, ram_mb=512, disk_gb=1, extra_specs=PINNED)
TOPOLOGY = a_numa_topology(a_numa_cell(0), a_numa_cell(1))
"""The NUMA topology of a host for four servers of three CPUs, two in either cell. By
the number of CPUs alone, Placement would allow a fifth server on the host."""


@pytest.mark.skipif(is_reference(), reason='nova-scheduler does not know of others')
def test_concurrent_pinned_instances_fill_all_hosts(cloud, client):
    """16 clients request 200 pinned servers at once, some of them in fours, from hosts
    that hold exactly 200 servers and report none. All servers are placed, nova-compute
    can pin different CPUs for all of them, Placement has an allocation of every server,
    and a further server is refused."""
    names = [f'host-{i:02}' for i in range(HOSTS)]
    columns = {'numa_topology': TOPOLOGY}
    computes = []
    for i, name in enumerate(names):
        computes.append(Compute(name, f'cell{i % 2 + 1}', pcpus=16, columns=columns))
    cloud.add_hosts(computes)

    batches = []
    for _ in range(20):
        batches += [new_uuids(4), new_uuids(1)]
    for _ in range(HOSTS * SERVERS_PER_HOST - 20 * (4 + 1)):
        batches.append(new_uuids(1))
    calls = [a_call(uuids, THREE) for uuids in batches]
    answers = client.select_at_once(calls, CLIENTS)

    servers_on = Counter()
    for answer in answers:
        assert not isinstance(answer, Refused)
        servers_on.update(selections[0]['service_host'] for selections in answer)
    assert servers_on == dict.fromkeys(names, SERVERS_PER_HOST)

    pins, _ = client.land(TOPOLOGY, THREE, SERVERS_PER_HOST)
    assert len({*flatten(pins)}) == THREE.vcpus * SERVERS_PER_HOST
    assert cloud.all_allocations().keys() == set().union(*batches)
    refused(cloud, client, 1, THREE)


@pytest.mark.parametrize(
    ('stats', 'flavor', 'fields', 'reason'),
    [
        pytest.param(
            some_devices(5, None),
            Flavor(),
            {'count': 2},
            'PciPassthroughFilter rejected 1 host(s): PCI nic: 1 of 2 devices are of that kind',
            id='two of five devices each',
        ),
        pytest.param(
            some_devices(3, 1),
            FOUR,
            {'numa_policy': 'required'},
            'NUMATopologyFilter rejected 1 host(s): near the host cells that the guest fits (0), '
            'PCI nic: 0 of 1 devices are where its NUMA policy wants them',
            id='CPUs for two servers near three devices',
        ),
    ],
)
def test_instances_with_devices_land_on_the_host_with_devices(
    cloud, client, said, stats, flavor, fields, reason
):
    """Two servers get devices and land on the host with the devices. A request for
    three servers is refused, and the log tells the missing devices."""
    add_host(cloud, 'with', pci_stats=stats)
    add_host(cloud, 'without')
    device = {
        'count': 1,
        'spec': [{'vendor_id': '8086', 'product_id': '10fb'}],
        'alias_name': 'nic',
        'request_id': new_uuids()[0],
        **fields,
    }

    refused(cloud, client, 3, flavor, devices=[device])
    assert is_reference() or reason in said()

    assert placed(client, 2, flavor, devices=[device]) == {'with': 2}
