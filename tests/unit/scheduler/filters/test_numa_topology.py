# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.shared import judge
from novasched.scheduler.host_table import HostTable
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.host_list import HostList
from novasched.scheduler.model.numa import HostCell, HostTopology, TopologyLimits
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.pipeline import judge_changed
from novasched.scheduler.plugin import Enabled
from tests.lab.builders import NOT_ASKED, a_host, a_mapped_candidate, a_request
from tests.lab.topologies import a_guest, a_pinned, a_shared

CELLS = HostTopology(
    (
        HostCell(
            0, frozenset({0, 1}), 1024, frozenset({0, 1}), physnets=frozenset({'red'})
        ),
        HostCell(1, frozenset({2, 3}), 2048, frozenset({2, 3})),
    )
)
THREADED = HostTopology(
    tuple(replace(cell, siblings=(cell.pcpuset,)) for cell in CELLS.cells)
)
PINNED = {'hw:cpu_policy': 'dedicated'}
REQUIRING = {**PINNED, 'hw:cpu_thread_policy': 'require'}


def a_numa_host(topology=CELLS, name='host1', pools=(), **fields):
    return a_host(name, numa=lambda: topology, pci=lambda: pools, **fields)


def guest(memory, vcpus=1):
    return a_guest(a_shared(vcpus, memory))


def verdict(host, request):
    return NUMATopologyFilter(Settings()).reject(host, request)


@pytest.mark.parametrize(
    ('host', 'request_', 'why'),
    [
        (a_numa_host(), {}, NOT_ASKED),
        (a_numa_host(), {'numa_topology': a_guest()}, NOT_ASKED),
        (a_numa_host(), {'extra_specs': PINNED}, NOT_ASKED),
        (a_numa_host(), {'numa_topology': guest(2048)}, None),
        (
            a_numa_host(),
            {'numa_topology': a_guest(a_pinned(3, memory=512))},
            '1 free dedicated CPUs',
        ),
        (
            a_numa_host(cpu_allocation_ratio=0.5),
            {'numa_topology': guest(512, vcpus=2)},
            '1 CPUs within the allocation ratio',
        ),
        (
            a_numa_host(),
            {'numa_topology': guest(2000), 'physnets': frozenset({'red'})},
            'physical network red',
        ),
        (
            a_numa_host(None),
            {'numa_topology': guest(512)},
            'it reports no NUMA topology, or none that can be read',
        ),
        (
            a_numa_host(),
            {'extra_specs': REQUIRING},
            'it has no threads, which are required',
        ),
        (
            a_numa_host(),
            {
                'image': {
                    'hw_cpu_policy': 'dedicated',
                    'hw_cpu_thread_policy': 'require',
                }
            },
            'no threads',
        ),
        (
            a_numa_host(),
            {'extra_specs': PINNED, 'image': {'hw_cpu_thread_policy': 'require'}},
            'no threads',
        ),
        (a_numa_host(THREADED), {'extra_specs': REQUIRING}, None),
        (a_numa_host(None), {'extra_specs': REQUIRING}, None),
    ],
)
def test_a_host_fits_the_guest_cells_or_the_reason_names_the_lack(host, request_, why):
    """A host fits the guest's cells, or the reason says what is missing. The filter
    does not apply to a guest without cells and without required threads."""
    request = a_request(**request_)
    assert NUMATopologyFilter(Settings()).applies(request) is (why is not NOT_ASKED)
    reason = verdict(host, request)
    if why in (None, NOT_ASKED):
        assert reason is None
    else:
        assert why in reason


def test_limits_have_allocation_ratios_and_requested_networks():
    """nova-compute is sent the allocation ratios of the host and the networks of the
    request."""
    plugin = NUMATopologyFilter(Settings())
    host = a_numa_host(cpu_allocation_ratio=4.0, ram_allocation_ratio=1.5)
    request = a_request(
        numa_topology=guest(1), physnets=frozenset({'red'}), tunneled=True
    )
    limits = TopologyLimits(4.0, 1.5, frozenset({'red'}), True)
    assert plugin.limits(host, request) == {'numa_topology': limits}
    assert plugin.limits(host, a_request()) == {}


NEAR = Pool('p', 'v', 1, 0, {'rp_uuid': 'A'})
FAR = Pool('p', 'v', 1, 1, {'rp_uuid': 'B'})
DEVICE = PciRequest(1, ({'product_id': 'p'},), 'gpu', 'id', numa_policy='required')


@pytest.mark.parametrize(
    ('memory', 'offered', 'left', 'why'),
    [
        (1024, ['A', 'B'], ['A', 'B'], None),
        (2048, ['A', 'B'], ['B'], None),
        (2048, [], [], 'Placement offers nothing on it'),
        (
            2048,
            ['A'],
            ['A'],
            'near the host cells that the guest fits (1), PCI gpu: 0 of 1 devices are'
            ' those that Placement allocates',
        ),
    ],
)
def test_candidates_with_devices_far_from_fitting_cells_are_dropped(
    memory, offered, left, why
):
    """A candidate with a device far from the fitting cells is dropped. A host without a
    fitting candidate is rejected."""
    host = a_numa_host(pools=(NEAR, FAR))
    offers = [a_mapped_candidate(host.uuid, 'id', [rp]) for rp in offered]
    request = a_request(numa_topology=guest(memory), pci_requests=(DEVICE,))
    plugin = NUMATopologyFilter(Settings())
    (reason,), remaining = judge(plugin, [host], request, CandidateIndex(offers))
    assert reason == why
    expected = [a_mapped_candidate(host.uuid, 'id', [rp]) for rp in left]
    assert [*remaining.get(host.uuid, ())] == expected


def test_a_device_of_the_wrong_kind_does_not_hide_a_fitting_cell():
    """A combination of cells with fewer devices does not hide a cell with the device.
    On both cells nova-compute accepts the physical function, on one cell it does
    not."""
    pools = (Pool('p', 'v', 1, 0, {'dev_type': 'type-PF'}), Pool('p', 'v', 1, 1))
    device = replace(DEVICE, numa_policy='preferred')
    host = a_numa_host(
        HostTopology((*CELLS.cells, HostCell(2, frozenset({4, 5}), 1024))), pools=pools
    )
    request = a_request(numa_topology=guest(512), pci_requests=(device,))
    assert verdict(host, request) is None


class Counting(NUMATopologyFilter):
    """Counts the hosts that the filter judges."""

    judged = 0

    def reject_candidate(self, *args):
        self.judged += 1
        return super().reject_candidate(*args)


def wishing(memory):
    return a_guest(a_pinned(1, memory=memory, cpu_thread_policy='isolate'))


@pytest.mark.parametrize(
    ('hosts', 'judged'),
    [
        ([a_numa_host(name='a'), a_numa_host(name='b')], 1),
        ([a_numa_host(name='a'), a_numa_host(HostTopology(CELLS.cells), 'b')], 1),
        ([a_numa_host(name='a'), a_numa_host(name='b', cpu_allocation_ratio=2.0)], 2),
        ([a_numa_host(name='a'), a_numa_host(THREADED, 'b')], 2),
        (
            [a_numa_host(name='a', pools=(NEAR,)), a_numa_host(name='b', pools=(FAR,))],
            2,
        ),
    ],
)
def test_equivalent_hosts_share_the_verdict(hosts, judged, unchecked_scopes):
    """Hosts with equal topologies, pools and ratios are judged once, also for later
    requests with an equal guest. A different guest, or a guest with devices, is judged
    again. For a guest without a thread policy, all fitting hosts are found at once."""
    plugin = Counting(Settings())
    table = HostTable()

    for fields, total in [
        ({}, judged),
        ({}, judged),
        ({'numa_topology': wishing(513)}, 2 * judged),
        ({'pci_requests': (replace(DEVICE, numa_policy='preferred'),)}, 3 * judged),
        ({'numa_topology': guest(512)}, 3 * judged),
        ({'numa_topology': guest(4096)}, 4 * judged),
    ]:
        request = a_request(**{'numa_topology': wishing(512), **fields})
        table.request = object()
        judge_changed(Enabled(plugin), HostList.of(hosts), request, None, table)
        assert plugin.judged == total
