# SPDX-License-Identifier: Apache-2.0
"""A request as the query string of GET /allocation_candidates (microversion 1.36), and
its single constraints.

Parameters are sorted, so that equal requests give equal strings.
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


@dataclass(frozen=True, slots=True)
class FlatQuery:
    """A query for what one provider gives by itself, in two parts.

    ``base`` is the query for all hosts of these aggregates that have any of these
    resources; in its answer the amounts and the traits are looked for.
    """

    base: str
    amounts: Mapping[str, int]
    required: frozenset[str]
    forbidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class Query:
    """A query string, and warnings for the operator. ``flat`` is the same in two parts,
    where that is possible."""

    string: str
    warnings: tuple[str, ...] = ()
    flat: FlatQuery | None = None


def build(request: Request, settings: Settings, pinned: bool = True) -> Query:
    """The query for the allocation candidates of a request.

    :param pinned: count pinned CPUs as PCPU; the fallback for hosts that do not report
        any (``vcpu_pin_set``) counts them as VCPU.
    :raises BadRequest: a group from outside asks for nothing or has no name of its own.
    :raises NoValidHost: flavor and image contradict each other, or ask for what does
        not exist.
    """
    groups = request.request_groups(pinned)
    of_flavor = request.requirements.flavor_groups
    policy = of_flavor.policy
    warnings = of_flavor.warnings
    destination = request.requested_destination
    groups[''] = replace(groups[''], in_tree=request.in_tree)
    if destination is not None:
        groups[''] = replace(
            groups[''],
            aggregates=destination.aggregates,
            forbidden_aggregates=destination.forbidden_aggregates,
        )
    if (
        policy is None
        and sum(not group.is_empty for name, group in groups.items() if name) > 1
    ):
        warnings = (
            *warnings,
            (
                'There is more than one numbered request group in the allocation'
                ' candidate query but the flavor did not specify any group policy.'
            ),
        )
        if len(of_flavor.groups) <= 2:
            policy = 'none'
    return Query(
        _encode(request, settings, groups, policy), warnings, _flat(request, groups)
    )


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
    """The greatest number of candidates to ask for; None for all of them."""
    if request.unlimited or UNLIMITED_HINTS.intersection(request.scheduler_hints):
        return None
    return settings.max_placement_results


def _encode(
    request: Request,
    settings: Settings,
    groups: Mapping[str, RequestGroup],
    policy: str | None,
) -> str:
    root = _traits(request.root_required, request.root_forbidden)
    single = {
        'limit': limit(request, settings),
        'group_policy': policy,
        'root_required': root or None,
    }
    parameters = [
        (name, str(value)) for name, value in single.items() if value is not None
    ]
    parameters += (
        ('same_subtree', ','.join(sorted(each))) for each in request.same_subtree
    )
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
        yield (
            f'member_of{suffix}',
            '!in:' + ','.join(sorted(group.forbidden_aggregates)),
        )
    if group.in_tree:
        yield f'in_tree{suffix}', group.in_tree


def _traits(required: AbstractSet[str], forbidden: AbstractSet[str]) -> str:
    return ','.join([*sorted(required), *(f'!{name}' for name in sorted(forbidden))])


@dataclass(frozen=True, slots=True)
class Constraint:
    """A part of a query that Placement can be asked about by itself: GET
    /resource_providers has the providers that meet it, or that have what is
    ``forbidden``.

    :ivar kind: ``host``, ``aggregates``, ``trait`` or ``resource``.
    :ivar value: as it stands in the query, without a ``!`` in front.
    :ivar of_root: about the host's own provider, where others are about any one in its
        tree.
    :ivar group: the suffix of the request group that it stands in.
    """

    kind: str
    value: str
    forbidden: bool = False
    of_root: bool = False
    group: str = field(default='', compare=False)

    @property
    def question(self) -> str:
        """The query of GET /resource_providers."""
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
"""The kinds of constraints, the one that leaves least open in front."""


def constraints(string: str) -> list[Constraint]:
    """The parts of a query, in order: the host, aggregates, forbidden traits, required
    ones, then amounts. Left out is what a suffixed group forbids, since another
    provider of the tree may serve it, and how groups lie to each other."""
    found = [x for name, value in parse_qsl(string) for x in _constraints(name, value)]
    distinct = dict.fromkeys(found)
    return sorted(
        distinct,
        key=lambda x: (ORDER.index(x.kind), x.kind == 'trait' and not x.forbidden),
    )


def _constraints(name: str, value: str) -> Iterator[Constraint]:
    match = _NAME.match(name.removeprefix('root_'))
    if match is None:
        return
    kind = _KINDS[match[1]]
    group = match[2]
    values = value.split(',') if kind in ('trait', 'resource') else [value]
    for each in values:
        text = each.removeprefix('!')
        forbidden = text != each
        if not (forbidden and group):
            yield Constraint(
                kind, text, forbidden, forbidden or name == 'root_required', group
            )


def unlimited(string: str) -> str:
    """The same query for all candidates."""
    return urlencode([each for each in parse_qsl(string) if each[0] != 'limit'])
