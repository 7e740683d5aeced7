# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates of trees, against the candidates of the real Placement."""

import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from novasched.placement.trees import Group, TraitRule, TreeQuery
from tests.parity.comparison import FIGURES, SEED, TIMES, Figures
from tests.parity.dice import Dice
from tests.parity.gabbi_files import FOLDER, GabbiFile
from tests.parity.placement_in_process import (
    ADMINISTRATOR,
    PlacementInProcess,
    placement_with,
)
from tests.parity.tree_queries import (
    Candidate,
    candidates_of_answer,
    is_older,
    parse,
    query_string,
    trees_of_answer,
)

TABLES = yaml.safe_load(Path(__file__).with_name('trees.yaml').read_text())
OUT_OF_SCOPE = TABLES['out of scope']
DIFFERENT = TABLES['different']
HIDDEN_BY_MIN_UNIT = TABLES['hidden by min_unit']

GABBI_FILES = [
    *sorted(path.name for path in FOLDER.glob('allocation-candidates*.yaml')),
    'granular-same-subtree.yaml',
    'same-subtree-deep.yaml',
]

TREES_IN_SUMMARIES = '1.29'
MAPPINGS = '1.34'
"""Microversions."""

SHARING = 'MISC_SHARES_VIA_AGGREGATE'


# Placement's own queries.


@pytest.mark.parametrize('name', GABBI_FILES)
def test_queries_of_placement_tests_find_the_same_candidates(name):
    """Placement and the search find the same candidates for the queries in Placement's
    own tests. trees.yaml lists the exceptions."""
    file = GabbiFile(name)
    compared = []
    out_of_scope = {}
    different = []
    hidden = []

    with placement_with(file.fixture) as placement:
        for step in file.steps:
            url = file.resolve(step.url)
            headers = file.resolve(step.headers)
            answer = placement.call(step.method, url, file.resolve(step.data), headers)
            assert answer.status == step.status, f'{step.name}: {answer}'
            file.keep_answer(step, answer.body)
            if not step.is_candidates_query:
                continue

            if reason := out_of_scope_reason(placement, step, url):
                out_of_scope.setdefault(reason, []).append(step.name)
                continue
            compared.append(step.name)
            comparison = compare(placement, step, url, answer.body)
            if comparison.ours != comparison.theirs:
                different.append(step.name)
            if comparison.hidden_hosts:
                hidden.append(step.name)

    FIGURES.append(figures_of_file(name, compared, different))
    assert out_of_scope == OUT_OF_SCOPE.get(name, {})
    assert different == DIFFERENT.get(name, [])
    assert hidden == HIDDEN_BY_MIN_UNIT.get(name, [])


def out_of_scope_reason(placement, step, url):
    """The reason why a query cannot be compared, or None."""
    if step.status != 200:
        return 'an error'
    if is_older(step.microversion, TREES_IN_SUMMARIES):
        return 'a microversion without trees'

    parsed = parse(urlsplit(url).query, step.microversion)
    if parsed.has_limit:
        return 'a limit'
    if parsed.suffixed:
        return f'{min(parsed.suffixed)} of a suffixed group'
    if not shared_classes(placement).isdisjoint(parsed.classes):
        return 'resources of sharing providers'
    return None


def shared_classes(placement):
    """The resource classes of all sharing providers."""
    classes = set()
    answer = placement.get(f'/resource_providers?required={SHARING}')
    for provider in answer['resource_providers']:
        path = f'/resource_providers/{provider["uuid"]}/inventories'
        classes.update(placement.get(path)['inventories'])
    return classes


@dataclass(frozen=True)
class QueryComparison:
    """The candidates of both sides for a query.

    :ivar hidden_hosts: roots with candidates that a base query with the amount 1 of
        each class does not find.
    """

    ours: set[Candidate]
    theirs: set[Candidate]
    hidden_hosts: set[str]


def compare(placement, step, url, answer):
    """Find candidates in the trees of a base query. The base query asks for the least
    amounts of the query: many inventories in Placement's files do not give 1."""
    parsed = parse(urlsplit(url).query, step.microversion)
    path = '/allocation_candidates?'
    base_query = parsed.base_query(lambda name, amount: amount)
    base = placement.get(path + base_query)
    base_query_of_ones = parsed.base_query(lambda name, amount: 1)
    base_of_ones = placement.get(path + base_query_of_ones)

    ours = set()
    for tree in trees_of_answer(base):
        for candidate in tree.candidates(parsed.query):
            if is_older(step.microversion, MAPPINGS):
                candidate = Candidate(candidate.allocations, frozenset())
            ours.add(candidate)
    hidden_hosts = roots_of(answer) - roots_of(base_of_ones)
    return QueryComparison(ours, candidates_of_answer(answer), hidden_hosts)


def roots_of(answer):
    """The roots of all trees with candidates."""
    return {tree.uuids[0] for tree in trees_of_answer(answer)}


def figures_of_file(name, compared, different):
    outcomes = Counter(same=len(compared) - len(different))
    if different:
        outcomes['different'] = len(different)
    figures = Figures(f'trees: {name.removesuffix(".yaml")}')
    figures.cases = len(compared)
    figures.outcomes = outcomes
    return figures


# Random trees and queries.

ROUNDS = 30
TREES = 4
QUERIES = 5
HOST_CLASSES = ('VCPU', 'MEMORY_MB')
DEVICE_CLASSES = ('VGPU', 'CUSTOM_VF')
TRAITS = ('CUSTOM_A', 'CUSTOM_B', 'CUSTOM_C')
OWNER = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}

SAME = 'same candidates'
NONE = 'no candidates'
GROWN = 'Placement adds up too much'
"""Placement merges the candidates of groups without a copy of their amounts, unless the
query has group_policy=none (research_context.py, copy_arr_if_needed). If two groups
ask for the same class of a provider, the amounts of a candidate grow with each earlier
candidate, and candidates whose amounts exceed the inventory get lost. With isolation,
one of the two groups is the unsuffixed group."""


def test_random_trees_have_the_same_candidates_as_in_placement():
    """For random trees and queries, Placement and the search find the same candidates,
    and Placement accepts a claim of the first candidate of each tree."""
    figures = Figures('trees: random')
    FIGURES.append(figures)

    with placement_with('APIFixture') as placement:
        succeed(placement, 'PUT', '/resource_classes/CUSTOM_VF')
        for trait in TRAITS:
            succeed(placement, 'PUT', f'/traits/{trait}')

        for number in range(ROUNDS * TIMES):
            seed = f'{SEED} {number}'
            dice = Dice(seed)
            cloud = Cloud(placement)
            for _ in range(TREES):
                cloud.add_tree(dice)
            trees = trees_of_answer(
                placement.get('/allocation_candidates?resources=VCPU:1')
            )
            assert len(trees) == TREES

            for _ in range(QUERIES):
                query = a_query(dice)
                figures.cases += 1
                figures.outcomes += check_query(placement, trees, query, seed)
            cloud.remove()

    # There are enough trees of each kind.
    assert figures.outcomes[SAME] > 100 * TIMES
    assert figures.outcomes[NONE] > 100 * TIMES


def test_placement_offers_candidates_with_too_large_amounts():
    """Placement offers candidates with more than a query asks for: see GROWN. If this
    test fails, a new release of Placement may be free of the gap."""
    rule = TraitRule()
    groups = (Group('', (('VGPU', 1),), rule), Group('_0', (('VGPU', 1),), rule))
    query = TreeQuery(groups, isolate=True)

    with placement_with('APIFixture') as placement:
        cloud = Cloud(placement)
        root = cloud.add_provider(None)
        for _ in range(2):
            cloud.set(cloud.add_provider(root), 'inventories', {'VGPU': {'total': 8}})
        answer = placement.get(f'/allocation_candidates?{query_string(query)}')
    (tree,) = trees_of_answer(answer)

    theirs = candidates_of_answer(answer)
    correct = {candidate for candidate in theirs if has_amounts_of(candidate, query)}
    assert correct < theirs
    assert correct < tree.candidates(query)


def check_query(placement, trees, query, seed):
    """Compare the candidates of all trees, and count the outcomes of trees."""
    url = f'/allocation_candidates?{query_string(query)}'
    theirs = candidates_of_answer(placement.get(url))
    outcomes = Counter()

    for tree in trees:
        case = f'seed {seed}: {url}\n{tree}'
        ours = tree.candidates(query)
        of_tree = set()
        for candidate in theirs:
            if any(uuid in tree.uuids for uuid, _, _ in candidate.allocations):
                of_tree.add(candidate)

        assert tree.search(query).fits() == bool(ours), case
        first = next(tree.search(query).assignments(), None)
        assert (first is not None) == bool(ours), case
        if first is not None:
            candidate = tree.candidate(first)
            assert candidate in ours, case
            assert claim(placement, candidate) == 204, case

        if of_tree == ours:
            outcomes[SAME if ours else NONE] += 1
            continue
        assert can_grow(query), case
        assert {c for c in of_tree if has_amounts_of(c, query)} <= ours, case
        outcomes[GROWN] += 1
    return outcomes


def can_grow(query):
    """True if Placement may add up too much: see GROWN."""
    unsuffixed = set()
    suffixed = set()
    for group in query.groups:
        names = [name for name, _ in group.amounts]
        if group.suffix:
            suffixed.update(names)
        else:
            unsuffixed.update(names)
    return query.isolate and not unsuffixed.isdisjoint(suffixed)


def has_amounts_of(candidate, query):
    """True if a candidate has the amounts that a query asks for, and no more."""
    amounts = Counter()
    for _, name, amount in candidate.allocations:
        amounts[name] += amount
    for group in query.groups:
        amounts.subtract(dict(group.amounts))
    return not any(amounts.values())


def claim(placement, candidate):
    """Claim a candidate, delete the allocations of a claim that succeeds, and return
    the status of the claim."""
    path = f'/allocations/{uuid.uuid4()}'
    body = {**OWNER, 'allocations': candidate.body}
    # Newer microversions demand a type of consumers.
    headers = {**ADMINISTRATOR, 'openstack-api-version': 'placement 1.36'}
    status = placement.call('PUT', path, body, headers).status
    if status == 204:
        succeed(placement, 'DELETE', path)
    return status


def succeed(placement, method, path, **body):
    """Send a request that Placement accepts."""
    headers = {**ADMINISTRATOR, 'openstack-api-version': 'placement 1.36'}
    answer = placement.call(method, path, body or None, headers)
    assert answer.status < 300, f'{method} {path}: {answer}'


@dataclass
class Cloud:
    """Random trees in Placement.

    :ivar providers: the UUIDs of all providers, parents before children.
    :ivar consumers: the UUIDs of consumers with allocations.
    """

    placement: PlacementInProcess
    providers: list[str] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)

    def add_tree(self, dice):
        """Create a tree of one to seven providers. Providers below the root are copies
        of a few models."""
        uuids = [self.add_provider(None)]
        self.set(uuids[0], 'traits', some_traits(dice))
        self._set_inventories(dice, uuids[0], dict.fromkeys(HOST_CLASSES, 4))

        models = []
        for _ in range(dice.randint(1, 3)):
            classes = dice.sample(DEVICE_CLASSES, dice.one(1, 1, 2))
            amounts = {name: dice.randint(2, 4) for name in classes}
            models.append((some_traits(dice), amounts))
        for _ in range(dice.randint(1, 6)):
            parent = dice.one(*uuids[:3])
            traits, amounts = dice.one(*models)
            uuids.append(self.add_provider(parent))
            self.set(uuids[-1], 'traits', traits)
            self._set_inventories(dice, uuids[-1], amounts)

    def remove(self):
        """Delete all allocations and providers."""
        for consumer in self.consumers:
            succeed(self.placement, 'DELETE', f'/allocations/{consumer}')
        for provider in reversed(self.providers):
            succeed(self.placement, 'DELETE', f'/resource_providers/{provider}')

    def add_provider(self, parent):
        provider = str(uuid.uuid4())
        body = {'name': provider, 'uuid': provider}
        if parent is not None:
            body['parent_provider_uuid'] = parent
        succeed(self.placement, 'POST', '/resource_providers', **body)
        self.providers.append(provider)
        return provider

    def set(self, provider, name, values):
        """Replace the traits or the inventories of a provider."""
        path = f'/resource_providers/{provider}'
        generation = self.placement.get(path)['generation']
        body = {name: values, 'resource_provider_generation': generation}
        succeed(self.placement, 'PUT', f'{path}/{name}', **body)

    def _set_inventories(self, dice, provider, amounts):
        """Set the inventories of a provider. Some inventories are used in part."""
        inventories = {name: {'total': amount} for name, amount in amounts.items()}
        self.set(provider, 'inventories', inventories)

        used = {}
        for name, amount in amounts.items():
            if amount > 1 and dice.maybe(0.2):
                used[name] = dice.randint(1, amount - 1)
        if used:
            consumer = str(uuid.uuid4())
            self.consumers.append(consumer)
            allocations = {provider: {'resources': used}}
            path = f'/allocations/{consumer}'
            succeed(self.placement, 'PUT', path, allocations=allocations, **OWNER)


def some_traits(dice):
    return dice.sample(TRAITS, dice.one(0, 1, 1, 2))


def a_query(dice):
    """A random query with at most six parts. Suffixed groups are copies of a few
    models, so that equal groups are common."""
    groups = []
    if dice.maybe():
        classes = dice.sample((*HOST_CLASSES, DEVICE_CLASSES[0]), dice.randint(1, 2))
        amounts = tuple((name, dice.one(1, 1, 2)) for name in classes)
        groups.append(Group('', amounts, a_rule(dice)))

    models = []
    for _ in range(dice.randint(1, 2)):
        classes = [dice.one(*DEVICE_CLASSES, DEVICE_CLASSES[0], HOST_CLASSES[0])]
        if dice.maybe(0.1):
            classes = DEVICE_CLASSES
        amounts = tuple((name, dice.one(1, 1, 2)) for name in classes)
        models.append((amounts, a_rule(dice)))
    suffixes = []
    for number in range(dice.randint(0 if groups else 1, 4)):
        suffixes.append(f'_{number}')
        amounts, rule = dice.one(*models)
        groups.append(Group(suffixes[-1], amounts, rule))

    same_subtrees = []
    if suffixes and dice.maybe(0.4):
        for _ in range(dice.randint(1, 2)):
            size = dice.randint(1, len(suffixes))
            same_subtrees.append(frozenset(dice.sample(suffixes, size)))
        add_group_without_resources(dice, groups, same_subtrees)

    root = TraitRule()
    if dice.maybe(0.1):
        root = dice.one(
            TraitRule(frozenset([frozenset(['CUSTOM_A'])])),
            TraitRule(forbidden=frozenset(['CUSTOM_B'])),
        )
    return TreeQuery(tuple(groups), dice.maybe(0.4), tuple(same_subtrees), root)


def add_group_without_resources(dice, groups, same_subtrees):
    """Add a group with traits only to one of the same_subtree sets, or no group."""
    if dice.maybe():
        rule = TraitRule(frozenset([frozenset([dice.one(*TRAITS)])]))
        groups.append(Group('_TRAITS', (), rule))
        same_subtrees[0] |= {'_TRAITS'}


def a_rule(dice):
    """A rule with required, any-of and forbidden traits; mostly no rule."""
    first, second, third = dice.sample(TRAITS, len(TRAITS))
    rules = {
        'required': TraitRule(frozenset([frozenset([first])])),
        'any of': TraitRule(frozenset([frozenset([first, second])])),
        'two': TraitRule(frozenset([frozenset([first]), frozenset([second, third])])),
        'forbidden': TraitRule(forbidden=frozenset([first])),
        'both': TraitRule(frozenset([frozenset([first])]), frozenset([second])),
    }
    if dice.maybe(0.7):
        return TraitRule()
    return dice.one(*rules.values())
