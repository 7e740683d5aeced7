# SPDX-License-Identifier: Apache-2.0
"""The query string of a request for GET /allocation_candidates (microversion 1.36), and
single constraints.

Parameters are sorted: equal requests have equal query strings.
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, urlencode

from novasched.conf.settings import Settings
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
MAX_NAME_LENGTH = 255
"""Characters of the longest name of a trait or a resource class in Placement."""


@dataclass(frozen=True, slots=True)
class FlatQuery:
    """A query for resources of the host itself, in two parts.

    :ivar base: the query string for all hosts of the aggregates, with amounts of 1 and
        without traits. Remembered answers are answers to base queries.
    :ivar amounts: amounts by resource class, to be compared with such an answer.
    :ivar required: required traits.
    :ivar forbidden: forbidden traits.
    """

    base: str
    amounts: Mapping[str, int]
    required: frozenset[str]
    forbidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class Query:
    """A query for allocation candidates.

    :ivar warnings: for the operator.
    :ivar flat: the same query in two parts; None for a query with several groups, a
        tree of providers, or no limit.
    """

    string: str
    warnings: tuple[str, ...] = ()
    flat: FlatQuery | None = None


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
    string = _encode(request, settings, groups, policy)
    return Query(string, warnings, _flat(request, groups))


def _numbered(groups: Mapping[str, RequestGroup]) -> list[RequestGroup]:
    """The groups with a suffix, without empty groups."""
    return [group for suffix, group in groups.items() if suffix and not group.is_empty]


def _flat(request: Request, groups: Mapping[str, RequestGroup]) -> FlatQuery | None:
    """The query in two parts; None if impossible."""
    unsuffixed = groups['']
    amounts = _amounts(unsuffixed)
    if request.unlimited or request.same_subtree or unsuffixed.in_tree:
        return None
    if not amounts or _numbered(groups):
        return None

    base = replace(
        unsuffixed,
        resources=dict.fromkeys(amounts, 1),
        required_traits=frozenset(),
        forbidden_traits=frozenset(),
    )
    # The host is the root of its tree: traits of the root are traits of the host.
    return FlatQuery(
        urlencode(sorted(_group_parameters('', base))),
        amounts,
        unsuffixed.required_traits | request.root_required,
        unsuffixed.forbidden_traits | request.root_forbidden,
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


def _encode(
    request: Request,
    settings: Settings,
    groups: Mapping[str, RequestGroup],
    policy: str | None,
) -> str:
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
    return urlencode(sorted(parameters))


def _group_parameters(suffix: str, group: RequestGroup) -> Iterator[tuple[str, str]]:
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


def constraints(string: str) -> list[Constraint]:
    """The distinct constraints of a query, in this order: the host, aggregates,
    forbidden traits, required traits, resources.

    Two parts are left out: traits and aggregates that a suffixed group forbids, since
    another provider of the tree may serve the group; and relations between groups.
    """
    distinct: dict[Constraint, None] = {}
    for name, value in parse_qsl(string):
        distinct.update(dict.fromkeys(_constraints(name, value)))
    return sorted(distinct, key=_order)


def _order(constraint: Constraint) -> tuple[int, bool]:
    is_required_trait = constraint.kind == 'trait' and not constraint.forbidden
    return ORDER.index(constraint.kind), is_required_trait


def _constraints(name: str, value: str) -> Iterator[Constraint]:
    """The constraints of a parameter."""
    match = _NAME.match(name.removeprefix('root_'))
    if match is None:
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


def unlimited(string: str) -> str:
    """The same query for all candidates."""
    parameters = parse_qsl(string)
    return urlencode([pair for pair in parameters if pair[0] != 'limit'])
