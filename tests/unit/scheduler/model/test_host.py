# SPDX-License-Identifier: Apache-2.0
"""Values of hosts."""

import pytest

from novasched.scheduler.model.host import capacity_of
from novasched.scheduler.model.numa import HostCell, HostTopology
from tests.lab.builders import a_host


def cpus(*numbers):
    return frozenset(numbers)


@pytest.mark.parametrize(
    ('cells', 'floating'),
    [
        # Without a topology, every CPU takes floating vCPUs.
        ((), (16.0, 5)),
        # [compute] cpu_shared_set and cpu_dedicated_set: CPUs 2 to 4 are for pinned
        # vCPUs alone, and three of the five vCPUs in use are pinned there.
        (
            (
                HostCell(0, cpus(0, 1), 64, cpus(2, 3), pinned_cpus=cpus(2, 3)),
                HostCell(1, cpus(5, 6, 7), 64, cpus(4), pinned_cpus=cpus(4)),
            ),
            (10.0, 2),
        ),
        # vcpu_pin_set: the same CPUs take either kind.
        ((HostCell(0, cpus(0, 1), 64, cpus(0, 1), pinned_cpus=cpus(0)),), (16.0, 5)),
    ],
)
def test_cpus_for_pinned_vcpus_alone_do_not_count_as_floating(cells, floating):
    """CPUs for pinned vCPUs alone, and the vCPUs there, do not count."""
    topology = HostTopology(cells) if cells else None
    host = a_host(
        vcpus=8, vcpus_used=5, cpu_allocation_ratio=2.0, numa=lambda: topology
    )
    assert host.floating_vcpus == floating
    assert capacity_of([host, host])['VCPU'] == 2 * floating[0]
