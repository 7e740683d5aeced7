# SPDX-License-Identifier: Apache-2.0
"""A Placement in memory.

The model answers the requests of a scheduler as Placement 16.0.0 does at microversion
1.36: allocation candidates, and the allocations of consumers with their generations. A
compute node serves the unsuffixed request group, and one provider of its tree serves each
other group. ``test_placement.py`` compares the answers.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import parse_qs

import os_traits

from novasched.tools.sandbox.computes import SandboxHost, stable_uuid

PROBE = 'name'
"""The parameter of the query by which a scheduler looks whether Placement answers."""
Answer = tuple[int, Any]
"""A status and a body."""
Parameters = Mapping[str, list[str]]
"""The values of each parameter of a query."""
Usages = Mapping[str, Mapping[str, int]]
"""The amounts in use, by provider and resource class."""


@dataclass
class Inventory:
    """The capacity of a resource class."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        return int((self.total - self.reserved) * self.allocation_ratio)


@dataclass
class Provider:
    """A resource provider.

    :ivar root: the UUID of its parent, a compute node; None for a compute node.
    """

    uuid: str
    inventories: dict[str, Inventory]
    traits: list[str] = field(default_factory=list)
    aggregates: set[str] = field(default_factory=set)
    generation: int = 0
    root: str | None = None


@dataclass
class Consumer:
    """A consumer, and its amounts by provider and resource class.

    A refusal by 400 leaves a new consumer behind, without allocations, in generation 0.
    """

    owner: Mapping[str, str]
    allocations: dict[str, dict[str, int]]
    generation: int


def refusal(status: int, detail: str, code: str = 'placement.undefined_code') -> Answer:
    """The answer to a request that is not carried out."""
    return status, {'errors': [{'status': status, 'detail': detail, 'code': code}]}


class PlacementModel:
    """Providers and consumers.

    :ivar trees: the providers of each tree, the compute node first, by the UUID of the
        compute node.
    :ivar changed: called with each compute node in whose tree usage changes.
    """

    def __init__(self, machines: Iterable[SandboxHost]) -> None:
        """:param machines: the hosts, each with its provider."""
        self.providers: dict[str, Provider] = {}
        self.trees: dict[str, list[Provider]] = {}
        for machine in machines:
            self.add(provider_of(machine))
        self.consumers: dict[str, Consumer] = {}
        self.changed: Callable[[str], None] = lambda provider: None

    def add(self, provider: Provider) -> None:
        """Add a provider, after the compute node of its tree."""
        self.providers[provider.uuid] = provider
        self.trees.setdefault(provider.root or provider.uuid, []).append(provider)

    def used(self, provider: str) -> Counter[str]:
        """The amounts in use on a provider."""
        used = Counter[str]()
        for consumer in self.consumers.values():
            if provider in consumer.allocations:
                used.update(consumer.allocations[provider])
        return used

    def used_on_all(self) -> dict[str, Counter[str]]:
        """The amounts in use on each provider."""
        used: dict[str, Counter[str]] = {uuid: Counter() for uuid in self.providers}
        for consumer in self.consumers.values():
            for provider, amounts in consumer.allocations.items():
                used[provider].update(amounts)
        return used

    def providers_in_use(self) -> set[str]:
        """The providers on which consumers have allocations."""
        in_use = set[str]()
        for consumer in self.consumers.values():
            in_use.update(consumer.allocations)
        return in_use

    def consumers_on(self, provider: str) -> int:
        """The number of consumers with allocations on a provider."""
        return sum(
            provider in consumer.allocations for consumer in self.consumers.values()
        )

    def held_by(self, consumer: str) -> dict[str, dict[str, int]]:
        """The allocations of a consumer, by provider and resource class."""
        known = self.consumers.get(consumer)
        return {} if known is None else known.allocations

    def generation_of(self, consumer: str) -> int | None:
        """The generation of a consumer; None for an unknown consumer."""
        known = self.consumers.get(consumer)
        return None if known is None else known.generation

    def handle(self, method: str, path: str, body: Any) -> Answer:
        """The answer to a request, which is carried out."""
        resource, _, query = path.partition('?')
        words = resource.strip('/').split('/')
        match method, words:
            case 'GET', ['allocation_candidates']:
                return self._candidates(parse_qs(query))
            case 'GET', ['resource_providers']:
                return 200, {'resource_providers': self._listed(query)}
            case 'GET', ['resource_providers', uuid, 'aggregates']:
                provider = self.providers[uuid]
                return 200, {'aggregates': sorted(provider.aggregates)}
            case 'GET', ['allocations', consumer]:
                return 200, self._allocations_of(consumer)
            case 'PUT', ['allocations', consumer]:
                return self._write({consumer: body})
            case 'POST', ['allocations']:
                return self._write(body)
            case 'DELETE', ['allocations', consumer]:
                return self._delete(consumer)
        raise NotImplementedError(f'{method} {path}')

    def _listed(self, query: str) -> list[Mapping[str, Any]]:
        """The providers of a list; none of the probe."""
        wanted = parse_qs(query)
        if PROBE in wanted:
            return []
        used = self.used_on_all()
        found = []
        for provider in self.providers.values():
            if self._serves(provider, wanted, used[provider.uuid]):
                root = provider.root or provider.uuid
                found.append({'uuid': provider.uuid, 'root_provider_uuid': root})
        return found

    def _candidates(self, wanted: Parameters) -> Answer:
        offers: list[Mapping[str, Any]] = []
        summaries = {}
        used = self.used_on_all()
        limit = int(*wanted.get('limit', [sys.maxsize]))
        for root, tree in self.trees.items():
            if len(offers) == limit:
                break
            if not self._serves(self.providers[root], wanted, used[root]):
                continue
            offers_of_tree = self._offers(tree, wanted, used)
            offers += offers_of_tree[: limit - len(offers)]
            if offers_of_tree:
                for provider in tree:
                    summary = _summary(provider, root, used[provider.uuid])
                    summaries[provider.uuid] = summary
        return 200, {'allocation_requests': offers, 'provider_summaries': summaries}

    def _offers(
        self, tree: Sequence[Provider], wanted: Parameters, used: Usages
    ) -> list[Mapping[str, Any]]:
        """The allocation requests of a tree whose compute node serves the unsuffixed
        request group: every way in which providers serve the other groups."""
        root = tree[0].uuid
        suffixes = []
        choices = []
        for suffix in _suffixes(wanted):
            serving = []
            for provider in tree:
                if _serves_group(provider, suffix, wanted, used[provider.uuid]):
                    serving.append(provider.uuid)
            suffixes.append(suffix)
            choices.append(serving)

        offers: list[Mapping[str, Any]] = []
        for chosen in product(*choices):
            is_isolated = len({*chosen}) == len(chosen)
            if wanted.get('group_policy') == ['isolate'] and not is_isolated:
                continue
            sums = {root: Counter(_amounts(wanted, ''))}
            mappings = {'': [root]}
            for suffix, uuid in zip(suffixes, chosen, strict=True):
                sums.setdefault(uuid, Counter()).update(_amounts(wanted, suffix))
                mappings[suffix] = [uuid]
            allocations = {}
            for uuid, amounts in sums.items():
                allocations[uuid] = {'resources': amounts}
            if all(
                _has_room(self.providers[uuid], amounts, used[uuid])
                for uuid, amounts in sums.items()
            ):
                offers.append({'allocations': allocations, 'mappings': mappings})
        return offers

    def _serves(
        self, provider: Provider, wanted: Parameters, used: Mapping[str, int]
    ) -> bool:
        """True if a provider meets the parameters of a query without a suffix."""
        if not _serves_group(provider, '', wanted, used):
            return False
        if not _has_traits(provider, wanted.get('root_required', ())):
            return False
        for text in wanted.get('member_of', ()):
            alternatives = text.removeprefix('!').removeprefix('in:').split(',')
            is_member = not provider.aggregates.isdisjoint(alternatives)
            if is_member is text.startswith('!'):
                return False
        return self._is_in_tree(provider, wanted)

    def _is_in_tree(self, provider: Provider, wanted: Parameters) -> bool:
        """True if a provider is in the tree of the provider that a query names."""
        root = provider.root or provider.uuid
        for uuid in wanted.get('in_tree', ()):
            if (self.providers[uuid].root or uuid) != root:
                return False
        return True

    def _allocations_of(self, uuid: str) -> Mapping[str, Any]:
        consumer = self.consumers.get(uuid)
        if consumer is None or not consumer.allocations:
            return {'allocations': {}}
        allocations = {}
        for provider, amounts in consumer.allocations.items():
            allocations[provider] = {
                'resources': amounts,
                'generation': self.providers[provider].generation,
            }
        return {
            'allocations': allocations,
            'consumer_generation': consumer.generation,
            **consumer.owner,
        }

    def _write(self, bodies: Mapping[str, Mapping[str, Any]]) -> Answer:
        """Replace the allocations of consumers, all or none."""
        new: dict[str, Consumer] = {}
        for uuid, body in bodies.items():
            known = self.generation_of(uuid)
            given = body['consumer_generation']
            if known != given:
                expected = 'null' if known is None else known
                return refusal(
                    409,
                    f'consumer generation conflict - expected {expected} but got '
                    f'{"null" if given is None else given}',
                    'placement.concurrent_update',
                )

            if known is None:
                new[uuid] = Consumer(_owner_in(body), {}, 0)

        wanted: dict[str, Counter[str]] = {}
        for body in bodies.values():
            for provider, allocation in body['allocations'].items():
                if provider not in self.providers:
                    self.consumers.update(new)
                    return refusal(400, 'there is no such resource provider')
                sums = wanted.setdefault(provider, Counter())
                sums.update(allocation['resources'])
        for provider, amounts in wanted.items():
            used = self.used(provider)
            for uuid in bodies:
                if uuid in self.consumers:
                    used.subtract(self.consumers[uuid].allocations.get(provider, {}))
            inventories = self.providers[provider].inventories
            for name, amount in amounts.items():
                inventory = inventories.get(name)
                if inventory is None or used[name] + amount > inventory.capacity:
                    return refusal(409, f'Unable to allocate inventory: {name}')

        for uuid, body in bodies.items():
            allocations = {}
            for provider, allocation in body['allocations'].items():
                allocations[provider] = dict(allocation['resources'])
            self._replace(uuid, body, allocations)
        return 204, None

    def _replace(
        self,
        uuid: str,
        body: Mapping[str, Any],
        allocations: dict[str, dict[str, int]],
    ) -> None:
        """Give a consumer other allocations. A consumer that loses its allocations is
        forgotten; a consumer that had none stays as it is."""
        before = self.consumers.get(uuid)
        if not allocations and (before is None or not before.allocations):
            return
        self.consumers.pop(uuid, None)
        touched = set(allocations)
        if before is not None:
            touched.update(before.allocations)
        if allocations:
            generation = 1 if before is None else before.generation + 1
            self.consumers[uuid] = Consumer(_owner_in(body), allocations, generation)
        roots = {}
        for provider in touched:
            self.providers[provider].generation += 1
            roots[self.providers[provider].root or provider] = True
        for root in roots:
            self.changed(root)

    def remove(self, uuid: str, root: str) -> None:
        """Remove the allocations of a consumer in a tree, if there are any."""
        consumer = self.consumers.get(uuid)
        if consumer is None:
            return
        kept = {**consumer.allocations}
        for provider in self.trees[root]:
            kept.pop(provider.uuid, None)
        if len(kept) < len(consumer.allocations):
            self._replace(uuid, consumer.owner, kept)

    def _delete(self, uuid: str) -> Answer:
        consumer = self.consumers.get(uuid)
        if consumer is None or not consumer.allocations:
            return refusal(404, 'there are no allocations')
        self._replace(uuid, {}, {})
        return 204, None


def provider_of(machine: SandboxHost) -> Provider:
    """The provider of a machine, with the inventories of its nova-compute."""
    inventories = {}
    for name, values in machine.inventories.items():
        inventories[name] = Inventory(
            int(values['total']), int(values['reserved']), values['allocation_ratio']
        )
    aggregates = set()
    if machine.zone is not None:
        aggregates.add(stable_uuid('aggregate', machine.zone))
    return Provider(machine.uuid, inventories, [os_traits.OWNER_NOVA], aggregates)


def _owner_in(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The owner of a consumer in the body of a request."""
    return {'project_id': body['project_id'], 'user_id': body['user_id']}


def _suffixes(wanted: Parameters) -> list[str]:
    """The suffixes of the request groups of a query."""
    suffixes = []
    for parameter in wanted:
        suffix = parameter.removeprefix('resources')
        if suffix and suffix != parameter:
            suffixes.append(suffix)
    return suffixes


def _amounts(wanted: Parameters, suffix: str) -> dict[str, int]:
    """The amounts that a query asks for in a request group, by resource class."""
    amounts = {}
    for text in wanted.get(f'resources{suffix}', ()):
        for pair in text.split(','):
            name, _, amount = pair.partition(':')
            amounts[name] = int(amount)
    return amounts


def _serves_group(
    provider: Provider, suffix: str, wanted: Parameters, used: Mapping[str, int]
) -> bool:
    """True if a provider has the room and the traits for a request group."""
    if not _has_room(provider, _amounts(wanted, suffix), used):
        return False
    return _has_traits(provider, wanted.get(f'required{suffix}', ()))


def _has_room(
    provider: Provider, amounts: Mapping[str, int], used: Mapping[str, int]
) -> bool:
    """True if a provider has room for amounts."""
    for name, amount in amounts.items():
        inventory = provider.inventories.get(name)
        if inventory is None or used.get(name, 0) + amount > inventory.capacity:
            return False
    return True


def _has_traits(provider: Provider, texts: Iterable[str]) -> bool:
    """True if a provider has the required traits and no forbidden trait."""
    for text in texts:
        for name in text.split(','):
            trait = name.removeprefix('!')
            if (trait in provider.traits) is (trait != name):
                return False
    return True


def _summary(
    provider: Provider, root: str, used: Mapping[str, int]
) -> Mapping[str, Any]:
    """A provider in the summaries of an answer."""
    resources = {}
    for name, inventory in provider.inventories.items():
        resources[name] = {'capacity': inventory.capacity, 'used': used[name]}
    return {
        'resources': resources,
        'traits': provider.traits,
        'parent_provider_uuid': provider.root,
        'root_provider_uuid': root,
    }
