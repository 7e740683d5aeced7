# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.numa import HostCell, HostTopology
from novasched.page.resources import RESOURCES, Amount, sized, total
from tests.builders import a_host

GIB = 1024
CPUS = frozenset(range(4))
TWO = HostTopology(
    (
        HostCell(0, frozenset(), 1024, pcpuset=CPUS, pinned_cpus=frozenset({0, 1, 2})),
        HostCell(1, frozenset(), 1024, pcpuset=CPUS),
    )
)
HOST = a_host(
    ram=8 * GIB, total_usable_ram_mb=32 * GIB, ram_allocation_ratio=1.5,
    disk_gb=50, total_usable_disk_gb=200,
    vcpus=8, vcpus_used=20, cpu_allocation_ratio=4.0, numa=lambda: TWO,
)  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'amount', 'told'),
    [
        ('ram', Amount(24 * GIB, 48 * GIB), '24.0 of 48.0 GiB free'),
        ('vcpus', Amount(20, 32), '12 of 32 free'),
        ('disk', Amount(150 * GIB, 200 * GIB), '50 of 200 GiB free'),
        ('pinned', Amount(3, 8), '5 of 8 free'),
    ],
)
def test_what_a_host_has(name, amount, told):
    """Overcommitment counts, as for the filters."""
    assert RESOURCES[name].of(HOST) == amount
    assert RESOURCES[name].told(amount) == told


def test_numa_cells():
    """Pinned CPUs are counted cell by cell; who reports no cells has none."""
    assert RESOURCES['pinned'].parts(HOST) == (Amount(3, 4), Amount(0, 4))
    assert RESOURCES['pinned'].parts(a_host()) == ()
    assert RESOURCES['pinned'].of(a_host()) == Amount()


@pytest.mark.parametrize(
    ('used', 'limit', 'level', 'percent'),
    [
        (0, 10, 0, 0),
        (0.99, 10, 0, 9),
        (1, 10, 1, 10),
        (9.99, 10, 9, 99),
        (10, 10, 9, 100),
        (25, 10, 9, 100),
        (-5, 10, 0, 0),
        (0, 0, None, 0),
        (5, 0, None, 0),
        (5, -10, None, 0),
    ],
)
def test_levels(used, limit, level, percent):
    """Tenths from 0 to 9, whatever hosts report; nothing has none."""
    amount = Amount(used, limit)
    assert (amount.level, amount.percent) == (level, percent)


@pytest.mark.parametrize(
    ('amount', 'text'),
    [
        (Amount(), 'none'),
        (Amount(12, 512), '500 of 512 MiB free'),
        (Amount(0, 1536), '1.50 of 1.50 GiB free'),
        (Amount(40 * GIB, 32 * GIB), '-8.0 of 32.0 GiB free'),
        (Amount(GIB**2, 3 * GIB**2), '2.00 of 3.00 TiB free'),
        (Amount(0, 5000 * GIB**3), '5,000 of 5,000 PiB free'),
    ],
)
def test_sizes(amount, text):
    """What is free, in the unit of what there is."""
    assert sized(amount) == text


def test_totals():
    """Amounts add up."""
    assert total([Amount(1, 2), Amount(3, 4)]) == Amount(4, 6)
    assert total([]) == Amount()
