# SPDX-License-Identifier: Apache-2.0
"""Answers of Placement to base queries, made from trees of resource providers."""

import json
from dataclasses import dataclass, field

from novasched.placement.base_answer import BaseAnswer
from novasched.placement.trees import Group, TraitRule, TreeQuery

ASKED_AT = 100.0
HOST = {'VCPU': 16, 'MEMORY_MB': 4096}


@dataclass
class Provider:
    """A resource provider.

    :ivar free: the unused capacity by resource class.
    :ivar parent: the name of the parent; None for a compute node.
    """

    name: str
    free: dict[str, int] = field(default_factory=dict)
    parent: str | None = None
    traits: tuple[str, ...] = ()


def a_host(name, *devices, free=None):
    """The providers of a host with devices, each a pair of resource class and free
    amount. The devices are named after the host: ``name-0``, ``name-1``."""
    providers = [Provider(name, free or HOST)]
    for number, (resource_class, amount) in enumerate(devices):
        device = Provider(f'{name}-{number}', {resource_class: amount}, name)
        providers.append(device)
    return providers


def answer_text(providers, base_classes=('VCPU',)):
    """Placement's answer to a base query, with a candidate for each compute node."""
    roots = {}
    for provider in providers:
        roots[provider.name] = roots.get(provider.parent, provider.name)

    requests = []
    summaries = {}
    for provider in providers:
        resources = {}
        for name, amount in provider.free.items():
            resources[name] = {'capacity': amount + 1, 'used': 1}
        summaries[provider.name] = {
            'resources': resources,
            'traits': [*provider.traits],
            'root_provider_uuid': roots[provider.name],
            'parent_provider_uuid': provider.parent,
        }
        if provider.parent is None:
            allocation = {'resources': dict.fromkeys(base_classes, 1)}
            requests.append(
                {
                    'allocations': {provider.name: allocation},
                    'mappings': {'': [provider.name]},
                }
            )
    body = {'allocation_requests': requests, 'provider_summaries': summaries}
    return json.dumps(body).encode()


def an_answer(providers):
    return BaseAnswer(answer_text(providers), ASKED_AT)


def a_query(*suffixed, host=(('VCPU', 1),), **fields):
    """A query for a compute node, and for a device in each further group.

    :param suffixed: pairs of resource class and amount.
    """
    groups = [Group('', host)]
    for number, pair in enumerate(suffixed):
        groups.append(Group(f'_{number}', (pair,)))
    return TreeQuery(tuple(groups), **fields)


def a_rule(*required, forbidden=()):
    """A rule with required and forbidden traits."""
    return TraitRule(
        frozenset(frozenset((trait,)) for trait in required), frozenset(forbidden)
    )


def equal_groups(query):
    """Lists of suffixes. The groups of a list have equal amounts and traits and are in
    the same same_subtree sets."""
    suffixes = {}
    for group in query.groups:
        if group.suffix:
            subtrees = [group.suffix in subtree for subtree in query.same_subtrees]
            key = (group.amounts, group.traits, tuple(subtrees))
            suffixes.setdefault(key, []).append(group.suffix)
    return list(suffixes.values())
