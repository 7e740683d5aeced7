# SPDX-License-Identifier: Apache-2.0
"""The flavors of a simulated cloud, and the machines for which they are made."""

from collections.abc import Mapping

import os_resource_classes as classes

from novasched.rpc import wire
from novasched.scheduler.memory import flavor_resources
from novasched.scheduler.model.flavor import Flavor

DEDICATED = {'hw:cpu_policy': 'dedicated'}
PINNED = Flavor(
    'pinned',
    'pinned',
    4,
    3,
    6144,
    10,
    extra_specs={**DEDICATED, 'trait:CUSTOM_DEVICES': 'forbidden'},
)
"""A guest with dedicated CPUs on one NUMA cell of a host without devices. On a host with
devices, nova-compute might give the guest a cell whose devices a scheduler has given to
another guest."""
NIC = Flavor('nic', 'nic', 5, 3, 6144, 10, extra_specs=DEDICATED)
"""The same with a device near the cell."""
LOADED = Flavor(
    'loaded',
    'loaded',
    6,
    3,
    6144,
    10,
    extra_specs={**DEDICATED, 'group_policy': 'none'},
)
"""The same with as many devices as there are near a cell."""
SMALL = Flavor('small', 'small', 1, 1, 2048, 10)
FLAVORS = (
    SMALL,
    Flavor('medium', 'medium', 2, 4, 8192, 20),
    Flavor('large', 'large', 3, 8, 24576, 40),
    PINNED,
    NIC,
    LOADED,
)
SHARES = (8, 6, 12, 6, 2, 1)
"""The frequency of each flavor beside the other flavors."""
CELLS = 2
"""NUMA cells of a host."""
CELL_CPUS = 5
"""Dedicated CPUs of a NUMA cell. By the sum of the CPUs, as in Placement, three pinned
guests fit on a host; by the cells, two."""
PINNED_FLAVORS = (PINNED, NIC, LOADED)
"""The flavors with dedicated CPUs on a NUMA cell, which all have as many."""
DEVICES_OF: Mapping[str, Mapping[str, int]] = {
    'nic': {'nic': 1},
    'loaded': {'gpu': 3, 'nic': 3, 'nvme': 3, 'fpga': 3},
}
"""The number of devices of each kind, by the flavor's name."""


def _amounts(flavor: Flavor) -> Mapping[str, int]:
    amounts = dict(flavor_resources(flavor))
    if flavor in PINNED_FLAVORS:
        amounts[classes.PCPU] = amounts.pop(classes.VCPU)
    return amounts


AMOUNTS: Mapping[str, Mapping[str, int]] = {
    flavor.name: _amounts(flavor) for flavor in FLAVORS
}
"""The amounts of a flavor on a compute node in Placement, by the flavor's name and by
resource class."""


def topology_of(flavor: Flavor) -> wire.InstanceNUMATopology | None:
    """The NUMA topology that nova-api gives to a guest; None without one."""
    if flavor not in PINNED_FLAVORS:
        return None
    cell = wire.InstanceNUMACell(
        id=0,
        cpuset=set(),
        pcpuset=set(range(flavor.vcpus)),
        memory=flavor.memory_mb,
        cpu_policy='dedicated',
    )
    return wire.InstanceNUMATopology(cells=[cell])
