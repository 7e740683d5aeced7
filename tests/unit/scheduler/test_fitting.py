# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from tests.lab.builders import a_host, a_mapped_candidate, a_request
from tests.lab.topologies import a_cell, a_guest, a_pinned

CELLS = HostTopology((a_cell(0, cores=2), a_cell(1, cores=2)))
POOLS = (Pool('p', 'v', 2, 0, {'rp_uuid': 'A'}), Pool('p', 'v', 2, 1, {'rp_uuid': 'B'}))
TWO_PINNED = a_guest(a_pinned(2))
DEVICE = PciRequest(1, ({'product_id': 'p'},), 'gpu', 'id', numa_policy='required')


def a_numa_host(name='host1', topology=CELLS, pools=POOLS):
    return a_host(name, numa=lambda: topology, pci=lambda: pools)


def after(host, candidate=None, **fields):
    request = a_request(**fields)
    place = fitting.claimed_fit(host, request, candidate, {}, Settings())
    return fitting.with_instance_claimed(host, request, candidate, place)


def pinned(host):
    return [sorted(cell.pinned_cpus) for cell in host.numa_topology.cells]


def devices(host):
    return {pool.numa_node: pool.count for pool in host.pci_stats}


@pytest.mark.parametrize(
    ('fields', 'cpus', 'left'),
    [
        ({}, [[], []], {0: 2, 1: 2}),
        ({'numa_topology': TWO_PINNED}, [[0, 1], []], {0: 2, 1: 2}),
        ({'pci_requests': (DEVICE,)}, [[], []], {0: 1, 1: 2}),
        (
            {'numa_topology': TWO_PINNED, 'pci_requests': (DEVICE,)},
            [[0, 1], []],
            {0: 1, 1: 2},
        ),
    ],
)
def test_an_instance_takes_cpus_and_devices_near_the_cpus(fields, cpus, left):
    """An instance takes CPUs, and devices near the CPUs. The original host does not
    change."""
    host = a_numa_host()

    claimed = after(host, **fields)

    assert pinned(claimed) == cpus
    assert devices(claimed) == left
    assert claimed.num_instances == 1
    assert host.numa_topology == CELLS
    assert host.pci_stats == POOLS


def test_an_instance_takes_the_devices_of_the_claimed_candidate():
    """The instance takes the devices that Placement allocated, and CPUs near the
    devices."""
    host = a_numa_host()
    candidate = a_mapped_candidate('host1', 'id', ['B'])

    claimed = after(host, candidate, numa_topology=TWO_PINNED, pci_requests=(DEVICE,))

    assert pinned(claimed) == [[], [4, 5]]
    assert devices(claimed) == {0: 2, 1: 1}


@pytest.mark.parametrize(
    'host',
    [
        a_host(),
        a_numa_host(topology=None),
        a_numa_host(pools=()),
        a_numa_host(topology=HostTopology(CELLS.cells[:1])),
    ],
)
def test_an_instance_that_does_not_fit_takes_no_cells_and_devices(host):
    """If the filters are disabled and an instance does not fit, cells and devices of
    the host stay as they are."""
    five_devices = replace(DEVICE, count=5)

    claimed = after(host, numa_topology=TWO_PINNED, pci_requests=(five_devices,))

    assert claimed.numa_topology is host.numa_topology
    assert claimed.pci_stats is host.pci_stats
    assert claimed.num_instances == 1


BUSY = HostTopology(
    (a_cell(0, cores=2), a_cell(1, cores=2, pinned_cpus=frozenset({4, 5, 6, 7})))
)
NODES = {'A': 0, 'B': 1, 'C': 1, 'D': None}
TWO_DEVICES = replace(DEVICE, count=2, numa_policy='preferred')


@pytest.mark.parametrize(
    ('pools', 'providers', 'fields', 'far'),
    [
        ('ABC', 'AB', {}, 1),
        ('ABC', 'BC', {}, 2),
        ('ABD', 'AD', {}, 0),
        ('BD', 'BD', {}, 1),
        ('ABC', 'BC', {'numa_topology': None}, 0),
        ('ABC', 'BC', {'numa_topology': a_guest(a_pinned(99))}, 0),
        ('ABC', 'BC', {'pci_requests': ()}, 0),
        ('ABC', 'BC', {'pci_requests': (replace(TWO_DEVICES, alias_name=None),)}, 0),
    ],
)
def test_devices_on_other_cells_than_the_guest_count_as_far(
    pools, providers, fields, far
):
    """A device is far if it is on another host cell than the guest. Devices of unknown
    cells are not far. Without a fit or allocated devices, the number is 0."""
    candidate = a_mapped_candidate('host1', 'id', providers)
    fields = {'numa_topology': TWO_PINNED, 'pci_requests': (TWO_DEVICES,), **fields}
    request = a_request(**fields)
    free = tuple(Pool('p', 'v', 1, NODES[name], {'rp_uuid': name}) for name in pools)
    host = a_numa_host(topology=BUSY, pools=free)

    assert fitting.far_devices(host, request, Settings(), candidate) == far


@pytest.mark.parametrize('fields', [{}, {'numa_topology': TWO_PINNED}])
def test_a_host_is_as_before_once_an_instance_has_left(fields):
    """The host has the memory, the vCPUs, the CPUs and the instances as before."""
    host = a_numa_host()
    request = a_request(**fields)
    place = fitting.claimed_fit(host, request, None, {}, Settings())
    claimed = fitting.with_instance_claimed(host, request, None, place)

    left = fitting.without_instance_claimed(claimed, request, place)

    assert pinned(left) == pinned(host)
    same = {'numa': host.numa, 'pci': host.pci}
    assert replace(left, **same) == replace(host, **same)
