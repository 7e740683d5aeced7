# SPDX-License-Identifier: Apache-2.0
"""A cloud of five nodes in two zones and two cells."""

import pytest

from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost

AZ01, AZ02 = 'az01', 'az02'
CELL1, CELL2 = 'cell1', 'cell2'
FIVE_NODES = (
    SandboxHost('osdev-01', zone=AZ01, cell=CELL1),
    SandboxHost('osdev-02', zone=AZ01, cell=CELL1),
    SandboxHost('osdev-03', zone=AZ02, cell=CELL2),
    SandboxHost('osdev-ceph', zone=AZ02, cell=CELL2),
    SandboxHost('osdev-gpu', zone=AZ02, cell=CELL2),
)
NAMES = {machine.name for machine in FIVE_NODES}
IN_AZ02 = {machine.name for machine in FIVE_NODES if machine.zone == AZ02}
SMALL = Flavor(name='small', flavorid='small', id=1, vcpus=1, memory_mb=512, root_gb=1)
HALF = Flavor(name='half', flavorid='half', id=2, vcpus=1, memory_mb=34000, root_gb=1)
"""More than half of a node: it has room for one."""
IMPOSSIBLE = Flavor(name='vast', flavorid='vast', id=3, vcpus=1000, memory_mb=1, root_gb=1)


def five_nodes():
    """The cloud; at its end Placement's books are in order."""
    with Sandbox(FIVE_NODES) as cloud:
        yield cloud
        assert cloud.problems() == []


shared_cloud = pytest.fixture(five_nodes, scope='module', name='cloud')
"""One for all tests of a module, which leave their servers behind."""

fresh_cloud = pytest.fixture(five_nodes, name='fresh_cloud')
"""One for tests that break its hosts. A module has to do with one of the two, since a
process has one Placement at a time."""
