# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates of small trees, case by case."""

from dataclasses import replace

import pytest

from novasched.placement import tree_search
from novasched.placement.tree_search import SearchTooLong, TreeSearch
from novasched.placement.trees import Group, TraitRule, TreeQuery, TreeShape

ROOT = {'VCPU': 8, 'MEMORY_MB': 4096}


def a_rule(text):
    """A rule from traits such as 'A !B C|D': A is required, B is forbidden, and C or D
    is required."""
    required = []
    forbidden = []
    for word in text.split():
        if word.startswith('!'):
            forbidden.append(word.removeprefix('!'))
        else:
            required.append(frozenset(word.split('|')))
    return TraitRule(frozenset(required), frozenset(forbidden))


def a_group(suffix, traits='', **amounts):
    return Group(suffix, tuple(amounts.items()), a_rule(traits))


def a_tree(*providers):
    """The shape and the free amounts of a tree of triples: parent, traits and free
    amounts."""
    parents = []
    traits = []
    free = []
    for parent, names, amounts in providers:
        parents.append(parent)
        traits.append(frozenset(names.split()))
        free.append(amounts)
    return TreeShape(tuple(parents), tuple(traits)), free


def devices(count, free, traits=''):
    """A root with equal devices."""
    return a_tree((-1, '', ROOT), *[(0, traits, {'VGPU': free})] * count)


def found(query, tree, places=()):
    """The providers of all assignments, by suffix."""
    assignments = []
    for assignment in TreeSearch(query, *tree, places).assignments():
        providers = {}
        for suffix, of_group in assignment.providers.items():
            providers[suffix] = sorted(of_group)
        assignments.append(providers)
    return assignments


EIGHT = [a_group(f'_{number}', VGPU=1) for number in range(8)]
TWO = EIGHT[:2]

# A compute node with a network agent, which has two bridges, and a second agent with
# one bridge.
BANDWIDTH = a_tree(
    (-1, '', ROOT),
    (0, 'NORMAL', {'PACKETS': 1000}),
    (1, 'NORMAL NET1', {'EGRESS': 5000}),
    (1, 'NORMAL NET2', {'EGRESS': 5000}),
    (0, 'DIRECT', {'PACKETS': 1000}),
    (4, 'DIRECT NET1', {'EGRESS': 10000}),
)
PORT = (
    a_group('', VCPU=1),
    a_group('_bandwidth', 'NET1', EGRESS=1000),
    a_group('_packets', PACKETS=100),
)
PORT_SUBTREE = frozenset(['_bandwidth', '_packets'])

CASES = {
    'nothing asked: an empty assignment': (
        TreeQuery(()),
        devices(1, 1),
        (),
        [{}],
    ),
    'a tree of one provider': (
        TreeQuery((a_group('', VCPU=8, MEMORY_MB=4096),)),
        a_tree((-1, '', ROOT)),
        (),
        [{'': [0]}],
    ),
    'too little of one class': (
        TreeQuery((a_group('', VCPU=9, MEMORY_MB=1),)),
        a_tree((-1, '', ROOT)),
        (),
        [],
    ),
    'eight of eight equal devices: one kind': (
        TreeQuery(tuple(EIGHT), isolate=True),
        devices(8, 1),
        (),
        [{f'_{number}': [number + 1] for number in range(8)}],
    ),
    'nine of eight devices': (
        TreeQuery((*EIGHT, a_group('_8', VGPU=1))),
        devices(8, 1),
        (),
        [],
    ),
    'two groups on two devices: together first': (
        TreeQuery(tuple(TWO)),
        devices(2, 2),
        (),
        [{'_0': [1], '_1': [1]}, {'_0': [1], '_1': [2]}],
    ),
    'two groups together exceed a device': (
        TreeQuery((a_group('_0', VGPU=2), a_group('_1', VGPU=2))),
        devices(2, 3),
        (),
        [{'_0': [1], '_1': [2]}],
    ),
    'isolated groups': (
        TreeQuery(tuple(TWO), isolate=True),
        devices(2, 2),
        (),
        [{'_0': [1], '_1': [2]}],
    ),
    'groups with different traits are not exchanged': (
        TreeQuery((a_group('_0', VGPU=1), a_group('_1', '!OLD', VGPU=1))),
        devices(2, 1),
        (None, 0, 1),
        [{'_0': [1], '_1': [2]}, {'_0': [2], '_1': [1]}],
    ),
    'isolation leaves the unsuffixed group alone': (
        TreeQuery((a_group('', VGPU=1), a_group('_0', VGPU=1)), isolate=True),
        devices(1, 2),
        (),
        [{'': [1], '_0': [1]}],
    ),
    'two cells: a kind for each cell': (
        TreeQuery((EIGHT[0],)),
        devices(4, 1),
        (None, 0, 0, 1, 1),
        [{'_0': [1]}, {'_0': [3]}],
    ),
    'the least sufficient device first': (
        TreeQuery((EIGHT[0],)),
        a_tree((-1, '', ROOT), (0, '', {'VGPU': 4}), (0, '', {'VGPU': 1})),
        (),
        [{'_0': [2]}, {'_0': [1]}],
    ),
    'unsuffixed traits are spread over providers': (
        TreeQuery((a_group('', 'ROOT DEVICE', VCPU=1, VGPU=1),)),
        a_tree((-1, 'ROOT', ROOT), (0, '', {'VGPU': 1}), (0, 'DEVICE', {'VGPU': 1})),
        (),
        [{'': [0, 2]}],
    ),
    'an unsuffixed trait on a provider without a part': (
        TreeQuery((a_group('', 'ROOT', VGPU=1),)),
        a_tree((-1, 'ROOT', ROOT), (0, '', {'VGPU': 1})),
        (),
        [],
    ),
    'an unsuffixed trait forbidden on one provider': (
        TreeQuery((a_group('', '!OLD', VCPU=1, VGPU=1),)),
        a_tree((-1, 'OLD', ROOT), (0, '', {'VCPU': 1}), (0, '', {'VGPU': 1})),
        (),
        [{'': [1, 2]}],
    ),
    'a suffixed group needs all traits on one provider': (
        TreeQuery((a_group('_0', 'A B|C', VGPU=1),)),
        a_tree(
            (-1, '', ROOT),
            (0, 'A', {'VGPU': 1}),
            (0, 'B', {'VGPU': 1}),
            (0, 'A C', {'VGPU': 1}),
        ),
        (),
        [{'_0': [3]}],
    ),
    'a trait required of the root': (
        TreeQuery((EIGHT[0],), root=a_rule('A')),
        devices(1, 1, 'A'),
        (),
        [],
    ),
    'a port without same_subtree: any agent': (
        TreeQuery(PORT),
        BANDWIDTH,
        (),
        [
            {'': [0], '_bandwidth': [2], '_packets': [1]},
            {'': [0], '_bandwidth': [2], '_packets': [4]},
            {'': [0], '_bandwidth': [5], '_packets': [1]},
            {'': [0], '_bandwidth': [5], '_packets': [4]},
        ],
    ),
    'a port with same_subtree: bridge and agent belong together': (
        TreeQuery(PORT, same_subtrees=(PORT_SUBTREE,)),
        BANDWIDTH,
        (),
        [
            {'': [0], '_bandwidth': [2], '_packets': [1]},
            {'': [0], '_bandwidth': [5], '_packets': [4]},
        ],
    ),
    'siblings are no subtree': (
        TreeQuery(tuple(TWO), same_subtrees=(frozenset(['_0', '_1']),)),
        devices(2, 1),
        (),
        [],
    ),
    'a group without resources joins siblings': (
        TreeQuery(
            (a_group('_agent', 'NORMAL !NET1 !NET2'), *PORT[:2]),
            same_subtrees=(frozenset(['_agent', '_bandwidth']),),
        ),
        BANDWIDTH,
        (),
        [{'': [0], '_agent': [1], '_bandwidth': [2]}],
    ),
}


@pytest.mark.parametrize(
    ('query', 'tree', 'places', 'expected'), CASES.values(), ids=CASES
)
def test_the_search_finds_the_assignments_of_a_tree(query, tree, places, expected):
    """The search finds the assignments of a tree."""

    def by_suffix(providers):
        return sorted(providers.items())

    assignments = found(query, tree, places)
    assert sorted(assignments, key=by_suffix) == sorted(expected, key=by_suffix)
    assert assignments[:1] == expected[:1]
    assert TreeSearch(query, *tree, places).fits() == bool(expected)


def test_amounts_of_groups_on_a_provider_add_up():
    """Amounts of several groups on a provider add up. A group without resources has a
    provider, but no amounts."""
    query = TreeQuery(
        (a_group('', VCPU=1), a_group('_0', VCPU=2, MEMORY_MB=512), a_group('_1')),
        same_subtrees=(frozenset(['_0', '_1']),),
    )
    search = TreeSearch(query, *a_tree((-1, '', ROOT)))

    (assignment,) = search.assignments()
    assert assignment.amounts == {0: {'VCPU': 3, 'MEMORY_MB': 512}}
    assert assignment.providers == {'': [0], '_0': [0], '_1': [0]}


def test_the_first_assignment_of_many_groups_needs_few_steps():
    """The first assignment of eight groups to eight devices needs few steps."""
    search = TreeSearch(TreeQuery(tuple(EIGHT)), *devices(8, 8), range(9))

    assignment = next(search.assignments())
    assert len(assignment.amounts) == 1


def test_groups_of_different_pci_requests_are_not_interchangeable():
    """Groups with equal amounts are not interchangeable if they are for different PCI
    requests: a filter may accept one order of the devices only."""
    groups = (a_group('a-0', VGPU=1), a_group('b-0', VGPU=1))
    tree = devices(2, 1)
    assert len(found(TreeQuery(groups), tree, range(3))) == 1

    of_requests = tuple(replace(group, kind=group.suffix[0]) for group in groups)
    orders = []
    for providers in found(TreeQuery(of_requests), tree, range(3)):
        orders.append((providers['a-0'], providers['b-0']))
    assert sorted(orders) == [([1], [2]), ([2], [1])]


def test_an_unfinished_search_does_not_change_the_next_search():
    """A search that was left in the middle does not change the next search."""
    query = TreeQuery((a_group('_0', VGPU=1), a_group('_1', VGPU=1)))
    search = TreeSearch(query, *devices(2, 2))
    expected = list(search.assignments())
    assert len(expected) == 2

    assert search.fits()
    assert next(search.assignments())
    assert list(search.assignments()) == expected


def test_a_shortage_of_devices_is_found_without_a_search(monkeypatch):
    """Too little of a class in all, or too few devices, needs no search."""
    monkeypatch.setattr(tree_search, 'MAX_STEPS', 0)
    groups = tuple(a_group(f'_{n}', VGPU=1) for n in range(13))
    assert not TreeSearch(TreeQuery(groups), *devices(12, 1)).fits()
    isolated = TreeQuery(groups, isolate=True)
    assert not TreeSearch(isolated, *devices(12, 2)).fits()


def test_a_search_with_too_many_steps_raises_search_too_long(monkeypatch):
    """A search ends with an error after the permitted number of steps."""
    # Nine different groups for eight different devices. The devices have enough in sum,
    # but each has too little for two groups.
    groups = [a_group(f'_{n}', f'!OTHER{n}', VGPU=2) for n in range(9)]
    query = TreeQuery(tuple(groups))
    tree = devices(8, 3)

    monkeypatch.setattr(tree_search, 'MAX_STEPS', 1000)
    with pytest.raises(SearchTooLong):
        TreeSearch(query, *tree, range(9)).fits()

    # Without the places, all devices are interchangeable, and few steps suffice.
    assert not TreeSearch(query, *tree).fits()
    assert list(TreeSearch(query, *tree, range(9)).assignments()) == []
