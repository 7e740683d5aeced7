# SPDX-License-Identifier: Apache-2.0
"""Request groups from the extra specs ``resources[N]:`` and ``trait[N]:``."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as classes

from novasched.scheduler.model.flavor import RequestGroup

_KEY = re.compile(r'(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$')


@dataclass(frozen=True, slots=True)
class FlavorGroups:
    """Groups by suffix, '' always among them, and warnings for the operator."""

    groups: Mapping[str, RequestGroup]
    policy: str | None = None
    warnings: tuple[str, ...] = ()


def flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Read the groups; what cannot be read makes a warning."""
    policy = None
    warnings = []
    resources: dict[str, dict[str, int]] = {'': {}}
    traits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, value in extra_specs.items():
        problem = None
        if key == 'group_policy':
            if value in ('none', 'isolate'):
                policy = value
            else:
                problem = f"Invalid group_policy '{value}'. Valid values are 'none' and 'isolate'."
        elif match := _KEY.match(key):
            kind, suffix, name = match[1], match[2] or '', match[3]
            amounts = resources.setdefault(suffix, {})
            if kind == 'resources':
                problem = _add_resource(amounts, name, value)
            elif value in ('required', 'forbidden'):
                traits[suffix, value].add(name)
            else:
                problem = f"Only (required, forbidden) traits are supported. Received '{value}'."
        if problem:
            warnings.append(problem)
    groups = {
        suffix: RequestGroup(
            requester_id=suffix or None,
            resources=amounts,
            required_traits=frozenset(traits[suffix, 'required']),
            forbidden_traits=frozenset(traits[suffix, 'forbidden']),
        )
        for suffix, amounts in resources.items()
    }
    return FlavorGroups(groups, policy, tuple(warnings))


def _add_resource(amounts: dict[str, int], name: str, value: str) -> str | None:
    if not name.startswith(classes.CUSTOM_NAMESPACE) and name not in classes.STANDARDS:
        return f"Received an invalid ResourceClass '{name}' in extra_specs."
    try:
        amount = int(value)
    except ValueError:
        amount = -1
    if amount < 0:
        return f"Resource amounts must be nonnegative integers. Received '{value}'"
    amounts[name] = amount
    return None
