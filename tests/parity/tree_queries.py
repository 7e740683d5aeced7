# SPDX-License-Identifier: Apache-2.0
"""Queries for allocation candidates as query strings, and trees from the provider
summaries of Placement."""

import itertools
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from novasched.placement.tree_search import TreeSearch
from novasched.placement.trees import Group, TraitRule, TreeQuery, TreeShape
from tests.lab.provider_trees import equal_groups

HOST_CLASSES = ('VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB')

REPEATED_REQUIRED = (1, 39)
"""Microversion from which ``required`` may be repeated. Before, the last one counts."""

_GROUP_PARAMETER = re.compile(
    r'(?P<name>resources|required|member_of|in_tree)(?P<suffix>[a-zA-Z0-9_-]{0,64})'
)


@dataclass(frozen=True)
class ParsedQuery:
    """A query string of GET /allocation_candidates.

    :ivar query: the query, as far as trees are concerned.
    :ivar unsuffixed: ``member_of`` and ``in_tree`` of the unsuffixed group, as pairs.
    :ivar suffixed: the names of ``member_of`` and ``in_tree`` of suffixed groups.
    :ivar has_limit: True if the query has the parameter ``limit``.
    """

    query: TreeQuery
    unsuffixed: tuple[tuple[str, str], ...]
    suffixed: frozenset[str]
    has_limit: bool

    @property
    def classes(self):
        """The smallest amount of each resource class of any group."""
        classes = {}
        for group in self.query.groups:
            for name, amount in group.amounts:
                classes[name] = min(amount, classes.get(name, amount))
        return classes

    def base_query(self, amount_of):
        """The query string for the hosts that may have candidates: the classes of hosts
        in any group; without any, the classes of the unsuffixed group; without any, all
        classes. Traits are not part of it.

        :param amount_of: takes a class and its smallest amount, and returns the amount
            to ask for.
        """
        names = [name for name in self.classes if name in HOST_CLASSES]
        if not names:
            for group in self.query.groups:
                if not group.suffix:
                    names = [name for name, _ in group.amounts]
        if not names:
            names = list(self.classes)

        resources = []
        for name in names:
            resources.append(f'{name}:{amount_of(name, self.classes[name])}')
        return urlencode([('resources', ','.join(resources)), *self.unsuffixed])


def parse(query_string, microversion):
    """Parse the query string of a valid request."""
    resources = {}
    required = {}
    unsuffixed = []
    suffixed = set()
    same_subtrees = []
    isolate = False
    has_limit = False
    root = TraitRule()

    for name, value in parse_qsl(query_string):
        value = value.strip()
        if name == 'limit':
            has_limit = True
        elif name == 'group_policy':
            isolate = value == 'isolate'
        elif name == 'root_required':
            root = _trait_rule([value])
        elif name == 'same_subtree':
            same_subtrees.append(frozenset(value.split(',')))
        else:
            match = _GROUP_PARAMETER.fullmatch(name)
            suffix = match['suffix']
            if match['name'] == 'resources':
                resources[suffix] = _amounts(value)
            elif match['name'] == 'required':
                if _version(microversion) < REPEATED_REQUIRED:
                    required[suffix] = []
                required.setdefault(suffix, []).append(value)
            elif suffix:
                suffixed.add(match['name'])
            else:
                unsuffixed.append((match['name'], value))

    groups = []
    for suffix in sorted(resources.keys() | required.keys()):
        rule = _trait_rule(required.get(suffix, []))
        groups.append(Group(suffix, resources.get(suffix, ()), rule))
    query = TreeQuery(tuple(groups), isolate, tuple(same_subtrees), root)
    return ParsedQuery(query, tuple(unsuffixed), frozenset(suffixed), has_limit)


def is_older(microversion, than):
    """True if a microversion comes before another."""
    return _version(microversion) < _version(than)


def _version(microversion):
    return tuple(int(number) for number in microversion.split('.'))


def _amounts(value):
    amounts = []
    for part in value.split(','):
        name, _, amount = part.partition(':')
        amounts.append((name, int(amount)))
    return tuple(amounts)


def _trait_rule(values):
    """The rule of the values of a parameter, such as ``A,!B`` and ``in:C,D``."""
    required = []
    forbidden = []
    for value in values:
        if value.startswith('in:'):
            required.append(frozenset(value.removeprefix('in:').split(',')))
            continue
        for trait in value.split(','):
            trait = trait.strip()
            if trait.startswith('!'):
                forbidden.append(trait.removeprefix('!'))
            else:
                required.append(frozenset([trait]))
    return TraitRule(frozenset(required), frozenset(forbidden))


def query_string(query):
    """The query string of a query, for microversion 1.39."""
    parameters = []
    for group in query.groups:
        if group.amounts:
            amounts = [f'{name}:{amount}' for name, amount in group.amounts]
            parameters.append((f'resources{group.suffix}', ','.join(amounts)))
        for value in _trait_values(group.traits):
            parameters.append((f'required{group.suffix}', value))

    for subtree in query.same_subtrees:
        parameters.append(('same_subtree', ','.join(sorted(subtree))))
    # The rule of the root is a single parameter without "in:" lists.
    if values := _trait_values(query.root):
        parameters.append(('root_required', ','.join(values)))
    policy = 'isolate' if query.isolate else 'none'
    parameters.append(('group_policy', policy))
    return urlencode(parameters, safe=':,!')


def _trait_values(rule):
    values = []
    for any_of in sorted(rule.required, key=sorted):
        if len(any_of) == 1:
            values.append(min(any_of))
        else:
            values.append('in:' + ','.join(sorted(any_of)))
    for trait in sorted(rule.forbidden):
        values.append(f'!{trait}')
    return values


@dataclass(frozen=True)
class Tree:
    """A tree of Placement.

    :ivar uuids: the UUIDs of the providers, in the order of the shape.
    """

    uuids: tuple[str, ...]
    shape: TreeShape
    free: tuple[dict[str, int], ...]

    def search(self, query, places=()):
        return TreeSearch(query, self.shape, self.free, places)

    def candidates(self, query):
        """All candidates of the tree: no two providers are interchangeable, and the
        providers of equal groups are exchanged in every way."""
        candidates = set()
        for assignment in self.search(query, range(len(self.uuids))).assignments():
            candidate = self.candidate(assignment)
            candidates.update(_with_groups_exchanged(query, candidate))
        return candidates

    def candidate(self, assignment):
        """An assignment as a candidate."""
        allocations = set()
        for provider, amounts in assignment.amounts.items():
            for name, amount in amounts.items():
                allocations.add((self.uuids[provider], name, amount))

        mappings = set()
        for suffix, providers in assignment.providers.items():
            uuids = [self.uuids[provider] for provider in providers]
            mappings.add((suffix, frozenset(uuids)))
        return Candidate(frozenset(allocations), frozenset(mappings))


@dataclass(frozen=True)
class Candidate:
    """An allocation candidate.

    :ivar allocations: triples of provider, resource class and amount.
    :ivar mappings: pairs of suffix and providers; empty before microversion 1.34.
    """

    allocations: frozenset[tuple[str, str, int]]
    mappings: frozenset[tuple[str, frozenset[str]]]

    @property
    def body(self):
        """The allocations as PUT /allocations takes them."""
        allocations = {}
        for uuid, name, amount in self.allocations:
            resources = allocations.setdefault(uuid, {'resources': {}})['resources']
            resources[name] = amount
        return allocations


def candidates_of_answer(answer):
    """The candidates of an answer of Placement."""
    candidates = set()
    for request in answer['allocation_requests']:
        allocations = set()
        for uuid, allocation in request['allocations'].items():
            for name, amount in allocation['resources'].items():
                allocations.add((uuid, name, amount))

        mappings = set()
        for suffix, uuids in request.get('mappings', {}).items():
            mappings.add((suffix, frozenset(uuids)))
        candidates.add(Candidate(frozenset(allocations), frozenset(mappings)))
    return candidates


def trees_of_answer(answer):
    """The trees of the provider summaries of an answer, parents before children."""
    summaries = answer['provider_summaries']
    trees = []
    for root, summary in summaries.items():
        if summary['parent_provider_uuid'] is None:
            trees.append(_tree(root, summaries))
    return trees


def _tree(root, summaries):
    uuids = [root]
    parents = [-1]
    for position, uuid in enumerate(uuids):
        for child, summary in summaries.items():
            if summary['parent_provider_uuid'] == uuid:
                # The loop comes to the child later.
                uuids.append(child)
                parents.append(position)

    traits = []
    free = []
    for uuid in uuids:
        traits.append(frozenset(summaries[uuid]['traits']))
        amounts = {}
        for name, resource in summaries[uuid]['resources'].items():
            amounts[name] = resource['capacity'] - resource['used']
        free.append(amounts)
    return Tree(tuple(uuids), TreeShape(tuple(parents), tuple(traits)), tuple(free))


def _with_groups_exchanged(query, candidate):
    """A candidate with the providers of equal groups in every order. The allocations
    stay the same, because equal groups have equal amounts."""
    groups = equal_groups(query)
    mappings = dict(candidate.mappings)
    for order in itertools.product(*map(itertools.permutations, groups)):
        exchanged = dict(mappings)
        for suffixes, others in zip(groups, order, strict=True):
            for suffix, other in zip(suffixes, others, strict=True):
                exchanged[suffix] = mappings[other]
        yield Candidate(candidate.allocations, frozenset(exchanged.items()))
