# SPDX-License-Identifier: Apache-2.0
"""Pinned servers and PCI devices, of which Placement knows numbers and hosts know
places."""

from collections import Counter

import pytest

from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Refused, a_call, is_reference, new_uuids
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

FILTERS = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter'
    },
    'novasched': {'in_flight_timeout': 3600},  # nothing ends by itself
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
"""CPUs that other servers have pinned, of 0 to 7 in one cell and 8 to 15 in the
other."""

ROOM = {'half': 2, 'split': 1, 'empty': 4, 'uneven': 2, 'nearly-full': 1}
"""How many servers of four CPUs in one cell find room. By its numbers alone, Placement
would let a second one onto 'split' and one onto 'crumbs'."""


@pytest.fixture(scope='module')
def running(cloud):
    cloud.reset()
    with Daemon(cloud, FILTERS) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def said(running, cloud):
    """Tells what the scheduler has logged since the cloud was emptied."""
    cloud.reset()
    before = len(running.text())
    return lambda: running.text()[before:]


def add_host(cloud, name, taken=(), **columns):
    """A host of two cells of 8 CPUs, some of which others have."""
    pinned = [[cpu for cpu in taken if cpu // 8 == cell] for cell in (0, 1)]
    topology = a_numa_topology(*(a_numa_cell(i, pinned=pinned[i]) for i in (0, 1)))
    compute = cloud.add_host(
        name, pcpus=16, columns={'numa_topology': topology, **columns}
    )
    if taken:
        cloud.placement.allocate(new_uuids()[0], compute.uuid, {'PCPU': len(taken)})


def refused(cloud, client, count, flavor, **asked):
    """The conductor gets its NoValidHost, and nothing stays claimed."""
    before = cloud.all_allocations()
    with pytest.raises(Refused) as caught:
        client.select_destinations(new_uuids(count), flavor, **asked)
    assert caught.value.no_valid_host
    assert caught.value.message.splitlines()[0] == NOT_ENOUGH
    assert cloud.all_allocations() == before


def placed(client, count, flavor, **asked):
    """How many of so many servers each host got."""
    return Counter(client.chosen(*new_uuids(count), flavor=flavor, **asked))


def test_pinned_servers_of_one_request(cloud, client):
    """Ten servers find the ten places where nova-compute lets them pin free CPUs, each
    its own; eleven are refused, and so is one more once the computes have reported the
    ten."""
    for name, taken in TAKEN.items():
        add_host(cloud, name, taken)
    refused(cloud, client, 11, FOUR)

    hosts = placed(client, 10, FOUR)
    assert hosts == ROOM
    for name, count in hosts.items():
        database = cloud.cells[cloud.computes[name].cell]
        [row] = database.rows('compute_nodes', host=name)
        pins, left = client.land(row['numa_topology'], FOUR, count)
        cpus = [cpu for each in pins for cpu in each]
        assert len(cpus) == len({*cpus} - {*TAKEN[name]}) == 4 * count
        database.update('compute_nodes', {'numa_topology': left}, host=name)
    refused(cloud, client, 1, FOUR)


CLIENTS = 16
HOSTS = 50
EACH = 4
THREE = Flavor(vcpus=3, ram_mb=512, disk_gb=1, extra_specs=PINNED)
TOPOLOGY = a_numa_topology(a_numa_cell(0), a_numa_cell(1))
"""Room for four servers of three CPUs, two in either cell of eight. By its numbers
alone, Placement would let a fifth onto the host."""


@pytest.mark.skipif(is_reference(), reason='nova-scheduler does not know of others')
def test_pinned_servers_for_all_the_room_there_is(cloud, client):
    """200 pinned servers asked for by 16 clients at once, some of them by fours, go to
    hosts that hold exactly 200 and report none: all are placed, nova-compute finds CPUs
    for each that nobody else has, every allocation is a server's, and one more is
    refused."""
    names = [f'host-{i:02}' for i in range(HOSTS)]
    columns = {'numa_topology': TOPOLOGY}
    cloud.add_hosts(
        [
            Compute(x, f'cell{i % 2 + 1}', pcpus=16, columns=columns)
            for i, x in enumerate(names)
        ]
    )
    fours = [new_uuids(4) for _ in range(20)]
    ones = [new_uuids(1) for _ in range(HOSTS * EACH - 80)]
    batches = [
        batch for pair in zip(fours, ones[:20], strict=True) for batch in pair
    ] + ones[20:]
    answers = client.select_at_once(
        [a_call(uuids, THREE) for uuids in batches], CLIENTS
    )
    assert [answer for answer in answers if isinstance(answer, Refused)] == []
    placed = Counter(each[0]['service_host'] for answer in answers for each in answer)
    assert placed == dict.fromkeys(names, EACH)
    pins, _ = client.land(TOPOLOGY, THREE, EACH)
    assert len({cpu for each in pins for cpu in each}) == THREE.vcpus * EACH
    assert cloud.all_allocations().keys() == {
        uuid for batch in batches for uuid in batch
    }
    refused(cloud, client, 1, THREE)


@pytest.mark.parametrize(
    ('stats', 'flavor', 'fields', 'why'),
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
def test_devices(cloud, client, said, stats, flavor, fields, why):
    """Two servers find devices, and land where these are; one more, and all are
    refused, with what is missing in the log."""
    add_host(cloud, 'with', pci_stats=stats)
    add_host(cloud, 'without')
    spec = [{'vendor_id': '8086', 'product_id': '10fb'}]
    device = {
        'count': 1,
        'spec': spec,
        'alias_name': 'nic',
        'request_id': new_uuids()[0],
    }
    asked = {'devices': [{**device, **fields}]}
    refused(cloud, client, 3, flavor, **asked)
    assert is_reference() or why in said()
    assert placed(client, 2, flavor, **asked) == {'with': 2}
