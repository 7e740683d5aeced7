# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.model.host import Aggregate
from novasched.page import heat
from novasched.page.resources import Amount
from novasched.page.sight import Cell, Sight
from novasched.page.wanted import Hosts
from tests.builders import a_host

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
SIGHT = Sight((Cell('cell2', OTHERS, 1.0), Cell('cell1', HOSTS, 1.0)))


def shown(**wanted):
    """The names of hosts by group."""
    found = heat.view(SIGHT, Hosts(**wanted), 'nova')
    return {group.name: [each.host for each in group.squares] for group in found.groups}


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
    found = heat.view(SIGHT, Hosts(), 'nova')
    assert (found.hosts, found.servers) == (5, 1)
    assert dict(found.states) == {'up': 3, 'down': 1, 'disabled': 1}
    assert found.totals[0].amount == Amount(1500, 3000)
    first, second = found.groups
    assert first.told == '1.46 of 2.93 GiB free'
    assert dict(first.spread) == {1: 1, 9: 1, 5: 1}
    assert (second.amount, dict(second.spread)) == (Amount(), {})


def test_hosts_in_many_aggregates_count_once():
    """They are in each group, and once in the totals and in the table."""
    twice = replace(HOSTS[0], aggregates=(RACK, replace(RACK, id=8, name='rack-8')))
    sight = Sight((Cell('cell1', [twice], 1.0),))
    found = heat.view(sight, Hosts(by='aggregate'), None)
    assert [group.name for group in found.groups] == ['rack-7', 'rack-8']
    assert found.hosts == 1
    (row,) = heat.view(sight, Hosts(by='aggregate', form='table'), None).rows
    assert (row.aggregates, row.zone) == ('rack-7, rack-8', '(no zone)')


def test_squares():
    """A square says in words what its colour and shape do."""
    texts = {
        each.host: each
        for group in heat.view(SIGHT, Hosts(), None).groups
        for each in group.squares
    }
    assert texts['h2'].text == 'h2: 500 of 1,000 MiB free'
    assert texts['h2'].levels == (5,)
    assert texts['down'].text == 'down, down: 100 of 1,000 MiB free'
    assert texts['off'].state == 'disabled'
    nothing = heat.view(SIGHT, Hosts(show='pinned'), None).groups[0].squares[0]
    assert (nothing.levels, nothing.text) == ((None,), 'h2: none')


def test_the_table():
    """A row has all resources, and why a host is disabled."""
    rows = heat.view(SIGHT, Hosts(form='table', order='fullest'), 'nova').rows
    assert [row.host for row in rows] == ['down', 'h9', 'off', 'h2', 'h10']
    off = rows[2]
    assert (off.state, off.why, off.cell, off.zone) == ('disabled', 'new disks', 'cell2', 'nova')
    assert [text for _, text in off.amounts] == [
        '100 of 1,000 MiB',
        '8 of 8',
        '100 of 100 GiB',
        'none',
    ]


@pytest.mark.parametrize(
    ('page', 'names'),
    [
        (1, [('a', ['a0', 'a1']), ('b', ['b0'])]),
        (2, [('b', ['b1', 'b2'])]),
        (3, []),
    ],
)
def test_pages(monkeypatch, page, names):
    """A page has so many squares and no more; a group may begin on one and end on the next."""
    monkeypatch.setattr(heat, 'SQUARES', 3)
    sight = Sight(
        tuple(Cell(x, [a_host(f'{x}{i}') for i in range(n)], 1.0) for x, n in (('a', 2), ('b', 3)))
    )
    found = heat.view(sight, Hosts(page=page), None)
    assert [(g.name, [each.host for each in g.squares]) for g in found.groups] == names
    assert found.pages == 2
    assert found.hosts == 5


def test_pages_of_the_table(monkeypatch):
    """So many rows, whatever the groups."""
    monkeypatch.setattr(heat, 'ROWS', 2)
    found = [heat.view(SIGHT, Hosts(form='table', page=page), None) for page in (1, 2, 3)]
    assert [[row.host for row in each.rows] for each in found] == [
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
    assert heat.bars(spread) == parts


@pytest.mark.parametrize(
    ('names', 'ordered'),
    [
        (['b1', 'a10', 'a2'], ['a2', 'a10', 'b1']),
        (['a', '10', '2'], ['2', '10', 'a']),
        (['a1c', '', 'a1b', 'a'], ['', 'a', 'a1b', 'a1c']),
    ],
)
def test_natural_order(names, ordered):
    """Numbers stand by their size."""
    assert sorted(names, key=heat.natural) == ordered
