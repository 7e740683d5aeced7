# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.observe.page import hosts
from novasched.observe.page.hosts import Amount, CellView, HostsView
from novasched.observe.page.query import HostsQuery
from novasched.scheduler.model.host import Aggregate
from tests.lab.builders import a_host
from tests.lab.page_client import ask, seen
from tests.lab.page_sample import Cells, a_page

SOUTH = [{'availability_zone': 'south'}]
RACK = Aggregate(7, None, 'rack-7', {})


def used(name, tenths, **fields):
    """A host of 1000 MiB, so many tenths of which are used."""
    return a_host(name, ram=1000 - 100 * tenths, total_usable_ram_mb=1000, **fields)


HOSTS = [
    used('h10', 1, num_instances=1),
    used('h9', 9, metadata=SOUTH),
    replace(used('h2', 5), aggregates=(RACK,)),
]
OTHERS = [used('down', 9, up=False, disabled=True), used('off', 9, disabled=True, why='new disks')]
VIEW = HostsView((CellView('cell2', OTHERS, 1.0), CellView('cell1', HOSTS, 1.0)))


def shown(**wanted):
    found = hosts.heatmap(VIEW, HostsQuery(**wanted), 'nova')
    return {group.name: [each.host for each in group.tiles] for group in found.groups}


@pytest.mark.parametrize(
    ('wanted', 'groups'),
    [
        ({}, {'cell1': ['h2', 'h9', 'h10'], 'cell2': ['down', 'off']}),
        ({'order': 'fullest'}, {'cell1': ['h9', 'h2', 'h10'], 'cell2': ['down', 'off']}),
        ({'by': 'zone'}, {'nova': ['down', 'h2', 'h10', 'off'], 'south': ['h9']}),
        (
            {'by': 'aggregate'},
            {'(no aggregate)': ['down', 'h10', 'off'], 'aggregate1': ['h9'], 'rack-7': ['h2']},
        ),
        ({'within': 'cell2'}, {'cell2': ['down', 'off']}),
        ({'within': 'cell3'}, {}),
        ({'state': 'down'}, {'cell2': ['down']}),
        ({'state': 'disabled'}, {'cell2': ['off']}),
        ({'state': 'up'}, {'cell1': ['h2', 'h9', 'h10']}),
        ({'name': 'H1'}, {'cell1': ['h10']}),
    ],
)
def test_groups(wanted, groups):
    """Hosts stand by what is asked for, numbers in names by their size; one that is down is
    not also disabled."""
    assert shown(**wanted) == groups
    assert list(shown(**wanted)) == list(groups)


def test_totals():
    """What servers may use counts: not what is on hosts that are down or disabled."""
    found = hosts.heatmap(VIEW, HostsQuery(), 'nova')
    assert (found.hosts, found.servers) == (5, 1)
    assert dict(found.states) == {'up': 3, 'down': 1, 'disabled': 1}
    assert found.totals[0][1] == Amount(1500, 3000)
    first, second = found.groups
    assert [each[:2] for each in first.bars] == [(1, 1), (5, 1), (9, 1)]
    assert (second.amount, second.bars) == (Amount(), [])


def test_hosts_in_many_aggregates_count_once():
    """They are in each group, and once in the totals and in the table."""
    twice = replace(HOSTS[0], aggregates=(RACK, replace(RACK, id=8, name='rack-8')))
    hosts_view = HostsView((CellView('cell1', [twice], 1.0),))
    found = hosts.heatmap(hosts_view, HostsQuery(by='aggregate'), None)
    assert [group.name for group in found.groups] == ['rack-7', 'rack-8']
    assert found.hosts == 1
    rows = hosts.heatmap(hosts_view, HostsQuery(by='aggregate', form='table'), None).rows
    assert rows == [('cell1', twice)]


def test_squares():
    """A square says in words what its colour and shape do."""
    texts = {
        each.host: each
        for group in hosts.heatmap(VIEW, HostsQuery(), None).groups
        for each in group.tiles
    }
    assert texts['h2'].text == 'h2: 500 of 1,000 MiB free'
    assert texts['h2'].levels == (5,)
    assert texts['down'].text == 'down, down: 100 of 1,000 MiB free'
    assert texts['off'].state == 'disabled'
    nothing = hosts.heatmap(VIEW, HostsQuery(show='pinned'), None).groups[0].tiles[0]
    assert (nothing.levels, nothing.text) == ((None,), 'h2: none')


def test_the_table():
    """A row has a host, where it is, and why it is disabled."""
    page = a_page(Cells({'cell2': OTHERS, 'cell1': HOSTS}), timeout=60.0)
    text = seen(ask(page, '/', 'form=table&order=fullest')).text
    places = [text.index(words) for words in (
        'down down cell2 nova', 'h9 up cell1 south aggregate1 0',
        'off disabled new disks cell2 nova', 'h2 up cell1 nova rack-7', 'h10 up cell1 nova 1',
    )]  # fmt: skip
    assert places == sorted(places)
    assert '3 hosts · 1.46 of 2.93 GiB free (50 % used)' in seen(ask(page, '/')).text


@pytest.mark.parametrize(
    ('page', 'names'),
    [(1, [('a', ['a0', 'a1']), ('b', ['b0'])]), (2, [('b', ['b1', 'b2'])]), (3, [])],
)
def test_pages(monkeypatch, page, names):
    """A page has so many tiles and no more; a group may begin on one and end on the next."""
    monkeypatch.setattr(hosts, 'TILES_PER_PAGE', 3)
    hosts_view = HostsView(
        tuple(
            CellView(x, [a_host(f'{x}{i}') for i in range(n)], 1.0) for x, n in (('a', 2), ('b', 3))
        )
    )
    found = hosts.heatmap(hosts_view, HostsQuery(page=page), None)
    assert [(g.name, [each.host for each in g.tiles]) for g in found.groups] == names
    assert found.pages == 2
    assert found.hosts == 5


def test_pages_of_the_table(monkeypatch):
    monkeypatch.setattr(hosts, 'ROWS_PER_PAGE', 2)
    found = [hosts.heatmap(VIEW, HostsQuery(form='table', page=page), None) for page in (1, 2, 3)]
    assert [[host.host for _, host in each.rows] for each in found] == [
        ['down', 'h2'],
        ['h9', 'h10'],
        ['off'],
    ]
    assert found[0].pages == 3


@pytest.mark.parametrize(
    ('spread', 'parts'),
    [
        ({}, []),
        ({None: 3}, []),
        ({0: 1, 9: 3}, [(0, 1, 0.0, 25.0), (9, 3, 25.0, 75.0)]),
        ({5: 1, None: 1}, [(5, 1, 0.0, 50.0)]),
    ],
)
def test_bars(spread, parts):
    """The parts stand beside each other; what has nothing leaves the end empty."""
    assert hosts.bars(spread) == parts


@pytest.mark.parametrize(
    ('names', 'ordered'),
    [
        (['b1', 'a10', 'a2'], ['a2', 'a10', 'b1']),
        (['a', '10', '2'], ['2', '10', 'a']),
        (['a1c', '', 'a1b', 'a'], ['', 'a', 'a1b', 'a1c']),
    ],
)
def test_natural_order(names, ordered):
    assert sorted(names, key=hosts.natural) == ordered
