# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates of trees, against an enumeration of all assignments.

The twin tries every provider for every part of a query and checks the rules one by one.
An assignment of the twin is a dictionary: the position of a provider for each part. The
part of a suffixed group is the pair of suffix and '', and the part of a resource class
of the unsuffixed group is the pair of '' and class.
"""

import itertools
from collections import Counter

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from novasched.placement import tree_search
from novasched.placement.tree_search import TreeSearch
from novasched.placement.trees import Group, TraitRule, TreeQuery, TreeShape
from tests.lab.provider_trees import equal_groups

HOST_CLASSES = ['VCPU', 'MEMORY_MB']
DEVICE_CLASSES = ['VGPU', 'CUSTOM_VF']
TRAITS = ['CUSTOM_A', 'CUSTOM_B', 'CUSTOM_C']

ROOT_RULES = [TraitRule()] * 6 + [
    TraitRule(frozenset([frozenset(TRAITS[:1])])),
    TraitRule(frozenset([frozenset(TRAITS[1:])])),
    TraitRule(forbidden=frozenset(TRAITS[:1])),
]

trait_sets = st.frozensets(st.sampled_from(TRAITS), max_size=2)


@st.composite
def trait_rules(draw):
    """Rules with required, any-of and forbidden traits; mostly no rule."""
    kind = draw(
        st.sampled_from(['none'] * 8 + ['required', 'any of', 'two', 'forbidden'])
    )
    if kind == 'none':
        return TraitRule()

    traits = draw(st.permutations(TRAITS))
    if kind == 'required':
        return TraitRule(frozenset([frozenset(traits[:1])]))
    if kind == 'any of':
        return TraitRule(frozenset([frozenset(traits[:2])]))
    if kind == 'two':
        return TraitRule(frozenset([frozenset(traits[:1]), frozenset(traits[1:])]))
    return TraitRule(forbidden=frozenset(traits[:1]))


def amounts_of(classes, amounts):
    return st.dictionaries(
        st.sampled_from(classes), st.sampled_from(amounts), min_size=1, max_size=2
    )


@st.composite
def trees(draw):
    """The shape and the free amounts of a tree. Providers below the root are copies of
    a few models, so that equal leaves are common."""
    devices = DEVICE_CLASSES[: draw(st.integers(1, 2))]
    # Models often differ in nothing but the free amounts.
    traits_of_models = st.sampled_from([draw(trait_sets), draw(trait_sets)])
    models = draw(
        st.lists(
            st.tuples(traits_of_models, amounts_of(devices, [4, 4, 3, 3, 2, 1, 0])),
            min_size=1,
            max_size=3,
        )
    )
    on_root = st.sampled_from([4, 4, 3, 3, 2, 1, 0])
    parents = [-1]
    traits = [draw(trait_sets)]
    free = [draw(st.fixed_dictionaries(dict.fromkeys(HOST_CLASSES, on_root)))]

    for position in range(1, draw(st.sampled_from([5, 6, 7, 4, 3, 2, 1]))):
        parents.append(draw(st.integers(0, min(position - 1, 2))))
        model_traits, model_amounts = draw(st.sampled_from(models))
        traits.append(model_traits)
        free.append(model_amounts)
    return TreeShape(tuple(parents), tuple(traits)), free


@st.composite
def queries(draw):
    """Queries with at most six parts. Suffixed groups are copies of a few models, so
    that equal groups are common."""
    groups = []
    if draw(st.booleans()):
        classes = [*HOST_CLASSES, *DEVICE_CLASSES[:1]]
        amounts = draw(amounts_of(classes, [1, 1, 2]))
        groups.append(Group('', tuple(amounts.items()), draw(trait_rules())))

    classes = [DEVICE_CLASSES[0]] * 4 + [DEVICE_CLASSES[1], HOST_CLASSES[0]]
    amounts = st.lists(st.sampled_from(classes), min_size=1, max_size=2, unique=True)
    if draw(st.booleans()):
        amounts = st.just(classes[:1])
    models = draw(
        st.lists(
            st.tuples(amounts, st.sampled_from([1, 1, 2]), trait_rules()),
            min_size=1,
            max_size=2,
        )
    )
    suffixes = []
    for number in range(draw(st.sampled_from([2, 3, 4, 1, 0]))):
        suffix = f'_{number}'
        suffixes.append(suffix)
        names, amount, traits = draw(st.sampled_from(models))
        groups.append(Group(suffix, tuple((name, amount) for name in names), traits))

    same_subtrees = []
    if suffixes and draw(st.booleans()):
        subtree = st.frozensets(st.sampled_from(suffixes), min_size=1, max_size=3)
        same_subtrees = draw(st.lists(subtree, min_size=1, max_size=2))
    # Placement demands that a group without resources is part of a same_subtree set.
    for number, group in enumerate(groups):
        is_in_subtree = any(group.suffix in subtree for subtree in same_subtrees)
        if is_in_subtree and draw(st.integers(0, 2)) == 0:
            groups[number] = Group(group.suffix, (), group.traits)

    return TreeQuery(
        groups=tuple(draw(st.permutations(groups))),
        isolate=draw(st.booleans()),
        same_subtrees=tuple(same_subtrees),
        root=draw(st.sampled_from(ROOT_RULES)),
    )


# The twin.


def twin_assignments(query, shape, free):
    """Every assignment that the rules allow."""
    if not accepts(query.root, shape.traits[0]):
        return []

    parts = []
    providers = []
    for group in query.groups:
        for part, amounts in parts_of(group):
            parts.append(part)
            providers.append(
                [
                    provider
                    for provider in range(len(shape.parents))
                    if can_serve(group, amounts, shape.traits[provider], free[provider])
                ]
            )

    assignments = []
    for chosen in itertools.product(*providers):
        assignment = dict(zip(parts, chosen, strict=True))
        if (
            has_capacity(query, assignment, free)
            and has_traits_together(query, assignment, shape)
            and is_isolated(query, assignment)
            and is_in_same_subtrees(query, assignment, shape)
        ):
            assignments.append(assignment)
    return assignments


def parts_of(group):
    """The parts of a group, with the amounts of each part."""
    if group.suffix:
        return [((group.suffix, ''), group.amounts)]

    parts = []
    for name, amount in group.amounts:
        parts.append((('', name), [(name, amount)]))
    return parts


def accepts(rule, traits):
    """True if a provider has one trait of each required set and no forbidden trait."""
    return has_required(rule, traits) and not rule.forbidden & traits


def has_required(rule, traits):
    return all(any_of & traits for any_of in rule.required)


def can_serve(group, amounts, traits, free):
    """True if a provider alone can serve a part."""
    for name, amount in amounts:
        if free.get(name, 0) < amount:
            return False

    if group.suffix:
        return accepts(group.traits, traits)
    return not group.traits.forbidden & traits


def amounts_by_provider(query, assignment):
    """The amounts that all parts together take, by provider and resource class."""
    taken = {}
    for group in query.groups:
        for part, amounts in parts_of(group):
            for name, amount in amounts:
                of_provider = taken.setdefault(assignment[part], Counter())
                of_provider[name] += amount
    return taken


def has_capacity(query, assignment, free):
    """True if no provider has to give more than is free."""
    for provider, amounts in amounts_by_provider(query, assignment).items():
        for name, amount in amounts.items():
            if amount > free[provider].get(name, 0):
                return False
    return True


def has_traits_together(query, assignment, shape):
    """True if the providers of the unsuffixed group have its required traits."""
    for group in query.groups:
        if group.suffix:
            continue
        traits = set()
        for (suffix, _), provider in assignment.items():
            if not suffix:
                traits |= shape.traits[provider]
        if not has_required(group.traits, traits):
            return False
    return True


def is_isolated(query, assignment):
    """True if no two suffixed groups share a provider, or may share one."""
    providers = []
    for (suffix, _), provider in assignment.items():
        if suffix:
            providers.append(provider)
    return not query.isolate or len(set(providers)) == len(providers)


def is_in_same_subtrees(query, assignment, shape):
    """True if in each set, one provider is an ancestor of all providers, or equal."""
    for subtree in query.same_subtrees:
        providers = {assignment[suffix, ''] for suffix in subtree}
        tops = []
        for top in providers:
            if all(is_below(provider, top, shape) for provider in providers):
                tops.append(top)
        if not tops:
            return False
    return True


def is_below(provider, top, shape):
    while provider not in (top, -1):
        provider = shape.parents[provider]
    return provider == top


# Comparisons.


def with_parts(query, found):
    """An assignment of the search in the form of the twin. The amounts tell which class
    of the unsuffixed group a provider serves."""
    assignment = {}
    remaining = {name: Counter(amounts) for name, amounts in found.amounts.items()}
    for group in query.groups:
        if group.suffix:
            (provider,) = found.providers[group.suffix]
            assignment[group.suffix, ''] = provider
            for name, amount in group.amounts:
                remaining[provider][name] -= amount

    for group in query.groups:
        if not group.suffix:
            providers = []
            for name, amount in group.amounts:
                (provider,) = [p for p in remaining if remaining[p][name] == amount]
                assignment['', name] = provider
                providers.append(provider)
            assert sorted(set(providers)) == sorted(found.providers[''])
    return assignment


def searched(query, shape, free, places=()):
    """The assignments of the search in the form of the twin, with correct amounts."""
    assignments = []
    for found in TreeSearch(query, shape, free, places).assignments():
        assignment = with_parts(query, found)
        assert found.amounts == amounts_by_provider(query, assignment)
        assignments.append(assignment)
    return assignments


def frozen(assignments):
    return {frozenset(assignment.items()) for assignment in assignments}


def equal_leaves(shape, free):
    """Lists of leaves with equal parents, traits and free amounts."""
    leaves = {}
    for provider, parent in enumerate(shape.parents):
        if provider not in shape.parents:
            key = (
                parent,
                shape.traits[provider],
                tuple(sorted(free[provider].items())),
            )
            leaves.setdefault(key, []).append(provider)
    return list(leaves.values())


def with_groups_exchanged(query, assignment):
    """The assignments with the providers of equal groups in every order."""
    orders = [itertools.permutations(suffixes) for suffixes in equal_groups(query)]
    for order in itertools.product(*orders):
        exchanged = dict(assignment)
        for suffixes, others in zip(equal_groups(query), order, strict=True):
            for suffix, other in zip(suffixes, others, strict=True):
                exchanged[suffix, ''] = assignment[other, '']
        yield exchanged


def with_leaves_numbered(assignment, leaves):
    """An assignment in which equal leaves have the numbers of their first use, in the
    order of parts."""
    names = {}
    numbered = []
    for part, provider in sorted(assignment.items()):
        for number, equals in enumerate(leaves):
            if provider in equals and provider not in names:
                used = [name for name in names.values() if name[0] == number]
                names[provider] = (number, len(used))
        numbered.append((part, names.get(provider, (-1, provider))))
    return tuple(numbered)


def kind_of(query, assignment, leaves):
    """The representative of all assignments that differ only in the order of equal
    groups and in the choice among equal leaves."""
    exchanged = with_groups_exchanged(query, assignment)
    return min(with_leaves_numbered(other, leaves) for other in exchanged)


# Properties.


@settings(max_examples=150)
@given(queries(), trees())
def test_a_tree_fits_where_the_enumeration_finds_an_assignment(query, tree):
    """A tree fits if and only if the twin has an assignment."""
    expected = twin_assignments(query, *tree)
    event(f'fits: {bool(expected)}')

    assert TreeSearch(query, *tree).fits() == bool(expected)


@settings(max_examples=150)
@given(queries(), trees())
def test_assignments_obey_the_rules(query, tree):
    """Every assignment of the search is an assignment of the twin."""
    expected = frozen(twin_assignments(query, *tree))

    assert frozen(searched(query, *tree)) <= expected


@settings(max_examples=150)
@given(queries(), trees())
def test_the_search_finds_all_assignments_of_distinct_providers(query, tree):
    """If all providers are in different places, the assignments and their exchanges of
    equal groups are all assignments of the twin, each once."""
    shape, free = tree
    expected = twin_assignments(query, shape, free)

    exchanged = []
    for assignment in searched(query, shape, free, range(len(free))):
        orders = frozen(with_groups_exchanged(query, assignment))
        exchanged.extend(orders)
    assert set(exchanged) == frozen(expected)
    assert len(exchanged) == len(set(exchanged))


@settings(max_examples=150)
@given(queries(), trees())
def test_the_search_finds_every_kind_of_assignment(query, tree):
    """Every assignment of the twin has an assignment of the search that differs only in
    the order of equal groups and in the choice among equal leaves. No two assignments
    of the search differ only in the choice among equal leaves. If groups are equal, a
    kind may be found twice: either group may share its leaf with a third group."""
    shape, free = tree
    leaves = equal_leaves(shape, free)
    expected = set()
    for assignment in twin_assignments(query, shape, free):
        expected.add(kind_of(query, assignment, leaves))

    kinds = set()
    choices = Counter()
    for assignment in searched(query, shape, free):
        kinds.add(kind_of(query, assignment, leaves))
        choices[with_leaves_numbered(assignment, leaves)] += 1
    assert kinds == expected
    assert set(choices.values()) <= {1}


@settings(max_examples=150)
@given(queries(), trees(), st.integers(1, 30))
def test_a_tree_that_fits_has_an_assignment_with_any_step_limit(query, tree, max_steps):
    """With any limit of steps, a search that tells that a tree fits finds an
    assignment, also where the providers are in different places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_search, 'MAX_STEPS', max_steps)
        try:
            fits = TreeSearch(query, *tree).fits()
        except tree_search.SearchTooLong:
            fits = False
        if fits:
            places = range(len(tree[1]))
            assert next(TreeSearch(query, *tree, places).assignments(), None)


@settings(max_examples=150)
@given(queries(), trees())
def test_the_first_assignment_has_the_fewest_providers(query, tree):
    """No assignment of the twin has fewer providers than the first assignment, and the
    numbers of providers of the assignments never fall."""
    expected = []
    for assignment in twin_assignments(query, *tree):
        expected.append(len(amounts_by_provider(query, assignment)))

    counts = [len(found.amounts) for found in TreeSearch(query, *tree).assignments()]
    assert counts[:1] == sorted(expected)[:1]
    assert counts == sorted(counts)
