# SPDX-License-Identifier: Apache-2.0
"""A Placement in memory.

The model answers the requests of a scheduler as Placement 16.0.0 does at microversion
1.36, for providers without children: allocation candidates, and the allocations of
consumers with their generations. ``test_placement.py`` compares the answers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
    """A resource provider without a parent."""

    uuid: str
    inventories: dict[str, Inventory]
    traits: list[str] = field(default_factory=list)
    aggregates: set[str] = field(default_factory=set)
    generation: int = 0


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

    :ivar changed: called with each provider whose usage changes.
    """

    def __init__(self, machines: Iterable[SandboxHost]) -> None:
        """:param machines: the hosts, each with its provider."""
        self.providers: dict[str, Provider] = {}
        for machine in machines:
            self.providers[machine.uuid] = provider_of(machine)
        self.consumers: dict[str, Consumer] = {}
        self.changed: Callable[[str], None] = lambda provider: None

    def used(self, provider: str) -> Counter[str]:
        """The amounts in use on a provider."""
        used = Counter[str]()
        for consumer in self.consumers.values():
            if provider in consumer.allocations:
                used.update(consumer.allocations[provider])
        return used

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
        found = []
        for provider in self.providers.values():
            if self._serves(provider, wanted, self.used(provider.uuid)):
                found.append({'uuid': provider.uuid})
        return found

    def _candidates(self, wanted: Parameters) -> Answer:
        offers = []
        summaries = {}
        amounts = _amounts(wanted)
        [limit] = wanted.get('limit', [len(self.providers)])
        for provider in self.providers.values():
            used = self.used(provider.uuid)
            if len(offers) == int(limit):
                break
            if not self._serves(provider, wanted, used):
                continue
            offers.append(
                {
                    'allocations': {provider.uuid: {'resources': amounts}},
                    'mappings': {'': [provider.uuid]},
                }
            )
            resources = {}
            for name, inventory in provider.inventories.items():
                resources[name] = {'capacity': inventory.capacity, 'used': used[name]}
            summaries[provider.uuid] = {
                'resources': resources,
                'traits': provider.traits,
                'parent_provider_uuid': None,
                'root_provider_uuid': provider.uuid,
            }
        return 200, {'allocation_requests': offers, 'provider_summaries': summaries}

    def _serves(
        self, provider: Provider, wanted: Parameters, used: Mapping[str, int]
    ) -> bool:
        """True if a provider meets the parameters of a query."""
        for name, amount in _amounts(wanted).items():
            inventory = provider.inventories.get(name)
            if inventory is None or used.get(name, 0) + amount > inventory.capacity:
                return False
        for traits in (*wanted.get('required', ()), *wanted.get('root_required', ())):
            for text in traits.split(','):
                name = text.removeprefix('!')
                if (name in provider.traits) is (name != text):
                    return False
        for text in wanted.get('member_of', ()):
            alternatives = text.removeprefix('!').removeprefix('in:').split(',')
            is_member = not provider.aggregates.isdisjoint(alternatives)
            if is_member is text.startswith('!'):
                return False
        return provider.uuid in wanted.get('in_tree', [provider.uuid])

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
        for provider in touched:
            self.providers[provider].generation += 1
            self.changed(provider)

    def remove(self, uuid: str, provider: str) -> None:
        """Remove the allocations of a consumer on a provider, if there are any."""
        consumer = self.consumers.get(uuid)
        if consumer is None or provider not in consumer.allocations:
            return
        kept = {**consumer.allocations}
        del kept[provider]
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


def _amounts(wanted: Parameters) -> dict[str, int]:
    """The amounts that a query asks for, by resource class."""
    amounts = {}
    for text in wanted.get('resources', ()):
        for pair in text.split(','):
            name, _, amount = pair.partition(':')
            amounts[name] = int(amount)
    return amounts
