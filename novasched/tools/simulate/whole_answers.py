# SPDX-License-Identifier: Apache-2.0
"""Placement's answers to base queries, with the hosts that Placement does not offer.

Placement offers the hosts that have room for one unit of each resource class. Where
servers leave, full hosts matter as well: their providers are read one by one.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from novasched.placement.base_answer import BaseAnswer
from novasched.placement.client import PlacementClient
from novasched.placement.query import LocalQuery
from novasched.placement.wire import (
    ProviderInventories,
    ProviderTraits,
    ProviderUsages,
    ResourceProviders,
)
from novasched.scheduler.model.host import Host
from novasched.tools.simulate.described_cloud import Provider, is_asked_for


class WholeAnswers:
    """Asks a Placement for all hosts.

    :param hosts: returns the hosts by UUID of the compute node.
    """

    def __init__(
        self, placement: PlacementClient, hosts: Callable[[], Mapping[str, Host]]
    ) -> None:
        self._placement = placement
        self._hosts = hosts
        # The trees of hosts that Placement has not offered, by compute node UUID.
        self._trees: dict[str, Sequence[Provider]] = {}

    def base_answer(self, local: LocalQuery) -> BaseAnswer:
        """The answer to a base query.

        :raises UnusableAnswer: hosts share providers, or the answer has another format.
        :raises PlacementUnavailable: no answer, or an error of Placement.
        """
        asked_at = time.monotonic()
        answer = msgspec.json.decode(self._placement.base_text(local))
        requests = answer['allocation_requests']
        summaries = answer['provider_summaries']
        offered = set()
        for request in requests:
            offered.update(request['allocations'])

        for uuid, host in self._hosts().items():
            if uuid in offered:
                continue
            tree = self._tree(uuid)
            if tree and is_asked_for(host, tree[0], local.base.parameters):
                requests.append({'allocations': {uuid: {'resources': {}}}})
                for provider in tree:
                    summaries[provider.uuid] = provider.summary
        return BaseAnswer(msgspec.json.encode(answer), asked_at)

    def _tree(self, root: str) -> Sequence[Provider]:
        """The tree of a host with its unused capacities, the compute node first; empty
        if Placement does not know the host."""
        if root not in self._trees:
            read = self._placement.read
            path = f'/resource_providers?in_tree={root}'
            listed = read(path, ResourceProviders).resource_providers
            tree = []
            for provider in sorted(listed, key=lambda each: each.uuid != root):
                tree.append(
                    Provider(
                        provider.uuid,
                        root,
                        self._unused(provider.uuid),
                        self._traits(provider.uuid),
                        provider.parent_provider_uuid,
                    )
                )
            self._trees[root] = tree
        return self._trees[root]

    def _unused(self, uuid: str) -> Mapping[str, int]:
        """The unused capacity of a provider by resource class; negative if more is in
        use than there is."""
        path = f'/resource_providers/{uuid}'
        inventories = self._placement.read(f'{path}/inventories', ProviderInventories)
        usages = self._placement.read(f'{path}/usages', ProviderUsages).usages
        unused = {}
        for name, inventory in inventories.inventories.items():
            usable = (inventory.total - inventory.reserved) * inventory.allocation_ratio
            unused[name] = int(usable) - usages.get(name, 0)
        return unused

    def _traits(self, uuid: str) -> Sequence[str]:
        path = f'/resource_providers/{uuid}/traits'
        traits: Sequence[str] = self._placement.read(path, ProviderTraits).traits
        return traits
