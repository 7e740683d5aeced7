# SPDX-License-Identifier: Apache-2.0
"""Resource providers in memory, and the answers of Placement about these providers. A
query is compared with provider after provider, and candidates are found by trial."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from urllib.parse import parse_qsl

from keystoneauth1 import exceptions as ks_exc


@dataclass
class Provider:
    """A resource provider.

    :ivar left: free amounts by resource class.
    :ivar root: the UUID of the root provider; empty for a root provider.
    :ivar inventories: the body of GET /resource_providers/{uuid}/inventories, by
        resource class.
    """

    uuid: str
    left: dict[str, int] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    root: str = ''
    inventories: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def tree(self):
        return self.root or self.uuid

    def meets(self, name, value):
        """True if the provider matches a parameter of GET /resource_providers."""
        if name == 'resources':
            return self.has_amounts(_amounts(value))

        if name == 'required':
            for trait in value.split(','):
                is_forbidden = trait.startswith('!')
                if (trait.strip('!') in self.traits) == is_forbidden:
                    return False
            return True

        members = {*value.removeprefix('!').removeprefix('in:').split(',')}
        return self.aggregates.isdisjoint(members) == value.startswith('!')

    def has_amounts(self, amounts):
        """True if the provider has these amounts free."""
        return all(self.left.get(rc, 0) >= amount for rc, amount in amounts.items())


class ProvidersInMemory:
    """Stands for a keystoneauth1 adapter of Placement.

    :ivar asked: the paths of all requests.
    :ivar unknown: a trait or resource class that Placement does not know.
    :ivar status: the status of all answers; None for a refused connection.
    """

    def __init__(self, providers, unknown=None, status=200):
        self.providers = {provider.uuid: provider for provider in providers}
        self.unknown = unknown
        self.status = status
        self.asked = []

    def request(self, path, method, **_):
        assert method == 'GET'
        self.asked.append(path)
        if self.status is None:
            raise ks_exc.ConnectFailure('down')
        kind, _, string = path.partition('?')
        if self.unknown and self.unknown in string:
            detail = f'{REFUSED} No such: {self.unknown}.'
            return _response(400, {'errors': [{'detail': detail}]})
        if self.status != 200:
            return _response(self.status, {})

        pairs = parse_qsl(string)
        if kind == '/allocation_candidates':
            return _response(200, self._candidates(pairs))
        if kind == '/resource_providers':
            return _response(200, {'resource_providers': self._matching(pairs)})

        # /resource_providers/{uuid}/aggregates and /inventories
        _, _, uuid, part = kind.split('/')
        provider = self.providers[uuid]
        if part == 'inventories':
            return _response(200, {'inventories': provider.inventories})
        return _response(200, {'aggregates': sorted(provider.aggregates)})

    def _matching(self, pairs):
        """The providers that match all parameters."""
        matching = []
        for provider in self.providers.values():
            if all(provider.meets(*pair) for pair in pairs):
                uuids = {'uuid': provider.uuid, 'root_provider_uuid': provider.tree}
                matching.append(uuids)
        return matching

    def _candidates(self, pairs):
        """The body of GET /allocation_candidates."""
        groups = defaultdict(list)
        root_required = []
        for name, value in pairs:
            if name == 'root_required':
                root_required.append(value)
            for parameter in ('resources', 'required', 'member_of', 'in_tree'):
                if name.startswith(parameter):
                    suffix = name.removeprefix(parameter)
                    groups[suffix].append((parameter, value))
        trees = defaultdict(list)
        summaries = {}
        for provider in self.providers.values():
            trees[provider.tree].append(provider)
            summaries[provider.uuid] = {'root_provider_uuid': provider.tree}

        requests = []
        for uuid, tree in trees.items():
            root = self.providers[uuid]
            if not all(root.meets('required', value) for value in root_required):
                continue
            if providers := self._choice(tree, groups):
                allocations = {provider.uuid: {} for provider in providers}
                requests.append({'allocations': allocations})
        return {'allocation_requests': requests, 'provider_summaries': summaries}

    def _choice(self, tree, groups):
        """Providers of a tree, and providers that share with the tree, that serve all
        groups at once."""
        # One row for each suffixed group, and for each resource class of the unsuffixed
        # group: the providers that may serve it, with its suffix and amounts.
        rows = []
        for suffix, pairs in groups.items():
            parameters = dict(pairs)
            if parameters.get('in_tree', tree[0].tree) != tree[0].tree:
                return None
            amounts = _amounts(parameters['resources'])
            parts = [amounts]
            if not suffix:
                parts = [{rc: amount} for rc, amount in amounts.items()]
            for part in parts:
                row = []
                for provider in self._within_reach(tree, suffix):
                    if not provider.has_amounts(part):
                        continue
                    if self._fits(provider, suffix, pairs):
                        row.append((suffix, provider, part))
                rows.append(row)

        for choice in product(*rows):
            if self._is_enough(choice) and _has_traits(choice, groups):
                return [provider for _, provider, _ in choice]
        return None

    def _is_enough(self, choice):
        """True if the providers of a choice have the amounts of all groups together."""
        used = defaultdict(Counter)
        for _, provider, part in choice:
            used[provider.uuid].update(part)
        return all(self.providers[uuid].has_amounts(used[uuid]) for uuid in used)

    def _within_reach(self, tree, suffix):
        """The providers that may serve a group of a tree. Sharing providers serve the
        unsuffixed group alone."""
        if suffix:
            return tree

        aggregates = frozenset().union(*(provider.aggregates for provider in tree))
        reachable = [*tree]
        for provider in self.providers.values():
            is_sharing = 'MISC_SHARES_VIA_AGGREGATE' in provider.traits
            if is_sharing and provider.aggregates & aggregates:
                reachable.append(provider)
        return reachable

    def _fits(self, provider, suffix, pairs):
        """True if a provider has no forbidden traits and the required aggregates. In the
        unsuffixed group the aggregates of the root count, too."""
        for name, value in pairs:
            if name == 'required':
                forbidden = {f'!{trait}' for trait in provider.traits}
                if forbidden.intersection(value.split(',')):
                    return False

            if name == 'member_of':
                is_member = provider.meets(name, value)
                is_root_member = self.providers[provider.tree].meets(name, value)
                if not suffix and value.startswith('!'):
                    is_member = is_member and is_root_member
                elif not suffix:
                    is_member = is_member or is_root_member
                if not is_member:
                    return False
        return True


def _has_traits(choice, groups):
    """True if the providers of each group have the required traits of the group."""
    traits = defaultdict(set)
    for suffix, provider, _ in choice:
        traits[suffix] |= provider.traits

    for suffix, pairs in groups.items():
        for name, value in pairs:
            if name != 'required':
                continue
            required = {t for t in value.split(',') if not t.startswith('!')}
            if not required <= traits[suffix]:
                return False
    return True


REFUSED = (
    'The server could not comply with the request since it is either malformed or otherwise '
    'incorrect.\n\n'
)


def _amounts(text):
    """The amounts by resource class of a parameter ``resources``."""
    amounts = {}
    for pair in text.split(','):
        name, _, amount = pair.partition(':')
        amounts[name] = int(amount)
    return amounts


def _response(status, body):
    return SimpleNamespace(
        status_code=status, content=json.dumps(body).encode(), reason=''
    )
