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
    claimed = host, a_request(**fields), candidate
    return fitting.after(*claimed, fitting.claimed_fit(*claimed, {}, Settings()))


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
def test_cells_and_devices_are_taken(fields, cpus, left):
    """A server takes its CPUs and devices, near each other, off what the host has left,
    and the host that was is as before."""
    host = a_numa_host()
    later = after(host, **fields)
    assert (pinned(later), devices(later)) == (cpus, left)
    assert (host.numa_topology, host.pci_stats) == (CELLS, POOLS)
    assert later.num_instances == 1


def test_the_claimed_candidate_says_which_devices():
    """What Placement allocated is what is taken, and the guest goes near it."""
    candidate = a_mapped_candidate('host1', 'id', ['B'])
    later = after(
        a_numa_host(), candidate, numa_topology=TWO_PINNED, pci_requests=(DEVICE,)
    )
    assert (pinned(later), devices(later)) == ([[], [4, 5]], {0: 2, 1: 1})


@pytest.mark.parametrize(
    'host',
    [
        a_host(),
        a_numa_host(topology=None),
        a_numa_host(pools=()),
        a_numa_host(topology=HostTopology(CELLS.cells[:1])),
    ],
)
def test_what_cannot_be_had_is_not_taken(host):
    """Where no filter has seen to it that the server fits, cells and devices stay as
    they are."""
    five = replace(DEVICE, count=5)
    later = after(host, numa_topology=TWO_PINNED, pci_requests=(five,))
    assert later.numa_topology is host.numa_topology
    assert later.pci_stats is host.pci_stats
    assert later.num_instances == 1


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
def test_devices_that_are_far_from_the_guest(pools, providers, fields, far):
    """Those on other cells than the one that has room for the guest, if it is known
    where they are, and Placement gives them."""
    candidate = a_mapped_candidate('host1', 'id', providers)
    request = a_request(
        **{'numa_topology': TWO_PINNED, 'pci_requests': (TWO_DEVICES,), **fields}
    )
    free = tuple(Pool('p', 'v', 1, NODES[name], {'rp_uuid': name}) for name in pools)
    host = a_numa_host(topology=BUSY, pools=free)
    assert fitting.far_devices(host, request, Settings(), candidate) == far
