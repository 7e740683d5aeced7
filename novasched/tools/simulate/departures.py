# SPDX-License-Identifier: Apache-2.0
"""A host without some of its servers, and whether a request fits there then.

Filters judge the host as it would be; amounts are what Placement says of the host's own
provider, less what these servers hold."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement

import msgspec

from novasched.observe.records import render
from novasched.placement.api import PlacementApi
from novasched.scheduler.memory import candidate_of
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.tools.simulate.evacuations import Evacuee

MAX_KINDS = 24
"""Kinds of servers of a host of which sets are tried, the largest ones; servers are of
one kind if nothing that is asked for tells them apart."""
NESTED = 'asked for what their own provider alone cannot give, which is not looked at'
Why = tuple[str, str]
"""Words for the number of hosts that are rejected alike, and the reason of one."""


class _Inventory(msgspec.Struct):
    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1
    allocation_ratio: float = 1.0

    def has(self, amount: int, used: int) -> bool:
        """Tell whether one server can get this much beside what is in use."""
        fits = used + amount <= (self.total - self.reserved) * self.allocation_ratio
        is_one = (
            self.min_unit <= amount <= self.max_unit and not amount % self.step_size
        )
        return fits and is_one


class _Inventories(msgspec.Struct):
    inventories: dict[str, _Inventory]


class _Held(msgspec.Struct):
    resources: dict[str, int]


class _HeldByConsumer(msgspec.Struct):
    allocations: dict[str, _Held]


@dataclass(frozen=True)
class Provider:
    """Inventories of a resource provider by resource class, and what each consumer
    holds of it."""

    inventories: Mapping[str, _Inventory]
    held: Mapping[str, Mapping[str, int]]

    @cached_property
    def _used(self) -> Counter[str]:
        used = Counter[str]()
        for amounts in self.held.values():
            used.update(amounts)
        return used

    def lacking(self, amounts: Mapping[str, int], gone: AbstractSet[str]) -> list[str]:
        """The resource classes of which there is too little, once some consumers are
        gone."""
        found = []
        for name, amount in sorted(amounts.items()):
            free = sum(self.held.get(uuid, {}).get(name, 0) for uuid in gone)
            inventory = self.inventories.get(name)
            if inventory is None or not inventory.has(amount, self._used[name] - free):
                found.append(name)
        return found


def read_provider(api: PlacementApi, uuid: str) -> Provider:
    """Read what Placement has of a host's own provider.

    :raises PlacementUnavailable: Placement does not answer, or knows no such provider.
    """
    path = f'/resource_providers/{uuid}'
    inventories = (
        api.send('GET', f'{path}/inventories').decode(_Inventories).inventories
    )
    held = api.send('GET', f'{path}/allocations').decode(_HeldByConsumer).allocations
    return Provider(inventories, {name: each.resources for name, each in held.items()})


def wanted(evacuee: Evacuee) -> Request:
    """The request of a server that may go, which is known."""
    assert isinstance(evacuee.request, Request)
    return evacuee.request


def without(host: Host, gone: Sequence[Evacuee]) -> Host:
    """A host as it would be once servers without NUMA cells and devices have left it.
    Disks that are volumes took nothing of it."""
    flavors = [wanted(each).flavor for each in gone]
    local = [0 if wanted(each).is_bfv else wanted(each).flavor.root_gb for each in gone]
    disk_gb = sum(local) + sum(each.ephemeral_gb for each in flavors)
    uuids = {each.uuid for each in gone}
    return replace(
        host,
        free_ram_mb=host.free_ram_mb + sum(each.memory_mb for each in flavors),
        free_disk_mb=host.free_disk_mb + disk_gb * 1024,
        vcpus_used=host.vcpus_used - sum(each.vcpus for each in flavors),
        num_instances=host.num_instances - len(gone),
        instances={
            uuid: each for uuid, each in host.instances.items() if uuid not in uuids
        },
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A host that refuses a request, and the servers that may leave it.

    :ivar candidates: what Placement offers there; none where the amounts are too
        little.
    :ivar amounts: in that case those that a candidate would take, if they are the
        host's own.
    :ivar provider: the host's own, in that case.
    :ivar located: the hosts of the members of the request's group, by UUID.
    """

    host: Host
    request: Request
    pipeline: Pipeline
    servers: Sequence[Evacuee] = ()
    candidates: Sequence[Candidate] = ()
    amounts: Sequence[Mapping[str, int]] = ()
    provider: Provider | None = None
    located: Mapping[str, Host] = field(default_factory=dict)

    def why_not(self, gone: Sequence[Evacuee]) -> Why | None:
        """Why the request does not fit without these servers; None if it does."""
        uuids = {each.uuid for each in gone}
        candidates = [*self.candidates]
        if self.provider is not None:
            lacks = [self.provider.lacking(each, uuids) for each in self.amounts]
            if all(lacks):
                known = self.provider.inventories.keys()
                own = (
                    x
                    for x, want in zip(lacks, self.amounts, strict=True)
                    if want.keys() <= known
                )
                lack = next(own, None)
                return f'lack {" and ".join(lack)}' if lack else NESTED, ''
            fitting = (
                x for x, lack in zip(self.amounts, lacks, strict=True) if not lack
            )
            candidates = [candidate_of(self.host.uuid, each) for each in fitting]
        after = without(self.host, gone)
        request = self._asked(uuids)
        ranking = self.pipeline.filter(
            [after], request, 0, {self.host.uuid: candidates}
        )
        if ranking.hosts:
            return None
        result = next(each for each in reversed(ranking.filters) if each.reasons)
        return render.phrase(result.name, result.reasons[0]), result.reasons[0]

    @property
    def unmended(self) -> Why | None:
        """Verdict of the filters if all servers stay. Where it is the same without all
        that may go, no set in between is judged."""
        if self.provider is None:
            return self.why_not(())
        candidates = [candidate_of(self.host.uuid, each) for each in self.amounts]
        return replace(self, provider=None, candidates=candidates).why_not(())

    def _asked(self, gone: AbstractSet[str]) -> Request:
        """The request, whose group has no servers any more that are gone."""
        group = self.request.instance_group
        if group is None:
            return self.request
        here = self.host.instances.keys() & group.members
        is_left = bool(here - gone) or not here
        hosts = group.hosts if is_left else group.hosts - {self.host.host}
        others = self.located.keys() - gone - {self.request.instance_uuid or ''}
        located = {uuid: (self.located[uuid],) for uuid in others}
        group = replace(group, hosts=hosts, located=located)
        return replace(self.request, instance_group=group)

    def smallest(self, number: int) -> Sequence[Evacuee] | None:
        """A set of so many servers without which the request fits, of the least memory,
        if there is any."""
        for gone in sets(self._kinds(), number):
            if self.why_not(gone) is None:
                return gone
        return None

    def _kinds(self) -> list[list[Evacuee]]:
        """Servers that can stand for each other, by their memory; the largest kinds."""
        is_all, _, named, *_ = self.pipeline.needed_instances(self.request)
        group = self.request.instance_group
        held = self.provider.held if self.provider else {}
        asked_for = {*named, *(group.members if group else ())}
        kinds: dict[object, list[Evacuee]] = defaultdict(list)
        for each in sorted(self.servers, key=_size):
            request = wanted(each)
            own = held.get(each.uuid, {})
            is_one = is_all or each.uuid in asked_for
            flavor = request.flavor
            sizes = flavor.vcpus, flavor.memory_mb, flavor.root_gb, flavor.ephemeral_gb
            on_host = (
                str(self.host.instances[each.uuid].project_id),
                request.is_bfv,
                flavor.id,
            )
            key = sizes, on_host, frozenset(own.items()), each.uuid if is_one else ''
            kinds[key].append(each)
        return [*kinds.values()][-MAX_KINDS:]


def _size(evacuee: Evacuee) -> tuple[int, str]:
    return wanted(evacuee).flavor.memory_mb, evacuee.uuid


def sets(kinds: Sequence[Sequence[Evacuee]], number: int) -> Iterator[list[Evacuee]]:
    """All sets of so many servers of these kinds, the least memory first; of those that
    differ in nothing but which servers of a kind they have, one."""
    sizes = [_size(each[0])[0] for each in kinds]
    choices = (
        chosen
        for chosen in combinations_with_replacement(range(len(kinds)), number)
        if all(times <= len(kinds[i]) for i, times in Counter(chosen).items())
    )
    for chosen in sorted(choices, key=lambda x: (sum(sizes[i] for i in x), x)):
        yield [
            each for i, times in Counter(chosen).items() for each in kinds[i][:times]
        ]
