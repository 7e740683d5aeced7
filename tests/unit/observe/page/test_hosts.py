# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.observe.page.app import MAX_NODES
from novasched.observe.page.hosts import (
    RESOURCES,
    Amount,
    CellView,
    HostsView,
    ago,
    describe_size,
    name_of,
    state,
    total,
)
from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from tests.lab.builders import a_host, a_uuid
from tests.lab.page_client import ask, seen
from tests.lab.page_sample import Cells, a_page

FRESH, OLD = CellView('a', (), 1.0), CellView('a', (), 3700.0)
SILENT, GONE = CellView('a', (), None, answers=False), CellView('b', (), 90.0, answers=False)
WARNINGS = [
    (HostsView(), True, []),
    (HostsView((FRESH,)), True, []),
    (HostsView(failure='No answer.'), False, ['No answer.']),
    (HostsView((SILENT,)), False, ['Cell a does not answer; its hosts are not shown.']),
    (HostsView((FRESH, GONE)), True, ['Cell b does not answer: its hosts are shown as they were 90 s ago.']),
    (HostsView((OLD,), 'No answer.'), True, ['No answer.', 'Cell a: its hosts are shown as they were 61 min ago.']),
    (HostsView((FRESH,), stale=True), True, ['The API database does not answer: zones and aggregates are shown as they were.']),
]  # fmt: skip


@pytest.mark.parametrize(('hosts_view', 'known', 'warnings'), WARNINGS)
def test_warnings(hosts_view, known, warnings):
    """What is old or missing is told, with its age."""
    assert hosts_view.known is known
    assert list(hosts_view.warnings()) == warnings


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [
        (-1, '0 s ago'),
        (0.4, '0 s ago'),
        (119, '119 s ago'),
        (120, '2 min ago'),
        (7200, '2 h ago'),
        (200000, '2 d ago'),
    ],
)
def test_ages(seconds, text):
    """Two whole units at the least, or seconds."""
    assert ago(seconds) == text


@pytest.mark.parametrize(
    ('up', 'disabled', 'expected'),
    [(True, False, 'up'), (True, True, 'disabled'), (False, False, 'down'), (False, True, 'down')],
)
def test_states(up, disabled, expected):
    """Of one that is down nothing else counts."""
    assert state(a_host(up=up, disabled=disabled)) == expected


@pytest.mark.parametrize(('node', 'text'), [('a', 'a'), ('a.example.org', 'a'), ('b', 'a (b)')])
def test_names(node, text):
    """A node is named where it is not plain which it is."""
    assert name_of(a_host('a', nodename=node)) == text


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
    assert RESOURCES[name].describe(amount) == told


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
    assert describe_size(amount) == text


def test_totals():
    assert total([Amount(1, 2), Amount(3, 4)]) == Amount(4, 6)
    assert total([]) == Amount()


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


def page_of(host):
    page = a_page(Cells({'north': [ONE], 'south': METAL}), timeout=60.0, zone=None)
    return seen(ask(page, f'/hosts/{host}')).text


def test_the_page_of_a_host():
    """The resources with their allocation ratios, the service, the node and its NUMA cells."""
    text = page_of('one')
    for words in (
        'service up, disabled: new disks cell north zone south aggregates aggregate1',
        'Memory 75 % used 1.00 of 4.00 GiB free · allocation ratio 1',
        'vCPUs 37 % used 10 of 16 free · allocation ratio 4',
        'Disk 0 % used 100 of 100 GiB free · allocation ratio 1',
        'Pinned CPUs 25 % used 3 of 4 free',
        '3 servers · 0 I/O operations · 0 failed builds · QEMU 8002000 · node',
        '0 3 of 4 free 6 used on 4 3.00 of 4.00 GiB free '
        '990 of 1,000 x 4 KiB, 6 of 8 x 2 MiB, 2 of 2 x 1 GiB',
        '1 none none 4.00 of 4.00 GiB free',
    ):
        assert words in text


def test_many_nodes():
    """Some of them are shown, and how many are not."""
    text = page_of('metal')
    assert text.count('provider') == MAX_NODES
    assert 'Node node-1 ' in text
    assert 'zone (no zone)' in text
    assert 'There are 10 more nodes.' in text
