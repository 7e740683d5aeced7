# SPDX-License-Identifier: Apache-2.0
"""The query of a request for GET /allocation_candidates (microversion 1.36), and single
constraints.

Parameters are sorted: equal requests have equal query strings.
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from urllib.parse import urlencode

import os_traits

from novasched.conf.settings import Settings
from novasched.placement.trees import Group, TraitRule, TreeQuery
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.numa import DEDICATED
from novasched.scheduler.model.request import Request

UNLIMITED_HINTS = frozenset(('group', 'same_host', 'different_host'))
"""Scheduler hints that need all candidates: the host that they demand may be beyond
``[scheduler] max_placement_results``."""
NO_GROUP_POLICY = (
    'There is more than one numbered request group in the allocation candidate query '
    'but the flavor did not specify any group policy.'
)
"""The text of nova's warning."""
HOST_CLASSES = frozenset(('VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB'))
"""The resource classes of every compute node."""
MAX_PERMUTED_GROUPS = 3
"""Request groups of a query, with the unsuffixed group, of which Placement lists the
permutations in good time."""
MAX_NAME_LENGTH = 255
"""Characters of the longest name of a trait or a resource class in Placement."""


Parameter = tuple[str, str]
"""The name and the value of a parameter of a query."""


@dataclass(frozen=True, slots=True)
class LocalQuery:
    """A query that is answered here, from Placement's answer to a base query.

    :ivar base: the query for all hosts of the aggregates, with amounts of 1 and without
        traits.
    :ivar own_base: the query with amounts and traits of the request and a single group
        with a suffix. Placement leaves out the hosts that do not serve this part of the
        query.
    :ivar trees: the request groups, to be served by the tree of each host.
    :ivar further_classes: the resource classes that the base query does not ask for.
    :ivar is_for_one_host: True if the base query is about the tree of one host
        (``in_tree``). No other request needs such an answer.
    """

    base: 'Query'
    own_base: 'Query'
    trees: TreeQuery
    further_classes: frozenset[str] = frozenset()
    is_for_one_host: bool = False

    @property
    def is_nested(self) -> bool:
        """True if several providers may serve the query."""
        return bool(self.further_classes) or len(self.trees.groups) > 1

    @property
    def has_few_permutations(self) -> bool:
        """True if Placement answers the query itself in good time."""
        return not self.is_nested or len(self.trees.groups) <= MAX_PERMUTED_GROUPS

    @property
    def is_for_placement(self) -> bool:
        """True if Placement should answer the query itself, unless an earlier answer
        has a host.

        The trees do not tell ``min_unit``, ``max_unit`` and ``step_size``, which matter
        to amounts above 1. Placement lists few permutations of few groups.
        """
        if not self.is_nested:
            return True
        if not self.has_few_permutations:
            return False
        for group in self.trees.groups:
            for name, amount in group.amounts:
                if name in self.further_classes and amount > 1:
                    return True
        return False


@dataclass(frozen=True)
class Query:
    """A query for allocation candidates.

    :ivar parameters: sorted, and with values as before the encoding for URLs.
    :ivar warnings: for the operator.
    :ivar local: the same query in two parts; None if only Placement can answer.
    """

    parameters: tuple[Parameter, ...]
    warnings: tuple[str, ...] = ()
    local: LocalQuery | None = None

    @cached_property
    def string(self) -> str:
        """The query string."""
        return urlencode(self.parameters)

    def unlimited(self) -> 'Query':
        """The same query for all candidates."""
        return Query(tuple(pair for pair in self.parameters if pair[0] != 'limit'))

    def constraints(self) -> 'list[Constraint]':
        """The distinct constraints, in this order: the host, aggregates, forbidden
        traits, required traits, resources.

        Two parts are left out: traits and aggregates that a suffixed group forbids,
        since another provider of the tree may serve the group; and relations between
        groups.
        """
        distinct: dict[Constraint, None] = {}
        for name, value in self.parameters:
            distinct.update(dict.fromkeys(_constraints(name, value)))
        return sorted(distinct, key=_order)


def build(request: Request, settings: Settings, pinned: bool = True) -> Query:
    """The query for the allocation candidates of a request.

    :param pinned: count pinned CPUs as PCPU. The fallback query counts them as VCPU,
        for hosts that report no PCPU (``vcpu_pin_set``).
    :raises BadRequest: a request group of a port or an accelerator is empty, or has the
        name of another group.
    :raises NoValidHost: the flavor contradicts the image, or asks for an unknown
        resource.
    """
    groups = request.request_groups(pinned)
    flavor_groups = request.requirements.flavor_groups
    destination = request.requested_destination
    groups[''] = replace(groups[''], in_tree=request.in_tree)
    if destination is not None:
        # Prefilters have added the aggregates of the zone and of the tenant.
        groups[''] = replace(
            groups[''],
            aggregates=destination.aggregates,
            forbidden_aggregates=destination.forbidden_aggregates,
        )

    policy = flavor_groups.policy
    warnings = flavor_groups.warnings
    if policy is None and len(_numbered(groups)) > 1:
        warnings = (*warnings, NO_GROUP_POLICY)
        # As in nova, for groups of ports and accelerators beside at most one numbered
        # group of the flavor. Placement refuses several groups without a policy.
        if len(flavor_groups.groups) <= 2:
            policy = 'none'
    parameters = _parameters(request, settings, groups, policy)
    return Query(parameters, warnings, _local(request, groups, policy))


def _numbered(groups: Mapping[str, RequestGroup]) -> dict[str, RequestGroup]:
    """The groups with a suffix, without empty groups."""
    numbered = {}
    for suffix, group in groups.items():
        if suffix and not group.is_empty:
            numbered[suffix] = group
    return numbered


def _local(
    request: Request, groups: Mapping[str, RequestGroup], policy: str | None
) -> LocalQuery | None:
    """The query in two parts; None if only Placement can answer.

    An answer about all hosts does not tell the aggregates of nested providers.
    """
    unsuffixed = groups['']
    numbered = _numbered(groups)
    if not _amounts(unsuffixed):
        return None
    if len(numbered) > 1 and policy is None:
        return None
    for group in numbered.values():
        if group.aggregates or group.forbidden_aggregates or group.in_tree:
            return None

    classes: set[str] = set()
    tree_groups = []
    for suffix, group in {'': unsuffixed, **numbered}.items():
        amounts = _amounts(group)
        classes |= amounts.keys()
        traits = _rule(group.required_traits, group.forbidden_traits)
        kind = ''
        if suffix:
            kind = _pci_request_of(suffix, request)
        pairs = tuple(sorted(amounts.items()))
        tree_groups.append(Group(suffix, pairs, traits, kind))
    trees = TreeQuery(
        tuple(tree_groups),
        isolate=policy == 'isolate',
        same_subtrees=request.same_subtree,
        root=_rule(request.root_required, request.root_forbidden),
    )

    # Every host has these classes, and few hosts have devices. A query for devices
    # has the base query of other queries, and a candidate for each host.
    base_classes = classes & HOST_CLASSES or _amounts(unsuffixed).keys()
    base = replace(
        unsuffixed,
        resources=dict.fromkeys(base_classes, 1),
        required_traits=frozenset(),
        forbidden_traits=frozenset(),
    )
    local = LocalQuery(
        Query(tuple(sorted(_group_parameters('', base)))),
        _own_base(request, unsuffixed, numbered),
        trees,
        frozenset(classes - base_classes),
        is_for_one_host=bool(unsuffixed.in_tree),
    )
    if (request.unlimited or unsuffixed.in_tree) and not local.is_nested:
        # Without permutations, Placement itself answers in good time.
        return None
    return local


def _own_base(
    request: Request, unsuffixed: RequestGroup, numbered: Mapping[str, RequestGroup]
) -> Query:
    """The query with the unsuffixed group and a single other group: the group with the
    largest amount, since units and steps of inventories matter to it most."""
    parameters = [*_group_parameters('', unsuffixed)]
    root_traits = _traits(request.root_required, request.root_forbidden)
    if root_traits:
        parameters.append(('root_required', root_traits))
    largest = max(
        numbered,
        key=lambda suffix: max(_amounts(numbered[suffix]).values(), default=0),
        default=None,
    )
    if largest is not None and _amounts(numbered[largest]):
        parameters += _group_parameters(largest, numbered[largest])
    return Query(tuple(sorted(parameters)))


def _pci_request_of(suffix: str, request: Request) -> str:
    """The id of the PCI request that a group is for; '' for other groups. Each device
    of a request has a group, whose suffix begins with the id."""
    for pci_request in request.pci_requests:
        request_id = pci_request.request_id
        if request_id and not pci_request.is_for_port and suffix.startswith(request_id):
            return request_id
    return ''


def _rule(required: AbstractSet[str], forbidden: AbstractSet[str]) -> TraitRule:
    return TraitRule(
        frozenset(frozenset((trait,)) for trait in required), frozenset(forbidden)
    )


def _amounts(group: RequestGroup) -> dict[str, int]:
    """Amounts by resource class, without zeros, which Placement refuses."""
    return {name: amount for name, amount in group.resources.items() if amount}


def build_all(request: Request, settings: Settings) -> list[Query]:
    """The query of a request, and the fallback query for hosts that report pinned CPUs
    as VCPU, unless ``[workarounds] disable_fallback_pcpu_query`` is set."""
    queries = [build(request, settings)]
    pinning = request.requirements.cpu_pinning
    if (
        pinning
        and pinning.policy == DEDICATED
        and not settings.disable_fallback_pcpu_query
    ):
        queries.append(build(request, settings, pinned=False))
    return queries


def limit(request: Request, settings: Settings) -> int | None:
    """The maximum number of candidates to ask for; None for all."""
    if request.unlimited or UNLIMITED_HINTS.intersection(request.scheduler_hints):
        return None
    return settings.max_placement_results


def _parameters(
    request: Request,
    settings: Settings,
    groups: Mapping[str, RequestGroup],
    policy: str | None,
) -> tuple[Parameter, ...]:
    parameters = []
    number = limit(request, settings)
    if number is not None:
        parameters.append(('limit', str(number)))
    if policy is not None:
        parameters.append(('group_policy', policy))
    root_traits = _traits(request.root_required, request.root_forbidden)
    if root_traits:
        parameters.append(('root_required', root_traits))
    for suffixes in request.same_subtree:
        parameters.append(('same_subtree', ','.join(sorted(suffixes))))

    for suffix, group in groups.items():
        parameters += _group_parameters(suffix, group)
    return tuple(sorted(parameters))


def _group_parameters(suffix: str, group: RequestGroup) -> Iterator[Parameter]:
    if group.is_empty and (suffix or not group.in_tree):
        return

    amounts = [f'{_cut(name)}:{amount}' for name, amount in _amounts(group).items()]
    yield f'resources{suffix}', ','.join(sorted(amounts))

    traits = _traits(group.required_traits, group.forbidden_traits)
    if traits:
        yield f'required{suffix}', traits

    for aggregates in group.aggregates:
        yield f'member_of{suffix}', f'in:{",".join(sorted(aggregates))}'
    if group.forbidden_aggregates:
        aggregates = group.forbidden_aggregates
        yield f'member_of{suffix}', f'!in:{",".join(sorted(aggregates))}'
    if group.in_tree:
        yield f'in_tree{suffix}', group.in_tree


def _traits(required: AbstractSet[str], forbidden: AbstractSet[str]) -> str:
    traits = [_cut(name) for name in sorted(required)]
    traits += [f'!{_cut(name)}' for name in sorted(forbidden)]
    return ','.join(traits)


def _cut(name: str) -> str:
    """Cut a name that is too long for Placement. The rest is still too long, so that
    Placement refuses the query, as it refuses nova's."""
    return name[: MAX_NAME_LENGTH + 1]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A part of a query, for a separate question to Placement.

    The answer of GET /resource_providers has the providers that meet the constraint;
    for a forbidden trait or aggregate, the providers that violate the constraint.

    :ivar kind: ``host``, ``aggregates``, ``trait`` or ``resource``.
    :ivar value: the value in the query, without a leading ``!``.
    :ivar of_root: True if the compute node itself must meet the constraint. Otherwise a
        nested provider suffices.
    :ivar group: the suffix of the request group.
    """

    kind: str
    value: str
    forbidden: bool = False
    of_root: bool = False
    group: str = field(default='', compare=False)

    @property
    def question(self) -> str:
        """The query string for GET /resource_providers."""
        return urlencode({_PARAMETERS[self.kind]: self.value})


_NAME = re.compile(r'\A(resources|required|member_of|in_tree)(.*)$')
_PARAMETERS = {
    'host': 'in_tree',
    'aggregates': 'member_of',
    'trait': 'required',
    'resource': 'resources',
}
_KINDS = {name: kind for kind, name in _PARAMETERS.items()}
ORDER = tuple(_PARAMETERS)
"""The kinds of constraints, the most restrictive first."""


def _order(constraint: Constraint) -> tuple[int, bool]:
    is_required_trait = constraint.kind == 'trait' and not constraint.forbidden
    return ORDER.index(constraint.kind), is_required_trait


def _constraints(name: str, value: str) -> Iterator[Constraint]:
    """The constraints of a parameter."""
    match = _NAME.match(name.removeprefix('root_'))
    # A group of traits alone has no resources.
    if match is None or not value:
        return

    kind = _KINDS[match[1]]
    group = match[2]
    values = [value]
    if kind in ('trait', 'resource'):
        values = value.split(',')
    for text in values:
        plain = text.removeprefix('!')
        forbidden = plain != text
        if not (forbidden and group):
            of_root = forbidden or name == 'root_required'
            yield Constraint(kind, plain, forbidden, of_root, group)


def sharing(resource_class: str) -> str:
    """The query string for GET /resource_providers that finds the providers that share
    a resource class."""
    return urlencode(
        {
            'required': os_traits.MISC_SHARES_VIA_AGGREGATE,
            'resources': f'{_cut(resource_class)}:1',
        }
    )
