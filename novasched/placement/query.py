# SPDX-License-Identifier: Apache-2.0
"""A request as the query string of GET /allocation_candidates (microversion 1.36), and the same
query with a constraint less.

Parameters are sorted, so that equal requests give equal strings.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from novasched.conf.settings import Settings
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.numa import DEDICATED
from novasched.scheduler.model.request import Request

UNLIMITED_HINTS = frozenset(('group', 'same_host', 'different_host'))

Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FlatQuery:
    """A query for what one provider gives by itself, in two parts.

    ``base`` is the query for all hosts of these aggregates that have any of these resources; in
    its answer the amounts and the traits are looked for.
    """

    base: str
    amounts: Mapping[str, int]
    required: frozenset[str]
    forbidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class Query:
    """A query string, and warnings for the operator. ``flat`` is the same in two parts, where
    that is possible."""

    string: str
    warnings: tuple[str, ...] = ()
    flat: FlatQuery | None = None


def build(request: Request, settings: Settings, pinned: bool = True) -> Query:
    """The query for the allocation candidates of a request.

    :param pinned: count pinned CPUs as PCPU; the fallback for hosts that do not
        report any (``vcpu_pin_set``) counts them as VCPU.
    :raises BadRequest: a group from outside asks for nothing or has no name of its own.
    :raises NoValidHost: flavor and image contradict each other, or ask for what does not exist.
    """
    groups = request.request_groups(pinned)
    of_flavor = request.requirements.flavor_groups
    policy, warnings = of_flavor.policy, of_flavor.warnings
    destination = request.requested_destination
    groups[''] = replace(groups[''], in_tree=request.in_tree)
    if destination is not None:
        groups[''] = replace(
            groups[''],
            aggregates=destination.aggregates,
            forbidden_aggregates=destination.forbidden_aggregates,
        )
    if policy is None and sum(not group.is_empty for name, group in groups.items() if name) > 1:
        warnings = (
            *warnings,
            'There is more than one numbered request group in the allocation candidate query '
            'but the flavor did not specify any group policy.',
        )
        if len(of_flavor.groups) <= 2:
            policy = 'none'
    return Query(_encode(request, settings, groups, policy), warnings, _flat(request, groups))


def _flat(request: Request, groups: Mapping[str, RequestGroup]) -> FlatQuery | None:
    own = groups['']
    amounts = {name: n for name, n in own.resources.items() if n}
    if request.unlimited or request.same_subtree or own.in_tree or not amounts:
        return None
    if any(not group.is_empty for name, group in groups.items() if name):
        return None
    none = frozenset[str]()
    any_of = dict.fromkeys(amounts, 1)
    base = replace(own, resources=any_of, required_traits=none, forbidden_traits=none)
    return FlatQuery(
        urlencode(sorted(_group_parameters('', base))),
        amounts,
        own.required_traits | request.root_required,
        own.forbidden_traits | request.root_forbidden,
    )


def build_all(request: Request, settings: Settings) -> list[Query]:
    """See :func:`build`; a second query where hosts may report pinned CPUs as VCPU."""
    queries, pinning = [build(request, settings)], request.requirements.cpu_pinning
    if pinning and pinning.policy == DEDICATED and not settings.disable_fallback_pcpu_query:
        queries.append(build(request, settings, pinned=False))
    return queries


def limit(request: Request, settings: Settings) -> int | None:
    """The greatest number of candidates to ask for; None for all of them."""
    if request.unlimited or UNLIMITED_HINTS.intersection(request.scheduler_hints):
        return None
    return settings.max_placement_results


def _encode(
    request: Request, settings: Settings, groups: Mapping[str, RequestGroup], policy: str | None
) -> str:
    root = _traits(request.root_required, request.root_forbidden)
    single = {
        'limit': limit(request, settings), 'group_policy': policy, 'root_required': root or None,
    }  # fmt: skip
    parameters = [(name, str(value)) for name, value in single.items() if value is not None]
    parameters += (('same_subtree', ','.join(sorted(each))) for each in request.same_subtree)
    for suffix, group in groups.items():
        parameters += _group_parameters(suffix, group)
    return urlencode(sorted(parameters))


def _group_parameters(suffix: str, group: RequestGroup) -> Iterator[tuple[str, str]]:
    if group.is_empty and (suffix or not group.in_tree):
        return
    amounts = sorted(f'{name}:{n}' for name, n in group.resources.items() if n)
    traits = _traits(group.required_traits, group.forbidden_traits)
    yield f'resources{suffix}', ','.join(amounts)
    if traits:
        yield f'required{suffix}', traits
    for any_of in group.aggregates:
        yield f'member_of{suffix}', 'in:' + ','.join(sorted(any_of))
    if group.forbidden_aggregates:
        yield f'member_of{suffix}', '!in:' + ','.join(sorted(group.forbidden_aggregates))
    if group.in_tree:
        yield f'in_tree{suffix}', group.in_tree


def _traits(required: AbstractSet[str], forbidden: AbstractSet[str]) -> str:
    return ','.join([*sorted(required), *(f'!{name}' for name in sorted(forbidden))])


@dataclass(frozen=True, slots=True)
class RelaxedQuery:
    """A query without one of its constraints.

    :ivar kind: ``resource``, ``trait``, ``aggregates``, ``host``, or the parameter.
    :ivar value: the constraint, as it stands in the query.
    :ivar group: the suffix of the request group that it stood in.
    """

    kind: str
    value: str
    group: str
    string: str


_NAME = re.compile(r'(resources|required|member_of|in_tree)(.*)$')
_LISTS = ('resources', 'required', 'root_required')
_KINDS = {
    'resources': 'resource',
    'required': 'trait',
    'member_of': 'aggregates',
    'in_tree': 'host',
}
_ORDER = ('host', 'aggregates', 'trait', 'resource', 'group_policy', 'same_subtree')


def relaxed(string: str) -> list[RelaxedQuery]:
    """The queries with one constraint less, those that tell most first: the constraint to one
    host or to an aggregate, traits, then amounts. Each asks for one candidate alone."""
    parameters = [each for each in parse_qsl(string) if each[0] != 'limit']
    queries = [x for index in range(len(parameters)) for x in _without(parameters, index)]
    return sorted(queries, key=lambda query: _ORDER.index(query.kind))


def for_one_candidate(string: str) -> str:
    """The query itself, for one candidate alone."""
    return _limited([each for each in parse_qsl(string) if each[0] != 'limit'])


def _without(parameters: Parameters, index: int) -> Iterator[RelaxedQuery]:
    """Leave out one parameter, or each element of a list; a list of resources never ends up
    empty, since a group has to ask for something."""
    name, value = parameters[index]
    match = _NAME.match(name.removeprefix('root_'))
    base, group = (match[1], match[2]) if match else (name, '')
    kind = _KINDS.get(base, base)
    before, after = parameters[:index], parameters[index + 1 :]
    if base not in _LISTS:
        yield RelaxedQuery(kind, value, group, _limited([*before, *after]))
        return
    parts = value.split(',')
    for part in parts:
        others = [other for other in parts if other != part]
        if base == 'resources' and not others:
            others = [f'{part.partition(":")[0]}:1']
            if others == parts:
                continue
        kept = [(name, ','.join(others))] if others else []
        yield RelaxedQuery(kind, part, group, _limited([*before, *kept, *after]))


def _limited(parameters: Parameters) -> str:
    return urlencode(sorted([*parameters, ('limit', '1')]))
