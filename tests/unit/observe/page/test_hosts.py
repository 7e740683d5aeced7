# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.observe.page import hosts
from novasched.observe.page.app import MAX_NODES
from novasched.observe.page.hosts import (
    RESOURCES,
    Amount,
    CellView,
    HostsView,
    ago,
    bars,
    describe_size,
    heatmap,
    name_of,
    natural,
)  # fmt: skip
from novasched.observe.page.query import HostsQuery
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from tests.lab.builders import a_host, a_uuid
from tests.lab.page_sample import Cells, a_page, ask, seen
from tests.lab.topologies import a_cell

FRESH = CellView('a', (), 1.0)
OLD = CellView('a', (), 3700.0)
SILENT = CellView('a', (), None, answers=False)
GONE = CellView('b', (), 90.0, answers=False)
WARNINGS = [
    (HostsView(), True, []),
    (HostsView((FRESH,)), True, []),
    (HostsView(failure='No answer.'), False, ['No answer.']),
    (HostsView((SILENT,)), False, ['Cell a does not answer; its hosts are not shown.']),
    (
        HostsView((FRESH, GONE)),
        True,
        ['Cell b does not answer: its hosts are shown as they were 90 s ago.'],
    ),
    (
        HostsView((OLD,), 'No answer.'),
        True,
        ['No answer.', 'Cell a: its hosts are shown as they were 61 min ago.'],
    ),
    (
        HostsView((FRESH,), stale=True),
        True,
        [
            'The API database does not answer: zones and aggregates are shown as they were.'
        ],
    ),
]


@pytest.mark.parametrize(('hosts_view', 'known', 'warnings'), WARNINGS)
def test_warnings_name_old_and_missing_data(hosts_view, known, warnings):
    """Old and missing data are named, with their age."""
    assert hosts_view.known is known
    assert list(hosts_view.warnings()) == warnings


def test_ages_have_whole_units_and_names_are_sorted_by_number():
    """An age has at least two whole units, or seconds. A node is named if its name
    differs from the host. Numbers in names are sorted by value."""
    spans = [ago(seconds) for seconds in (-1, 0.4, 119, 120, 7200, 200000)]
    assert spans == [
        '0 s ago',
        '0 s ago',
        '119 s ago',
        '2 min ago',
        '2 h ago',
        '2 d ago',
    ]
    assert name_of(a_host('a', nodename='a')) == 'a'
    assert name_of(a_host('a', nodename='a.example.org')) == 'a'
    assert name_of(a_host('a', nodename='b')) == 'a (b)'
    for names in (['a2', 'a10', 'b1'], ['2', '10', 'a'], ['', 'a', 'a1b', 'a1c']):
        assert sorted(names, key=natural) == names


GIB = 1024
CPUS = frozenset(range(4))
TWO = HostTopology((a_cell(0, 2, pinned_cpus=frozenset({0, 1, 2})), a_cell(1, 2)))
HOST = a_host(
    ram=8 * GIB, total_usable_ram_mb=32 * GIB, ram_allocation_ratio=1.5,
    disk_gb=50, total_usable_disk_gb=200,
    vcpus=8, vcpus_used=20, cpu_allocation_ratio=4.0, numa=lambda: TWO,
)  # fmt: skip


def test_amounts_of_a_host_include_the_allocation_ratio():
    """Amounts include the allocation ratio, as in the filters. Pinned CPUs are counted
    by NUMA cell, and a host without cells has none."""
    amounts = {}
    for name, resource in RESOURCES.items():
        amount = resource.of(HOST)
        amounts[name] = (amount, resource.describe(amount))
    assert amounts == {
        'ram': (Amount(24 * GIB, 48 * GIB), '24.0 of 48.0 GiB free'),
        'vcpus': (Amount(20, 32), '12 of 32 free'),
        'disk': (Amount(150 * GIB, 200 * GIB), '50 of 200 GiB free'),
        'pinned': (Amount(3, 8), '5 of 8 free'),
    }
    assert RESOURCES['pinned'].parts(HOST) == (Amount(3, 4), Amount(0, 4))
    assert RESOURCES['pinned'].parts(a_host()) == ()
    assert RESOURCES['pinned'].of(a_host()) == Amount()


def test_levels_of_use_are_tenths_from_zero_to_nine():
    """Levels are tenths from 0 to 9 for all values that hosts report; a resource
    without limit has no level. The parts of a bar are adjacent, and hosts without level
    leave the end empty."""
    levels = {}
    for used_amount in (0, 0.99, 1, 9.99, 10, 25, -5):
        amount = Amount(used_amount, 10)
        levels[used_amount] = (amount.level, amount.percent)
    assert levels == {
        0: (0, 0),
        0.99: (0, 9),
        1: (1, 10),
        9.99: (9, 99),
        10: (9, 100),
        25: (9, 100),
        -5: (0, 0),
    }

    for nothing in (Amount(0, 0), Amount(5, 0), Amount(5, -10)):
        assert (nothing.level, nothing.percent) == (None, 0)
    assert bars({}) == bars({None: 3}) == []
    assert bars({0: 1, 9: 3}) == [(0, 1, 0.0, 25.0), (9, 3, 25.0, 75.0)]
    assert bars({5: 1, None: 1}) == [(5, 1, 0.0, 50.0)]


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
def test_a_free_amount_has_the_unit_of_the_limit(amount, text):
    """The free amount has the unit of the limit."""
    assert describe_size(amount) == text


NUMA = HostTopology(
    (
        HostCell(
            0,
            CPUS,
            4096,
            pcpuset=CPUS,
            cpu_usage=6,
            memory_usage=1024,
            pinned_cpus=frozenset({1}),
            mempages=(Pages(4, 1000, 10), Pages(2048, 8, 2), Pages(1048576, 2)),
        ),
        HostCell(1, frozenset(), 4096),
    )
)
ONE = a_host(
    'one',
    ram=1024,
    total_usable_ram_mb=4096,
    vcpus=4,
    vcpus_used=6,
    cpu_allocation_ratio=4.0,
    disabled=True,
    why='new disks',
    metadata={'availability_zone': 'south'},
    numa=lambda: NUMA,
    hypervisor_type='QEMU',
    hypervisor_version=8002000,
    num_instances=3,
)
METAL = [a_host('metal', nodename=f'node-{i}', uuid=a_uuid(f'n{i}')) for i in range(60)]


def page_of(host):
    page = a_page(Cells({'north': [ONE], 'south': METAL}), timeout=60.0, zone=None)
    return seen(ask(page, f'/hosts/{host}')).text


def test_the_page_of_a_host_shows_resources_and_numa_cells():
    """The page has the resources with their allocation ratios, the service, the node
    and the NUMA cells."""
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


def test_the_page_of_a_host_shows_only_the_first_nodes():
    """The first nodes are shown, with the number of the rest."""
    text = page_of('metal')
    assert text.count('provider') == MAX_NODES
    assert 'Node node-1 ' in text
    assert 'zone (no zone)' in text
    assert 'There are 10 more nodes.' in text


SOUTH = [{'availability_zone': 'south'}]
RACK = Aggregate(7, None, 'rack-7', {})


def used(name, tenths, **fields):
    """A host of 1000 MiB with a number of tenths in use."""
    return a_host(name, ram=1000 - 100 * tenths, total_usable_ram_mb=1000, **fields)


TENTHS = [
    used('h10', 1, num_instances=1),
    used('h9', 9, metadata=SOUTH),
    replace(used('h2', 5), aggregates=(RACK,)),
]
OTHERS = [
    used('down', 9, up=False, disabled=True),
    used('off', 9, disabled=True, why='new disks'),
]
VIEW = HostsView((CellView('cell2', OTHERS, 1.0), CellView('cell1', TENTHS, 1.0)))


def hosts_by_group(heatmap):
    """(Group, hosts) in the order of the page."""
    groups = []
    for group in heatmap.groups:
        groups.append((group.name, [tile.host for tile in group.tiles]))
    return groups


@pytest.mark.parametrize(
    ('wanted', 'groups'),
    [
        ({}, {'cell1': ['h2', 'h9', 'h10'], 'cell2': ['down', 'off']}),
        (
            {'order': 'fullest'},
            {'cell1': ['h9', 'h2', 'h10'], 'cell2': ['down', 'off']},
        ),
        ({'by': 'zone'}, {'nova': ['down', 'h2', 'h10', 'off'], 'south': ['h9']}),
        (
            {'by': 'aggregate'},
            {
                '(no aggregate)': ['down', 'h10', 'off'],
                'aggregate1': ['h9'],
                'rack-7': ['h2'],
            },
        ),
        ({'within': 'cell2'}, {'cell2': ['down', 'off']}),
        ({'within': 'cell3'}, {}),
        ({'state': 'down'}, {'cell2': ['down']}),
        ({'state': 'disabled'}, {'cell2': ['off']}),
        ({'state': 'up'}, {'cell1': ['h2', 'h9', 'h10']}),
        ({'name': 'H1'}, {'cell1': ['h10']}),
    ],
)
def test_hosts_are_grouped_filtered_and_ordered_by_the_query(wanted, groups):
    """Hosts are ordered by use or by name. A host that is down does not count as
    disabled."""
    result = heatmap(VIEW, HostsQuery(**wanted), 'nova')
    assert hosts_by_group(result) == [*groups.items()]


def test_totals_leave_out_hosts_that_are_down_or_disabled():
    """Totals leave out hosts that are down or disabled."""
    result = heatmap(VIEW, HostsQuery(), 'nova')

    assert (result.hosts, result.servers) == (5, 1)
    assert dict(result.states) == {'up': 3, 'down': 1, 'disabled': 1}
    assert result.totals[0][1] == Amount(1500, 3000)
    first, second = result.groups
    assert [bar[:2] for bar in first.bars] == [(1, 1), (5, 1), (9, 1)]
    assert (second.amount, second.bars) == (Amount(), [])


def test_hosts_in_many_aggregates_count_once():
    """A host in two groups counts once in the totals and in the table."""
    twice = replace(TENTHS[0], aggregates=(RACK, replace(RACK, id=8, name='rack-8')))
    hosts_view = HostsView((CellView('cell1', [twice], 1.0),))

    result = heatmap(hosts_view, HostsQuery(by='aggregate'), None)
    assert [group.name for group in result.groups] == ['rack-7', 'rack-8']
    assert result.hosts == 1

    rows = heatmap(hosts_view, HostsQuery(by='aggregate', form='table'), None).rows
    assert rows == [('cell1', twice)]


def test_tables_and_squares_describe_each_host_in_words():
    """A row has the host, its place, and the reason of a disabled host. The title of a
    square repeats its colour and shape in words."""
    page = a_page(Cells({'cell2': OTHERS, 'cell1': TENTHS}), timeout=60.0)

    text = seen(ask(page, '/', 'form=table&order=fullest')).text
    rows = [
        'down down cell2 nova',
        'h9 up cell1 south aggregate1 0',
        'off disabled new disks cell2 nova',
        'h2 up cell1 nova rack-7',
        'h10 up cell1 nova 1',
    ]
    places = list(map(text.index, rows))
    assert places == sorted(places)
    assert '3 hosts · 1.46 of 2.93 GiB free (50 % used)' in seen(ask(page, '/')).text

    tiles = {}
    for group in heatmap(VIEW, HostsQuery(), None).groups:
        for tile in group.tiles:
            tiles[tile.host] = tile
    assert tiles['h2'].text == 'h2: 500 of 1,000 MiB free'
    assert tiles['h2'].levels == (5,)
    assert tiles['down'].text == 'down, down: 100 of 1,000 MiB free'
    assert tiles['off'].state == 'disabled'
    nothing = heatmap(VIEW, HostsQuery(show='pinned'), None).groups[0].tiles[0]
    assert (nothing.levels, nothing.text) == ((None,), 'h2: none')


@pytest.mark.parametrize(
    ('page', 'names'),
    [(1, [('a', ['a0', 'a1']), ('b', ['b0'])]), (2, [('b', ['b1', 'b2'])]), (3, [])],
)
def test_a_group_of_hosts_continues_on_the_next_page(monkeypatch, page, names):
    """A page has a bounded number of squares. A group may continue on the next page."""
    monkeypatch.setattr(hosts, 'TILES_PER_PAGE', 3)
    two = CellView('a', [a_host('a0'), a_host('a1')], 1.0)
    three = CellView('b', [a_host('b0'), a_host('b1'), a_host('b2')], 1.0)
    hosts_view = HostsView((two, three))

    result = heatmap(hosts_view, HostsQuery(page=page), None)

    assert hosts_by_group(result) == names
    assert result.pages == 2
    assert result.hosts == 5
