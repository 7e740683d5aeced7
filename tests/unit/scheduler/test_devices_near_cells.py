# SPDX-License-Identifier: Apache-2.0
"""Guests with devices near their NUMA cells, on hosts with free CPUs on few cells."""

from functools import partial

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.filters.shared import judge
from novasched.scheduler.fitting import host_devices
from tests.lab.device_hosts import FIRST_CELLS_FULL, DeviceHost, a_device_guest
from tests.lab.memory_schedulers import PlacementOfTrees, a_driver

FILTERS = (NUMATopologyFilter, PciPassthroughFilter)
EVERY_ORDER = [FILTERS, FILTERS[::-1], FILTERS[:1]]


def placed(device_host, request, filters):
    """The cell of each device of a guest."""
    placement = PlacementOfTrees(device_host.providers())
    driver = a_driver([device_host.host()], *filters, placement=placement)
    [[selection, *_]] = driver.select_destinations(request)
    cell_of = {provider: cell for provider, _, cell in device_host.devices}
    allocated = selection.candidate.allocations.keys() & cell_of.keys()
    return [cell_of[provider] for provider in allocated]


@pytest.mark.parametrize('filters', EVERY_ORDER)
@pytest.mark.parametrize('name', FIRST_CELLS_FULL)
def test_a_guest_is_placed_near_the_free_cells(name, filters):
    """A guest is placed on a host whose first cells are full, with devices of other
    cells."""
    case = FIRST_CELLS_FULL[name]
    devices = placed(case.host, a_device_guest(case.cells, case.aliases), filters)
    assert len(devices) == sum(case.aliases.values())
    assert case.host.full.isdisjoint(devices)


def test_a_filter_leaves_all_candidates_that_fit_their_hosts():
    """Hosts with the same devices have free CPUs on different cells. The candidates that
    are judged after the first of a host are judged for this host, too."""
    near = ({'gpu': 1},) * 4
    device_hosts = []
    for number in range(4):
        full = frozenset(range(4)) - {number}
        device_hosts.append(DeviceHost(f'free-{number}', near, full))
    hosts = [device_host.host() for device_host in device_hosts]
    providers = []
    for device_host in device_hosts:
        providers += device_host.providers()
    request = a_device_guest(1, {'gpu': 2}, 'preferred')
    offer = PlacementOfTrees(providers).candidates(request)
    plugin = NUMATopologyFilter(Settings())

    offer = offer.beside(dict, partial(devices_of, hosts, request), ())
    verdicts = judge(plugin, hosts, request, offer)

    assert verdicts.reasons == [None] * 4
    for host in hosts:
        fitting = []
        for candidate in offer[host.uuid]:
            mappings = candidate.providers_by_group()
            if plugin.reject_candidate(host, request, mappings) is None:
                fitting.append(candidate)
        assert len(fitting) >= 6
        assert verdicts.candidates[host.uuid] == fitting


def devices_of(hosts, request, uuid):
    [host] = [host for host in hosts if host.uuid == uuid]
    return host_devices(host, request, Settings())
