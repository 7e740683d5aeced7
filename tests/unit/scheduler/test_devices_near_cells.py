# SPDX-License-Identifier: Apache-2.0
"""Guests with devices near their NUMA cells, on hosts with free CPUs on few cells."""

import pytest

from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from tests.lab.device_hosts import FIRST_CELLS_FULL, a_device_guest
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
