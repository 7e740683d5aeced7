# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells that flavors and images ask for, worked out by nova and by us."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.requirements import Requirements
from tests.parity.child import Nova

CASES, BATCH = 4_000, 500
ASKED = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
SPECS = {
    'hw:numa_nodes': ('1', '2', '3'),
    'hw:cpu_policy': ('dedicated', 'mixed', 'shared'),
    'hw:cpu_thread_policy': ('prefer', 'isolate', 'require'),
    'hw:emulator_threads_policy': ('isolate', 'share'),
    'hw:mem_page_size': ('small', 'large', 'any', '2048', '1GB', '2MB', '2M'),
    'hw:cpu_dedicated_mask': ('0-1', '^0', '2'),
    'hw:cpu_realtime': ('yes',),
    'hw:cpu_realtime_mask': ('^0', '^0-1'),
    'resources:PCPU': ('4',),
    'resources:VCPU': ('4',),
    'trait:HW_CPU_HYPERTHREADING': ('required', 'forbidden'),
    'hw:pmem': ('X',),
}
UNEQUAL = {
    'hw:numa_nodes': ('2',),
    'hw:numa_cpus.0': ('0,1', '0-2'),
    'hw:numa_cpus.1': ('2,3', '3'),
    'hw:numa_mem.0': ('512', '1024'),
    'hw:numa_mem.1': ('512', '1024'),
}
IMAGE = {
    'hw_numa_nodes': ('1', '2'),
    'hw_cpu_policy': ('dedicated', 'shared'),
    'hw_cpu_thread_policy': ('isolate', 'prefer'),
    'hw_mem_page_size': ('2048', 'large'),
}


def test_the_cells_are_those_of_nova(hardware: Nova, seed: int, times: int) -> None:
    """Of every flavor and image that nova-api takes; what it refuses never comes."""
    random = Random(seed)
    taken = with_cells = 0
    for _ in range(times * CASES // BATCH):
        batch = [a_case(random) for _ in range(BATCH)]
        for case, theirs in zip(batch, hardware.ask('cells', batch), strict=True):
            if theirs and 'error' in theirs:
                continue
            assert ours(case) == theirs, case
            taken += 1
            with_cells += theirs is not None
    assert taken > with_cells > CASES // 20


def a_case(random: Random) -> dict[str, Any]:
    """A flavor of some vCPUs with some extra specs, and at times an image that says more."""
    names = random.sample(list(SPECS), random.choice([0, 1, 1, 2, 2, 3]))
    specs = _drawn({name: SPECS[name] for name in names}, random)
    if random.random() < 0.1:
        specs.update(_drawn(UNEQUAL, random))
    some = random.sample(list(IMAGE), random.choice([0, 0, 0, 1]))
    return {
        'flavor': {
            'vcpus': random.choice([2, 4, 4, 6]),
            'memory_mb': random.choice([1024, 1536]),
            'extra_specs': specs,
        },
        'image': _drawn({name: IMAGE[name] for name in some}, random),
    }


def _drawn(values: Mapping[str, tuple[str, ...]], random: Random) -> dict[str, str]:
    return {name: random.choice(each) for name, each in values.items()}


def ours(case: dict[str, Any]) -> Any:
    found = Requirements(Flavor(**case['flavor']), case['image']).numa_topology
    return found and {
        'emulator_threads_policy': found.emulator_threads_policy,
        'cells': [
            {
                'cpuset': sorted(cell.cpuset),
                'pcpuset': sorted(cell.pcpuset),
                **{name: getattr(cell, name) for name in ASKED},
            }
            for cell in found.cells
        ],
    }
