# SPDX-License-Identifier: Apache-2.0
"""Request groups from the extra specs ``resources[N]:`` and ``trait[N]:``."""

import re
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
    traits: dict[str, dict[str, str]] = {'': {}}
    for key, value in extra_specs.items():
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
        kind, suffix, name = match[1], match[2] or '', match[3]
        amounts = resources.setdefault(suffix, {})
        if kind == 'resources':
            problem = _add_resource(amounts, name, value)
        else:
            problem = _add_trait(traits.setdefault(suffix, {}), name, value)
        if problem:
            warnings.append(problem)
    groups = {
        suffix: RequestGroup(
            requester_id=suffix or None,
            resources=amounts,
            required_traits=_of_kind(traits.get(suffix, {}), 'required'),
            forbidden_traits=_of_kind(traits.get(suffix, {}), 'forbidden'),
        )
        for suffix, amounts in resources.items()
    }
    return FlavorGroups(groups, policy, tuple(warnings))


def _of_kind(traits: Mapping[str, str], kind: str) -> frozenset[str]:
    return frozenset(name for name, value in traits.items() if value == kind)


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


def _add_trait(traits: dict[str, str], name: str, value: str) -> str | None:
    if value not in ('required', 'forbidden'):
        return f"Only (required, forbidden) traits are supported. Received '{value}'."
    traits[name] = value
    return None
