# SPDX-License-Identifier: Apache-2.0
"""A request as the query string of GET /allocation_candidates (microversion 1.36).

Flavor, image and groups from outside (ports, device profiles) give what is wanted
of each group; parameters are sorted, so that equal requests give equal strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import os_resource_classes as classes
import os_traits

from novasched.errors import BadRequest
from novasched.model.request import Flavor, Image, Request, RequestGroup
from novasched.model.settings import Settings
from novasched.placement import features
from novasched.placement.pinning import DEDICATED, MIXED, pinning, smt_trait

UNLIMITED_HINTS = frozenset(('group', 'same_host', 'different_host'))
_KEY = re.compile(r'(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$')


@dataclass(frozen=True, slots=True)
class Query:
    """What to send, and what the operator should be told about it."""

    string: str
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    """One request group while it is being put together."""

    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    members: list[frozenset[str]] = field(default_factory=list)
    not_members: frozenset[str] = frozenset()
    in_tree: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked of the group's provider; an amount of 0 is nothing."""
        asked = self.required, self.forbidden, self.members, self.not_members
        return not any(self.resources.values()) and not any(asked)

    @classmethod
    def of(cls, group: RequestGroup) -> _Group:
        return cls(
            resources=dict(group.resources),
            required=set(group.required_traits),
            forbidden=set(group.forbidden_traits),
            members=list(group.aggregates),
            not_members=group.forbidden_aggregates,
            in_tree=group.in_tree,
        )

    def parameters(self, suffix: str) -> Iterator[tuple[str, str]]:
        if self.is_empty and (suffix or not self.in_tree):
            return
        amounts = sorted(f'{name}:{n}' for name, n in self.resources.items() if n)
        traits = _traits(self.required, self.forbidden)
        yield f'resources{suffix}', ','.join(amounts)
        if traits:
            yield f'required{suffix}', traits
        for any_of in self.members:
            yield f'member_of{suffix}', 'in:' + ','.join(sorted(any_of))
        if self.not_members:
            yield f'member_of{suffix}', '!in:' + ','.join(sorted(self.not_members))
        if self.in_tree:
            yield f'in_tree{suffix}', self.in_tree


def build(request: Request, settings: Settings, pinned: bool = True) -> Query:
    """The query for a request.

    :param pinned: count pinned CPUs as PCPU; the fallback for hosts that do not
        report any (``vcpu_pin_set``) counts them as VCPU.
    :raises BadRequest: a group from outside asks for nothing or has no name of its own.
    :raises NoValidHost: flavor and image contradict each other, or ask for a feature that
        does not exist.
    """
    draft = _draft(request, pinned)
    groups, policy, warnings = draft.groups, draft.policy, draft.warnings
    _from_destination(request, groups[''])
    if policy is None and sum(not group.is_empty for name, group in groups.items() if name) > 1:
        warnings.append(
            'There is more than one numbered request group in the allocation candidate query '
            'but the flavor did not specify any group policy.'
        )
        if draft.flavor_groups <= 1:
            policy = 'none'
    return Query(_encode(request, settings, groups, policy), tuple(warnings))


def every(request: Request, settings: Settings) -> list[Query]:
    """The queries for a request: a second one where hosts may report pinned CPUs as VCPU.

    :raises: what :func:`build` raises.
    """
    queries = [build(request, settings)]
    if has_fallback(request) and not settings.disable_fallback_pcpu_query:
        queries.append(build(request, settings, pinned=False))
    return queries


def limit(request: Request, settings: Settings) -> int | None:
    """How many candidates are asked for; None for all of them."""
    if request.unlimited or UNLIMITED_HINTS.intersection(request.scheduler_hints):
        return None
    return settings.max_placement_results


def required_traits(request: Request) -> frozenset[str]:
    """Every trait that flavor, image and groups from outside require of some provider.

    :raises: what :func:`build` raises.
    """
    groups = _draft(request, pinned=True).groups.values()
    return frozenset[str]().union(*(group.required for group in groups))


@dataclass(slots=True)
class _Draft:
    """The groups of a query by suffix ('' is the unsuffixed one), and how many of them
    come from the flavor."""

    groups: dict[str, _Group]
    policy: str | None
    flavor_groups: int
    warnings: list[str]


def _draft(request: Request, pinned: bool) -> _Draft:
    warnings: list[str] = []
    groups: dict[str, _Group] = {'': _Group()}
    policy = _from_flavor(request.flavor, groups, warnings)
    flavor_groups = len(groups) - 1
    _from_image(request.image, groups[''])
    if pinned:
        _pin(request.flavor, request.image, groups[''])
    _from_outside(request, groups)
    _amounts(request, groups)
    groups[''].resources.update(features.resources(request))
    groups[''].required.update(features.required_traits(request))
    return _Draft(groups, policy, flavor_groups, warnings)


def has_fallback(request: Request) -> bool:
    """Whether hosts that report pinned CPUs as VCPU could serve the request."""
    pins = pinning(request.flavor, request.image)
    return pins is not None and pins.policy == DEDICATED


def _from_flavor(flavor: Flavor, groups: dict[str, _Group], warnings: list[str]) -> str | None:
    """Take in ``resources[N]:`` and ``trait[N]:``; the answer is the group policy."""
    policy = None
    for key, value in flavor.extra_specs.items():
        if key == 'group_policy':
            if value in ('none', 'isolate'):
                policy = value
            else:
                warnings.append(
                    f"Invalid group_policy '{value}'. Valid values are 'none' and 'isolate'."
                )
            continue
        match = _KEY.match(key)
        if match is None:
            continue
        kind, suffix, name = match.groups()
        group = groups.setdefault(suffix or '', _Group())
        problem = (_add_resource if kind == 'resources' else _add_trait)(group, name, value)
        if problem:
            warnings.append(problem)
    return policy


def _add_resource(group: _Group, name: str, amount: str) -> str | None:
    if not name.startswith(classes.CUSTOM_NAMESPACE) and name not in classes.STANDARDS:
        return f"Received an invalid ResourceClass '{name}' in extra_specs."
    try:
        number = int(amount)
    except ValueError:
        number = -1
    if number < 0:
        return f"Resource amounts must be nonnegative integers. Received '{amount}'"
    group.resources[name] = number
    return None


def _add_trait(group: _Group, name: str, kind: str) -> str | None:
    if kind == 'required':
        group.required.add(name)
    elif kind == 'forbidden':
        group.forbidden.add(name)
    else:
        return f"Only (required, forbidden) traits are supported. Received '{kind}'."
    return None


def _from_image(image: Image | None, group: _Group) -> None:
    if image is not None:
        group.required.update(image.properties.get('traits_required', ()))


def _pin(flavor: Flavor, image: Image | None, group: _Group) -> None:
    pins = pinning(flavor, image)
    if pins is not None:
        group.resources[classes.PCPU] = pins.pcpus
        if pins.policy == MIXED:
            group.resources[classes.VCPU] = pins.vcpus
    smt = smt_trait(flavor, image)
    if smt:
        _add_trait(group, os_traits.HW_CPU_HYPERTHREADING, smt)


def _from_outside(request: Request, groups: dict[str, _Group]) -> None:
    for each in request.requested_resources:
        group = _Group.of(each)
        if not each.requester_id or each.requester_id in groups:
            raise BadRequest(f'request group without a name of its own: {each.requester_id}')
        if group.is_empty and not group.resources:
            raise BadRequest(f'request group {each.requester_id} asks for nothing')
        groups[each.requester_id] = group


def _amounts(request: Request, groups: Mapping[str, _Group]) -> None:
    """The flavor's own sizes, unless its extra specs speak of the same class."""
    flavor = request.flavor
    spoken_of = {name for group in groups.values() for name in group.resources}
    own = groups[''].resources
    if classes.VCPU not in spoken_of and classes.PCPU not in spoken_of:
        own[classes.VCPU] = flavor.vcpus
    if classes.MEMORY_MB not in spoken_of:
        own[classes.MEMORY_MB] = flavor.memory_mb
    if classes.DISK_GB not in spoken_of:
        swap_gb = -(-flavor.swap // 1024)
        root_gb = 0 if request.is_bfv else flavor.root_gb
        own[classes.DISK_GB] = root_gb + flavor.ephemeral_gb + swap_gb


def _from_destination(request: Request, group: _Group) -> None:
    destination = request.requested_destination
    if destination is not None:
        group.members.extend(destination.aggregates)
        group.not_members |= destination.forbidden_aggregates
    group.in_tree = request.in_tree


def _encode(
    request: Request, settings: Settings, groups: Mapping[str, _Group], policy: str | None
) -> str:
    parameters: list[tuple[str, str]] = []
    most = limit(request, settings)
    if most is not None:
        parameters.append(('limit', str(most)))
    if policy is not None:
        parameters.append(('group_policy', policy))
    root = _traits(request.root_required, request.root_forbidden)
    if root:
        parameters.append(('root_required', root))
    for suffixes in request.same_subtree:
        parameters.append(('same_subtree', ','.join(sorted(suffixes))))
    for suffix, group in groups.items():
        parameters.extend(group.parameters(suffix))
    return urlencode(sorted(parameters))


def _traits(required: frozenset[str] | set[str], forbidden: frozenset[str] | set[str]) -> str:
    return ','.join([*sorted(required), *(f'!{name}' for name in sorted(forbidden))])
