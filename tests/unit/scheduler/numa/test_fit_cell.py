# SPDX-License-Identifier: Apache-2.0
"""Memory pages and host CPUs of a guest cell on a host cell."""

import pytest

from novasched.scheduler.model.numa import Pages
from novasched.scheduler.numa.fit_cell import cpu_shortfall, page_size, pin
from tests.lab.topologies import a_cell, a_pinned, a_shared

GIB = 1048576
SEVERAL = (
    Pages(2048, 512, used=100, reserved=12),
    Pages(4, GIB, used=1),
    Pages(GIB, 1),
)


@pytest.mark.parametrize(
    ('mempages', 'guest', 'size'),
    [
        (SEVERAL, a_shared(memory=64, pagesize=-1), 4),
        (SEVERAL, a_shared(memory=1024, pagesize=-2), GIB),
        (SEVERAL, a_shared(memory=800, pagesize=-2), 2048),
        (SEVERAL, a_shared(memory=1024, pagesize=-3), GIB),
        (SEVERAL, a_shared(memory=1025, pagesize=-3), 4),
        (SEVERAL, a_shared(memory=800, pagesize=2048), 2048),
        (SEVERAL, a_shared(memory=802, pagesize=2048), ('pages of 2048 KiB', 1)),
        (
            SEVERAL,
            a_shared(memory=801, pagesize=2048),
            ('pages that divide its memory: 2048 KiB do not', None),
        ),
        (SEVERAL, a_shared(memory=64, pagesize=8), ('pages of 8 KiB', None)),
        (SEVERAL, a_shared(memory=64, pagesize=-7), ('pages of -7 KiB', None)),
        (SEVERAL, a_shared(memory=4096, pagesize=-1), ('pages of 4 KiB', 1)),
        (SEVERAL, a_shared(memory=4096), None),
        (SEVERAL, a_shared(memory=4097), ('pages of 4 KiB', 256)),
        (SEVERAL[1:2], a_shared(memory=64, pagesize=-2), ('large pages', None)),
        ((), a_shared(memory=64, pagesize=-1), ('counted pages', None)),
        ((), a_shared(memory=4096), None),
        ((), a_shared(memory=4096, pagesize=0), None),
        (SEVERAL, a_pinned(1, memory=4096), ('pages of 4 KiB', 1)),
        (SEVERAL, a_pinned(1, memory=4095), None),
        ((), a_pinned(1, memory=97), ('MiB of memory', 1)),
        ((), a_pinned(1, memory=96), None),
    ],
)
def test_the_guest_page_size_decides_the_pages_of_a_host_cell(mempages, guest, size):
    """``small`` takes the smallest pages, ``large`` larger pages, and ``any`` the
    largest pages with room. Memory without a page size may be overcommitted, except by
    pinned guests."""
    assert page_size(a_cell(mempages=mempages, memory_usage=4000), guest) == size


ONE = a_cell(cores=4, threads=1)
TWO = a_cell(cores=4, threads=2)
FOUR = a_cell(cores=2, threads=4)
WITH_HALVES = a_cell(cores=4, threads=2, pinned_cpus=frozenset({0, 2}))
APART = a_cell(cores=4, threads=2, cpuset=frozenset({0, 1}))


@pytest.mark.parametrize(
    ('host', 'policy', 'vcpus', 'emulator_cpus', 'cpus', 'emulators'),
    [
        (ONE, None, 2, 0, [0, 1], []),
        (ONE, 'isolate', 2, 1, [0, 1], [2]),
        (TWO, 'prefer', 4, 0, [0, 1, 2, 3], []),
        (TWO, 'prefer', 3, 1, [0, 1, 2], [3]),
        (TWO, 'require', 4, 0, [0, 1, 2, 3], []),
        (TWO, 'isolate', 3, 1, [0, 2, 4], [6]),
        (FOUR, 'prefer', 5, 0, [0, 1, 2, 3, 4], []),
        (WITH_HALVES, 'prefer', 2, 0, [4, 5], []),
        (WITH_HALVES, 'prefer', 5, 0, [1, 3, 4, 5, 6], []),
        (WITH_HALVES, 'prefer', 4, 1, [4, 5, 6, 7], [1]),
        (WITH_HALVES, 'isolate', 1, 1, [4], [6]),
        (APART, 'prefer', 2, 0, [2, 3], []),
        (a_cell(siblings=()), 'prefer', 3, 0, [0, 1, 2], []),
    ],
)
def test_vcpus_are_pinned_to_cpus_by_the_thread_policy(
    host, policy, vcpus, emulator_cpus, cpus, emulators
):
    """Cores are filled if the policy allows. The vCPUs get the CPUs in order."""
    guest = a_pinned(vcpus, first=10, cpu_thread_policy=policy)
    assert cpu_shortfall(host, guest, emulator_cpus) is None

    pins, spare = pin(host, guest, emulator_cpus)
    assert pins == tuple(zip(range(10, 10 + vcpus), cpus, strict=True))
    assert spare == frozenset(emulators)


@pytest.mark.parametrize(
    ('host', 'policy', 'vcpus', 'emulator_cpus', 'resource', 'amount'),
    [
        (ONE, None, 5, 0, 'free dedicated CPUs', 1),
        (ONE, None, 4, 1, 'free dedicated CPUs', 1),
        (ONE, 'require', 1, 0, 'threads, which are required', None),
        (TWO, 'isolate', 6, 0, 'free whole cores to isolate', 2),
        (TWO, 'isolate', 4, 1, 'free whole cores to isolate', 1),
        (WITH_HALVES, 'require', 6, 0, 'free threads that share cores', 2),
        (WITH_HALVES, 'isolate', 2, 1, 'free whole cores to isolate', 1),
        (APART, 'isolate', 1, 0, 'cores without threads to isolate', None),
        (
            a_cell(siblings=(frozenset({0, 1}),)),
            None,
            3,
            0,
            'free dedicated CPUs on known cores',
            1,
        ),
    ],
)
def test_a_shortfall_names_the_missing_cpus_cores_or_threads(
    host, policy, vcpus, emulator_cpus, resource, amount
):
    """The shortfall is in free CPUs, cores or threads, with the missing number."""
    guest = a_pinned(vcpus, cpu_thread_policy=policy)
    assert cpu_shortfall(host, guest, emulator_cpus) == (resource, amount)
