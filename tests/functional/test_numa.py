# SPDX-License-Identifier: Apache-2.0
"""Pinned servers and PCI devices, of which Placement knows numbers and hosts know places."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

FILTERS = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter',
    }
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
"""CPUs that other servers have pinned, of 0 to 7 in one cell and 8 to 15 in the other."""

ROOM = {'half': 2, 'split': 1, 'empty': 4, 'uneven': 2, 'nearly-full': 1}
"""How many servers of four CPUs in one cell find room. By its numbers alone, Placement would
let a second one onto 'split' and one onto 'crumbs'."""


@pytest.fixture
def scheduler(cloud: NovaCloud) -> Iterator[Daemon]:
    """A fresh scheduler for an empty cloud, with both filters."""
    cloud.reset()
    with Daemon(cloud, FILTERS) as running:
        yield running


def add_host(
    cloud: NovaCloud, name: str, taken: list[int] | None = None, **columns: str | None
) -> None:
    """A host of two cells of 8 CPUs, some of which others have."""
    topology = a_numa_topology(*(a_numa_cell(i, pinned=_of_cell(i, taken or [])) for i in (0, 1)))
    columns = {'numa_topology': topology, **columns}
    compute = cloud.add_host(name, pcpus=16, columns=columns)
    if taken:
        cloud.placement.allocate(new_uuids()[0], compute.uuid, {'PCPU': len(taken)})


def _of_cell(number: int, cpus: list[int]) -> list[int]:
    return [cpu for cpu in cpus if cpu // 8 == number]


def refused(cloud: NovaCloud, client: NovaClient, count: int, flavor: Flavor, **asked: Any) -> None:
    """The conductor gets its NoValidHost, and nothing stays claimed."""
    before = cloud.all_allocations()
    with pytest.raises(Refused) as caught:
        client.select_destinations(new_uuids(count), flavor, **asked)
    assert caught.value.no_valid_host
    assert caught.value.message.splitlines()[0] == NOT_ENOUGH
    assert cloud.all_allocations() == before


def placed(client: NovaClient, count: int, flavor: Flavor, **asked: Any) -> Counter[str]:
    """How many of so many servers each host got."""
    found = client.select_destinations(new_uuids(count), flavor, **asked)
    return Counter(selections[0]['service_host'] for selections in found)


@pytest.mark.usefixtures('scheduler')
def test_pinned_servers_of_one_request(cloud: NovaCloud, client: NovaClient) -> None:
    """Ten servers find the ten places where nova-compute lets them pin free CPUs, each its
    own; eleven are refused, and so is one more once the computes have reported the ten."""
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


def a_device(**fields: Any) -> dict[str, Any]:
    """A request for one of :func:`some_devices`."""
    spec = [{'vendor_id': '8086', 'product_id': '10fb'}]
    number = str(uuid.uuid4())
    return {'count': 1, 'spec': spec, 'alias_name': 'nic', 'request_id': number, **fields}


REQUIRED, PREFERRED = {'numa_policy': 'required'}, {'numa_policy': 'preferred'}


@pytest.mark.parametrize(
    ('devices', 'near', 'flavor', 'fields', 'most', 'why'),
    [
        pytest.param(
            2, None, Flavor(), {}, 2,
            'PciPassthroughFilter rejected 1 host(s): PCI nic: 0 of 1 devices are of that kind',
            id='two devices',
        ),
        pytest.param(
            5, None, Flavor(), {'count': 2}, 2,
            'PciPassthroughFilter rejected 1 host(s): PCI nic: 1 of 2 devices are of that kind',
            id='two devices each',
        ),
        pytest.param(
            3, 1, FOUR, REQUIRED, 2,
            'NUMATopologyFilter rejected 1 host(s): near the host cells that the guest fits (0), '
            'PCI nic: 0 of 1 devices are where its NUMA policy wants them',
            id='CPUs for two servers near three devices',
        ),
        pytest.param(
            3, 1, FOUR, PREFERRED, 3,
            'NUMATopologyFilter rejected 1 host(s): near the host cells that the guest fits (0), '
            'PCI nic: 0 of 1 devices are of that kind',
            id='devices may be far',
        ),
    ],
)  # fmt: skip
def test_devices(
    cloud: NovaCloud,
    client: NovaClient,
    scheduler: Daemon,
    devices: int,
    near: int | None,
    flavor: Flavor,
    fields: dict[str, Any],
    most: int,
    why: str,
) -> None:
    """As many servers as find devices land where these are; one more, and all are refused,
    with what is missing in the log."""
    add_host(cloud, 'with', pci_stats=some_devices(devices, near))
    add_host(cloud, 'without')
    asked = {'devices': [a_device(**fields)]}
    refused(cloud, client, most + 1, flavor, **asked)
    assert is_reference() or why in scheduler.text()
    assert placed(client, most, flavor, **asked) == {'with': most}


@pytest.mark.parametrize(
    ('extra_specs', 'why'),
    [
        ({'hw:numa_nodes': '3'}, 'the guest has 3 cells, the host 2'),
        (PINNED, 'guest cell 0 fits no host cell: host cells 0, 1 lack 4 free dedicated CPUs'),
        (
            {**PINNED, 'hw:numa_nodes': '2', 'hw:mem_page_size': '1GB'},
            'guest cell 0 fits no host cell: host cells 0, 1 lack pages of 1048576 KiB',
        ),
        (
            {**PINNED, 'hw:numa_nodes': '2', 'hw:cpu_thread_policy': 'isolate'},
            'guest cell 0 fits no host cell: host cells 0, 1 lack cores without threads to isolate',
        ),
    ],
    ids=['cells', 'CPUs', 'pages', 'cores'],
)
def test_impossible_guests(
    cloud: NovaCloud,
    client: NovaClient,
    scheduler: Daemon,
    extra_specs: dict[str, str],
    why: str,
) -> None:
    """Placement has room for twelve vCPUs, but no host has such cells; the log says what they
    lack."""
    add_host(cloud, 'host-1')
    refused(cloud, client, 1, Flavor(vcpus=12, ram_mb=3072, extra_specs=extra_specs))
    reason = f'NUMATopologyFilter rejected 1 host(s): {why}'
    assert is_reference() or reason in scheduler.text()


UNREADABLE = {
    'torn': a_numa_topology(a_numa_cell(0), a_numa_cell(1))[:-40],
    'empty': '',
    'newer': a_numa_topology(a_numa_cell(0), a_numa_cell(1), version='2.0'),
}


@pytest.mark.skipif(is_reference(), reason="nova's own scheduler fails every request there")
def test_hosts_that_report_nonsense(
    cloud: NovaCloud, client: NovaClient, scheduler: Daemon
) -> None:
    """Pinned servers pass over hosts whose topology cannot be read; the log names each of them
    once, however many requests there are. Other servers go anywhere."""
    for name, text in UNREADABLE.items():
        add_host(cloud, name, numa_topology=text)
    add_host(cloud, 'silent', numa_topology=None)
    assert set(placed(client, 4, Flavor())) == {*UNREADABLE, 'silent'}
    for _ in range(2):
        refused(cloud, client, 1, FOUR)
    add_host(cloud, 'sound')
    assert placed(client, 2, FOUR) == {'sound': 2}

    warnings = [line for line in scheduler.text().splitlines() if ' WARNING ' in line]
    told = [line for line in warnings if 'numa_topology' in line]
    assert len(told) == len(UNREADABLE)
    for name in UNREADABLE:
        assert sum(f'numa_topology of compute node {name} cannot be read' in x for x in told) == 1
