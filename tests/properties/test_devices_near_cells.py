# SPDX-License-Identifier: Apache-2.0
"""Guests with devices near NUMA cells, against every choice of devices."""

from collections import Counter
from math import comb, prod

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from tests.lab.device_hosts import (
    DeviceHost,
    a_device_guest,
    fitting_choices,
    kind_of,
)
from tests.lab.memory_schedulers import PlacementOfTrees, a_driver

KINDS = ('gpu', 'nic')
POLICIES = ('required', 'legacy', 'preferred', 'socket')
MAX_CHOICES = 3_000
"""Choices of devices that a comparison tries."""


@st.composite
def device_hosts(draw):
    """Hosts of two, four or eight cells, often with equal devices near all cells. The
    first cells are often full."""
    number = draw(st.sampled_from([2, 4, 8]))
    of_cell = st.fixed_dictionaries(
        {kind: st.integers(0, 8 // number) for kind in KINDS}
    )
    near = tuple(draw(of_cell) for _ in range(number))
    if draw(st.booleans()):
        near = (dict.fromkeys(KINDS, 8 // number),) * number
    full = frozenset(range(draw(st.integers(0, number - 1))))
    full |= draw(st.frozensets(st.integers(0, number - 1), max_size=2))
    unknown = draw(st.sampled_from([{}, {}, {'nic': 1}]))
    functions = draw(st.sampled_from([{}, {}, {'nic': 2}, {'nic': 3}]))
    return DeviceHost('h', near, full, unknown, functions)


@st.composite
def guests(draw):
    """Guests of up to three cells. Two aliases may ask for the same devices."""
    aliases = {}
    for alias in ('gpu', 'nic', 'nic-2'):
        count = draw(st.integers(0, 3))
        if count:
            aliases[alias] = count
    assume(aliases)
    policies = {alias: draw(st.sampled_from(POLICIES)) for alias in aliases}
    if draw(st.booleans()):
        policies = 'required'
    return a_device_guest(draw(st.integers(1, 3)), aliases, policies)


def number_of_choices(device_host, request):
    devices = Counter()
    for _, kind, _ in device_host.devices:
        devices[kind] += device_host.functions.get(kind, 1)
    counts = []
    for pci_request in request.pci_requests:
        kind = kind_of(pci_request.alias_name)
        counts.append(comb(devices[kind], pci_request.count))
    return prod(counts)


def is_placed(device_host, request, filters):
    driver = a_driver(
        [device_host.host()],
        *filters,
        placement=PlacementOfTrees(device_host.providers()),
    )
    try:
        driver.select_destinations(request)
    except NoValidHost:
        return False
    return True


@settings(max_examples=200)
@given(device_hosts(), guests(), st.booleans())
def test_a_guest_is_placed_if_a_choice_of_devices_fits(
    device_host, request, is_pci_first
):
    """A host takes a guest if and only if the guest fits with some choice of devices."""
    assume(0 < number_of_choices(device_host, request) <= MAX_CHOICES)
    filters = [NUMATopologyFilter, PciPassthroughFilter]
    if is_pci_first:
        filters.reverse()

    expected = any(True for _ in fitting_choices(device_host, request))
    event(f'{len(device_host.near)} cells, fits: {expected}')

    assert is_placed(device_host, request, filters) == expected
