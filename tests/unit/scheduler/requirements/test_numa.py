# SPDX-License-Identifier: Apache-2.0
"""The cells that flavors and images ask for, as nova-api makes them."""

import pytest

from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.image_properties import typed
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.requirements import numa


def a_cell(id=0, cpus=(0, 1, 2, 3), memory=1024, pinned=(), **more):
    return GuestCell(id, frozenset(cpus), memory, frozenset(pinned), **more)


def a_pinned(**more):
    return a_cell(0, (), pinned=range(4), cpu_policy='dedicated', **more)


PINNED = {'hw:cpu_policy': 'dedicated'}
MIXED = {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0'}
THREADS = {'trait:HW_CPU_HYPERTHREADING': 'required'}
HALVES = {
    'hw:numa_nodes': '2', 'hw:numa_cpus.0': '0', 'hw:numa_cpus.1': '1-3', 'hw:numa_mem.0': '24',
    'hw:numa_mem.1': '1000',
}  # fmt: skip


@pytest.mark.parametrize(
    ('specs', 'image', 'cells'),
    [
        ({}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {}, None),
        ({'hw:numa_nodes': '2'}, {}, (a_cell(0, (0, 1), 512), a_cell(1, (2, 3), 512))),
        ({}, {'hw_numa_nodes': 1}, (a_cell(),)),
        (HALVES, {}, (a_cell(0, (0,), 24), a_cell(1, (1, 2, 3), 1000))),
        ({}, typed({key.replace(':', '_'): text for key, text in HALVES.items()}), (a_cell(0, (0,), 24), a_cell(1, (1, 2, 3), 1000))),
        (PINNED, {}, (a_pinned(),)),
        ({'resources:PCPU': '4'}, {}, (a_pinned(),)),
        (PINNED, {'hw_cpu_thread_policy': 'isolate'}, (a_pinned(cpu_thread_policy='isolate'),)),
        ({**PINNED, **THREADS}, {}, (a_pinned(cpu_thread_policy='require'),)),
        (MIXED, {}, (a_cell(0, (0,), pinned=(1, 2, 3), cpu_policy='mixed'),)),
        ({'hw:mem_page_size': '2MB'}, {}, (a_cell(pagesize=2048),)),
        ({'hw:mem_page_size': 'large'}, {'hw_mem_page_size': '1048576'}, (a_cell(pagesize=1048576),)),
        ({'hw:mem_page_size': 'any'}, {}, (a_cell(pagesize=-3),)),
        ({'hw:pmem': 'X'}, {}, (a_cell(),)),
    ],
)  # fmt: skip
def test_cells(specs, image, cells):
    """Of four vCPUs and 1024 MiB."""
    found = numa.topology(Flavor(vcpus=4, memory_mb=1024, extra_specs=specs), image)
    assert found == (cells and GuestTopology(cells))


def test_emulator_threads():
    """Their policy goes along."""
    specs = {**PINNED, 'hw:emulator_threads_policy': 'isolate'}
    found = numa.topology(Flavor(vcpus=4, memory_mb=1024, extra_specs=specs), {})
    assert found.emulator_threads_policy == 'isolate'
