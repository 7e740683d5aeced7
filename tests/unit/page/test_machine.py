# SPDX-License-Identifier: Apache-2.0
from novasched.model.numa import HostCell, HostTopology, Pages
from novasched.page import machine
from novasched.page.sight import Cell, Sight
from tests.builders import a_host, a_uuid

CPUS = frozenset(range(4))
NUMA = HostTopology(
    (
        HostCell(
            0, CPUS, 4096, pcpuset=CPUS, cpu_usage=6, memory_usage=1024, pinned_cpus=frozenset({1}),
            mempages=(Pages(4, 1000, 10), Pages(2048, 8, 2), Pages(1048576, 2)),
        ),
        HostCell(1, frozenset(), 4096),
    )
)  # fmt: skip
ONE = a_host(
    'one', ram=1024, total_usable_ram_mb=4096, vcpus=4, vcpus_used=6, cpu_allocation_ratio=4.0,
    disabled=True, why='new disks', metadata={'availability_zone': 'south'}, numa=lambda: NUMA,
    hypervisor_type='QEMU', hypervisor_version=8002000, num_instances=3,
)  # fmt: skip
METAL = [a_host('metal', nodename=f'node-{i}', uuid=a_uuid(f'n{i}')) for i in range(60)]
SIGHT = Sight((Cell('north', [ONE], 1.0), Cell('south', METAL, 1.0)))


def test_one_host():
    """What it has, where it is, and whether servers may go there."""
    found = machine.view(SIGHT, 'one', 'nova')
    assert (found.cell, found.zone, found.aggregates) == ('north', 'south', ('aggregate1',))
    assert (found.state, found.disabled, found.why) == ('disabled', True, 'new disks')
    (node,) = found.nodes
    assert [(x.title, x.told, x.factor) for x in node.stocks] == [
        ('Memory', '1.00 of 4.00 GiB free', '1'),
        ('vCPUs', '10 of 16 free', '4'),
        ('Disk', '100 of 100 GiB free', '1'),
        ('Pinned CPUs', '3 of 4 free', ''),
    ]
    assert (node.servers, node.hypervisor) == (3, 'QEMU 8002000')


def test_numa_cells():
    """Each cell has its CPUs, its memory and its pages."""
    first, second = machine.view(SIGHT, 'one', None).nodes[0].numa
    assert (first.pinned_told, first.shared, first.memory_told) == (
        '3 of 4 free',
        '6 used on 4',
        '3.00 of 4.00 GiB free',
    )
    assert first.pages == '990 of 1,000 x 4 KiB, 6 of 8 x 2 MiB, 2 of 2 x 1 GiB'
    assert (second.pinned_told, second.shared, second.pages) == ('none', 'none', '')


def test_many_nodes():
    """Some of them are shown, and how many are not."""
    found = machine.view(SIGHT, 'metal', None)
    assert (len(found.nodes), found.more) == (machine.NODES, 10)
    assert (found.nodes[1].name, found.zone) == ('node-1', '(no zone)')


def test_no_such_host():
    """There is nothing to show."""
    assert machine.view(SIGHT, 'two', None) is None
