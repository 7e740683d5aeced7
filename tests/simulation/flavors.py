# SPDX-License-Identifier: Apache-2.0
"""The flavors of a simulated cloud, and the machines for which they are made."""

from collections.abc import Mapping

import os_resource_classes as classes

from novasched.rpc import wire
from novasched.scheduler.memory import flavor_resources
from novasched.scheduler.model.flavor import Flavor

PINNED = Flavor(
    'pinned', 'pinned', 4, 3, 6144, 10, extra_specs={'hw:cpu_policy': 'dedicated'}
)
"""A guest with dedicated CPUs on one NUMA cell."""
SMALL = Flavor('small', 'small', 1, 1, 2048, 10)
FLAVORS = (
    SMALL,
    Flavor('medium', 'medium', 2, 4, 8192, 20),
    Flavor('large', 'large', 3, 8, 24576, 40),
    PINNED,
)
SHARES = (4, 3, 6, 3)
"""The frequency of each flavor beside the other flavors."""
CELLS = 2
"""NUMA cells of a host."""
CELL_CPUS = 5
"""Dedicated CPUs of a NUMA cell. By the sum of the CPUs, as in Placement, three pinned
guests fit on a host; by the cells, two."""


def _amounts(flavor: Flavor) -> Mapping[str, int]:
    amounts = dict(flavor_resources(flavor))
    if flavor is PINNED:
        amounts[classes.PCPU] = amounts.pop(classes.VCPU)
    return amounts


AMOUNTS: Mapping[str, Mapping[str, int]] = {
    flavor.name: _amounts(flavor) for flavor in FLAVORS
}
"""The amounts of a flavor in Placement, by the flavor's name and by resource class."""


def topology_of(flavor: Flavor) -> wire.InstanceNUMATopology | None:
    """The NUMA topology that nova-api gives to a guest; None without one."""
    if flavor is not PINNED:
        return None
    cell = wire.InstanceNUMACell(
        id=0,
        cpuset=set(),
        pcpuset=set(range(flavor.vcpus)),
        memory=flavor.memory_mb,
        cpu_policy='dedicated',
    )
    return wire.InstanceNUMATopology(cells=[cell])
