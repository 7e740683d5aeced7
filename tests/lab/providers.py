# SPDX-License-Identifier: Apache-2.0
"""Resource providers kept in memory, and Placement's answers about them: whatever a
query asks for is looked at provider by provider, and candidates are tried out."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from urllib.parse import parse_qsl

from keystoneauth1 import exceptions as ks_exc


@dataclass
class Provider:
    """What a provider has left, and of which kind it is; without a root it is one."""

    uuid: str
    left: dict[str, int] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    root: str = ''

    @property
    def tree(self):
        return self.root or self.uuid

    def meets(self, name, value):
        """One parameter of GET /resource_providers."""
        if name == 'resources':
            return all(self.left.get(rc, 0) >= n for rc, n in _amounts(value).items())
        if name == 'required':
            return all(
                (x.strip('!') in self.traits) != x.startswith('!')
                for x in value.split(',')
            )
        members = {*value.removeprefix('!').removeprefix('in:').split(',')}
        return self.aggregates.isdisjoint(members) == value.startswith('!')


class ProvidersInMemory:
    """In the place of a keystoneauth1 adapter.

    :ivar asked: the paths of all questions.
    :ivar unknown: a trait or resource class that Placement refuses to be asked about.
    """

    def __init__(self, providers, unknown=None, status=200):
        self.providers = {each.uuid: each for each in providers}
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
            return _response(
                400, {'errors': [{'detail': f'{REFUSED} No such: {self.unknown}.'}]}
            )
        if self.status != 200:
            return _response(self.status, {})
        pairs = parse_qsl(string)
        if kind == '/allocation_candidates':
            return _response(200, self._candidates(pairs))
        if kind == '/resource_providers':
            return _response(200, {'resource_providers': self._meeting(pairs)})
        (uuid,) = (
            kind.removeprefix('/resource_providers/')
            .removesuffix('/aggregates')
            .split('/')
        )
        return _response(200, {'aggregates': sorted(self.providers[uuid].aggregates)})

    def _meeting(self, pairs):
        return [
            {'uuid': each.uuid, 'root_provider_uuid': each.tree}
            for each in self.providers.values()
            if all(each.meets(*pair) for pair in pairs)
        ]

    def _candidates(self, pairs):
        groups = defaultdict(list)
        for name, value in pairs:
            for known in ('resources', 'required', 'member_of', 'in_tree'):
                if name.startswith(known):
                    groups[name.removeprefix(known)].append((known, value))
        root = [('required', value) for name, value in pairs if name == 'root_required']
        trees = defaultdict(list)
        for each in self.providers.values():
            trees[each.tree].append(each)
        found = [
            [each.uuid for each in chosen]
            for uuid, tree in trees.items()
            if all(self.providers[uuid].meets(*pair) for pair in root)
            if (chosen := self._choice(tree, groups))
        ]
        return {
            'allocation_requests': [
                {'allocations': {rp: {} for rp in each}} for each in found
            ],
            'provider_summaries': {
                each.uuid: {'root_provider_uuid': each.tree}
                for each in self.providers.values()
            },
        }

    def _choice(self, tree, groups):
        """Providers of a tree, and some that share with it, that serve all groups at
        once."""
        # of each class, or of each group: those that may serve it, and what they give
        rows = []
        for suffix, pairs in groups.items():
            asked = dict(pairs)
            if asked.get('in_tree', tree[0].tree) != tree[0].tree:
                return None
            amounts = _amounts(asked['resources'])
            parts = [{rc: n} for rc, n in amounts.items()] if not suffix else [amounts]
            for part in parts:
                text = ','.join(f'{rc}:{n}' for rc, n in part.items())
                able = [
                    x for x in self._reach(tree, suffix) if x.meets('resources', text)
                ]
                rows.append(
                    [(suffix, x, part) for x in able if self._fits(x, suffix, pairs)]
                )
        for choice in product(*rows):
            taken = defaultdict(Counter)
            traits = defaultdict(set)
            for suffix, provider, part in choice:
                taken[provider.uuid].update(part)
                traits[suffix] |= provider.traits
            required = (
                x
                for s, pairs in groups.items()
                for n, v in pairs
                if n == 'required'
                for x in v.split(',')
                if not x.startswith('!') and x not in traits[s]
            )
            enough = all(
                self.providers[uuid].left[rc] >= n
                for uuid, part in taken.items()
                for rc, n in part.items()
            )
            if enough and not any(required):
                return [provider for _, provider, _ in choice]
        return None

    def _reach(self, tree, suffix):
        mine = frozenset().union(*(each.aggregates for each in tree))
        sharing = (
            x
            for x in self.providers.values()
            if 'MISC_SHARES_VIA_AGGREGATE' in x.traits
        )
        return [*tree, *(x for x in sharing if not suffix and x.aggregates & mine)]

    def _fits(self, provider, suffix, pairs):
        """Forbidden traits and aggregates; those of an unsuffixed group may be the
        root's."""
        for name, value in pairs:
            if name == 'required' and any(
                f'!{x}' in value.split(',') for x in provider.traits
            ):
                return False
            if name == 'member_of':
                of = provider.meets(name, value)
                of_root = self.providers[provider.tree].meets(name, value)
                by_root = (of and of_root) if value.startswith('!') else (of or of_root)
                if not (of if suffix else by_root):
                    return False
        return True


REFUSED = (
    'The server could not comply with the request since it is either malformed or otherwise '
    'incorrect.\n\n'
)


def _amounts(text):
    return {
        rc: int(n) for rc, _, n in (each.partition(':') for each in text.split(','))
    }


def _response(status, body):
    return SimpleNamespace(
        status_code=status, content=json.dumps(body).encode(), reason=''
    )
