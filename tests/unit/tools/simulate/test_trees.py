# SPDX-License-Identifier: Apache-2.0
"""Simulated guests with devices, against the number that fits."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest

from novasched.conf.settings import Settings
from novasched.placement.client import CandidatesWithSummaries
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.tools.simulate.simulated_placement import SimulatedPlacement
from novasched.tools.simulate.simulator import Simulator
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.daemon import new_uuids
from tests.lab.device_hosts import FIRST_CELLS_FULL, a_device_guest
from tests.lab.memory_schedulers import a_driver
from tests.lab.provider_trees import Provider, an_answer
from tests.lab.topologies import a_cell, a_guest, a_pinned

HOSTS = {'a': 8, 'b': 4, 'c': 1}
"""The number of devices of each host."""


def providers():
    """The providers of all hosts, with the UUIDs of the hosts as names."""
    of_all = []
    for name, count in HOSTS.items():
        root = a_uuid(name)
        of_all.append(Provider(root, {'VCPU': 64, 'MEMORY_MB': 65536}))
        for number in range(count):
            of_all.append(Provider(f'{root}-{number}', {'VGPU': 1}, root))
    return of_all


def simulator_of(hosts, providers, *filters):
    """A simulator over hosts. Placement has the providers."""
    placement = SimulatedPlacement(
        lambda query: CandidatesWithSummaries([], {}),
        Settings(),
        lambda local: an_answer(providers),
    )
    driver = a_driver(hosts, *filters, slots=0)
    return Simulator(driver, placement, seed=1, moment=0.0)


@pytest.fixture
def simulator():
    hosts = [a_host(name, uuid=a_uuid(name)) for name in HOSTS]
    return simulator_of(hosts, providers())


def a_new_guest(**fields):
    """A request for a new instance on a volume."""
    [uuid] = new_uuids()
    request = a_request(
        flavor=a_flavor(vcpus=2, memory_mb=512),
        is_bfv=True,
        instance_uuids=(uuid,),
        instance_uuid=uuid,
    )
    return replace(request, **fields)


def with_devices(number):
    extra_specs = {'group_policy': 'isolate'}
    for index in range(1, number + 1):
        extra_specs[f'resources{index}:VGPU'] = '1'
    return a_new_guest(flavor=a_flavor(extra_specs, vcpus=1, memory_mb=512))


def fill(simulator, number):
    """The number of guests with devices that each host takes, and the refusal after the
    last guest."""
    placed = Counter()
    while True:
        decided = simulator.decide(with_devices(number))
        if decided.decision.refusal is not None:
            return placed, decided
        [[selection, *_]] = decided.decision.selections
        placed[selection.service_host] += 1


@pytest.mark.parametrize('number', [1, 2, 4, 8])
def test_as_many_guests_with_devices_are_placed_as_fit(simulator, number):
    placed, refused = fill(simulator, number)
    for host, count in HOSTS.items():
        assert placed[host] == count // number
    assert refused.full == {'VGPU': 3}
    assert refused.diagnosis.relaxations == (f'{number} VGPU',)


def test_a_trial_gives_devices_back(simulator):
    with simulator.trial():
        fill(simulator, 2)
    placed, _ = fill(simulator, 1)
    assert placed == HOSTS


DEVICES = PciRequest(2, ({'product_id': 'p'},), 'gpu', 'id', numa_policy='required')
GROUPS = (
    RequestGroup('id-0', {'CUSTOM_GPU': 1}),
    RequestGroup('id-1', {'CUSTOM_GPU': 1}),
)
NEAR_HOSTS = ('a', 'b', 'c')


def near_providers(name):
    """A host with four devices near each of two NUMA cells."""
    root = a_uuid(name)
    devices = []
    for number in range(8):
        devices.append(Provider(f'{root}-{number}', {'CUSTOM_GPU': 1}, root))
    return [Provider(root, {'VCPU': 64, 'MEMORY_MB': 65536}), *devices]


def near_host(name):
    cells = HostTopology((a_cell(0, cores=2), a_cell(1, cores=2)))
    pools = []
    for number, device in enumerate(near_providers(name)[1:]):
        # Devices of the two cells take turns, so that the first two are not neighbours.
        pools.append(Pool('p', 'v', 1, number % 2, {'rp_uuid': device.name}))
    return a_host(name, uuid=a_uuid(name), numa=lambda: cells, pci=lambda: tuple(pools))


def test_guests_with_near_devices_fill_all_cells_and_devices():
    """Guests of one NUMA cell with two devices of the same cell fill all cells and
    devices."""
    simulator = simulator_of(
        [*map(near_host, NEAR_HOSTS)],
        [*chain.from_iterable(map(near_providers, NEAR_HOSTS))],
        NUMATopologyFilter,
        PciPassthroughFilter,
    )

    placed = Counter()
    while True:
        request = a_new_guest(
            numa_topology=a_guest(a_pinned(2)),
            pci_requests=(DEVICES,),
            requested_resources=GROUPS,
        )
        decision = simulator.decide(request).decision
        if decision.refusal is not None:
            break
        [[selection, *_]] = decision.selections
        placed[selection.service_host] += 1

    assert placed == dict.fromkeys(NEAR_HOSTS, 4)
    for host in simulator.simulated_hosts.hosts.values():
        assert not any(pool.count for pool in host.pci_stats)


@pytest.mark.parametrize('name', FIRST_CELLS_FULL)
def test_guests_near_free_cells_are_counted_if_first_cells_are_full(name):
    """Guests near the free cells of a host are counted."""
    case = FIRST_CELLS_FULL[name]
    simulator = simulator_of(
        [case.host.host()],
        case.host.providers(),
        NUMATopologyFilter,
        PciPassthroughFilter,
    )
    placed = 0
    while True:
        request = a_device_guest(case.cells, case.aliases)
        if simulator.decide(request).decision.refusal is not None:
            break
        placed += 1
    assert placed == case.guests


@pytest.mark.parametrize('number', [1, 3, 4])
def test_pinned_guests_with_devices_fill_all_hosts(simulator, number):
    """A guest with pinned CPUs has two queries: hosts may report its CPUs as PCPU or as
    VCPU."""
    request = with_devices(number)
    pinned = replace(
        request.flavor,
        extra_specs={**request.flavor.extra_specs, 'hw:cpu_policy': 'dedicated'},
    )
    placed = 0
    while True:
        [uuid] = new_uuids()
        guest = replace(
            request, flavor=pinned, instance_uuids=(uuid,), instance_uuid=uuid
        )
        decided = simulator.decide(guest)
        if decided.decision.refusal is not None:
            break
        placed += 1

    assert placed == sum(count // number for count in HOSTS.values())
    assert decided.full


def test_a_device_free_only_in_placement_is_not_chosen():
    """A device that Placement counts as free, but nova-compute does not, is not
    interchangeable with the other devices."""
    root, *devices = near_providers('a')
    pools = [Pool('p', 'v', 1, None, {'rp_uuid': devices[-1].name})]
    host = a_host('a', uuid=a_uuid('a'), pci=lambda: tuple(pools))
    simulator = simulator_of([host], [root, *devices], PciPassthroughFilter)
    request = a_new_guest(
        pci_requests=(replace(DEVICES, count=1),), requested_resources=GROUPS[:1]
    )

    decided = simulator.decide(request)

    [[selection]] = decided.decision.selections
    assert devices[-1].name in selection.candidate.allocations
