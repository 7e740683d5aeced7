# SPDX-License-Identifier: Apache-2.0
"""Which host CPUs dedicated vCPUs get."""

from __future__ import annotations

import pytest

from novasched.numa import pinning
from tests.unit.numa.topologies import a_cell, a_pinned

ONE = a_cell(cores=4, threads=1)
TWO = a_cell(cores=4, threads=2)
FOUR = a_cell(cores=2, threads=4)
WITH_HALVES = a_cell(cores=4, threads=2, pinned_cpus=frozenset({0, 2}))
APART = a_cell(cores=4, threads=2, cpuset=frozenset({0, 1}))


@pytest.mark.parametrize(
    ('host', 'policy', 'vcpus', 'reserve', 'cpus', 'reserved'),
    [
        (ONE, None, 2, 0, [0, 1], []),
        (ONE, 'prefer', 3, 1, [0, 1, 2], [3]),
        (ONE, 'isolate', 2, 1, [0, 1], [2]),
        (TWO, 'prefer', 4, 0, [0, 1, 2, 3], []),
        (TWO, 'prefer', 3, 1, [0, 1, 2], [3]),
        (TWO, 'require', 3, 0, [0, 1, 2], []),
        (TWO, 'isolate', 2, 0, [0, 2], []),
        (TWO, 'isolate', 3, 1, [0, 2, 4], [6]),
        (FOUR, 'prefer', 5, 0, [0, 1, 2, 3, 4], []),
        (FOUR, 'isolate', 2, 0, [0, 4], []),
        (WITH_HALVES, 'prefer', 2, 0, [4, 5], []),
        (WITH_HALVES, 'prefer', 5, 0, [1, 3, 4, 5, 6], []),
        (WITH_HALVES, 'prefer', 4, 1, [4, 5, 6, 7], [1]),
        (WITH_HALVES, 'isolate', 1, 1, [4], [6]),
        (APART, 'prefer', 2, 0, [2, 3], []),
        (a_cell(siblings=()), 'prefer', 3, 0, [0, 1, 2], []),
    ],
)  # fmt: skip
def test_cpus(host, policy, vcpus, reserve, cpus, reserved):
    """Cores are filled where the policy allows; the vCPUs go to their CPUs in order."""
    guest = a_pinned(vcpus, first=10, cpu_thread_policy=policy)
    assert pinning.lack(host, guest, reserve) is None
    pins, spare = pinning.pin(host, guest, reserve)
    assert pins == tuple(zip(range(10, 10 + vcpus), cpus, strict=True))
    assert spare == frozenset(reserved)


@pytest.mark.parametrize(
    ('host', 'policy', 'vcpus', 'reserve', 'what', 'amount'),
    [
        (ONE, None, 5, 0, 'free dedicated CPUs', 1),
        (ONE, None, 4, 1, 'free dedicated CPUs', 1),
        (ONE, 'require', 1, 0, 'threads, which are required', None),
        (TWO, 'isolate', 6, 0, 'free whole cores to isolate', 2),
        (TWO, 'isolate', 4, 1, 'free whole cores to isolate', 1),
        (WITH_HALVES, 'require', 6, 0, 'free threads that share cores', 2),
        (WITH_HALVES, 'isolate', 2, 1, 'free whole cores to isolate', 1),
        (APART, 'isolate', 1, 0, 'cores without threads to isolate', None),
        (a_cell(siblings=(frozenset({0, 1}),)), None, 3, 0, 'free dedicated CPUs on known cores', 1),
    ],
)  # fmt: skip
def test_what_is_missing(host, policy, vcpus, reserve, what, amount):
    """Free CPUs, cores or threads, and how many more of them it takes."""
    guest = a_pinned(vcpus, cpu_thread_policy=policy)
    assert pinning.lack(host, guest, reserve) == (what, amount)
