# SPDX-License-Identifier: Apache-2.0
"""The texts for hosts that do not meet a constraint of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import os_traits

from novasched.conf.redaction import one_line
from novasched.observe.records import render
from novasched.placement import query
from novasched.placement.query import Constraint
from novasched.placement.wire import Inventory
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.request import Request

ANOTHER = 'not the requested host'
ZONE = 'in another zone'
PROJECTS = 'for other projects'
OUTSIDE = 'outside of the aggregates'
FIRST_OF_KIND = (ZONE, PROJECTS, OUTSIDE, render.DISABLED)
"""Constraints that come before the other constraints of their kind."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A constraint that a host does not meet.

    :ivar rank: position of the constraint. A host counts under its lack of the lowest
        rank.
    :ivar words: the lack in words that follow a number of hosts.
    :ivar reason: the lack of this host.
    :ivar name: the constraint, in the words of the user or operator who set it.
    :ivar resource_class: the class of a resource that is lacking; empty for another
        constraint, and if the cause is known or other providers share the resource.
    :ivar amount: the amount of the resource.
    """

    rank: int
    words: str
    reason: str
    name: str = ''
    resource_class: str = ''
    amount: int = 0


class ConstraintTexts:
    """The texts for hosts that do not meet a constraint.

    :param is_own: no provider is shared, so a host has the amounts of its own tree.
    :ivar position: the position of the constraint in the order in which hosts count.
    """

    def __init__(
        self,
        constraint: Constraint,
        request: Request,
        aggregates: AggregateList,
        is_own: bool,
    ) -> None:
        self.constraint = constraint
        self._is_own = is_own
        self._lacks: dict[str, Lack] = {}
        self._amount = 0
        kind = constraint.kind
        value = constraint.value
        if kind == 'resource':
            value, _, amount = value.partition(':')
            self._amount = int(amount)
            words = f'lack {value}'
            name = f'{amount} {value}'
        elif kind == 'aggregates':
            words, name = _aggregates(constraint, request, aggregates)
        elif kind == 'host':
            words = ANOTHER
            name = f'the one host {value}'
        elif constraint.forbidden and value == os_traits.COMPUTE_STATUS_DISABLED:
            words = render.DISABLED
            name = 'leaving out disabled hosts'
        elif constraint.forbidden:
            words = f'have {value}'
            name = f'forbidding trait {value}'
        else:
            words = f'lack {value}'
            name = f'trait {value}'

        if constraint.group:
            name = f'{name} (group {constraint.group})'
        self._value = value
        self._words = one_line(words)
        self._name = one_line(name)
        first = len(FIRST_OF_KIND)
        if words in FIRST_OF_KIND:
            first = FIRST_OF_KIND.index(words)
        self.position = (query.ORDER.index(kind), first)

    def __call__(self, host: Host, rank: int) -> Lack:
        # Thousands of hosts share a few lacks.
        reason = self._reason(host)
        lack = self._lacks.get(reason)
        if lack is None:
            lack = Lack(rank, self._words, reason, self._name)
            if self._amount and self._is_own and reason == self._name:
                lack = replace(lack, resource_class=self._value, amount=self._amount)
            self._lacks[reason] = lack
        return lack

    def _reason(self, host: Host) -> str:
        if self._words == render.DISABLED:
            if host.service.disabled:
                return one_line(f'disabled, reason: {host.service.disabled_reason}')
            return 'its provider is marked so, though its service is enabled'

        if not self._amount or not self._is_own:
            return self._name
        inventory = _inventory(host, self._value)
        if inventory is None:
            return self._name
        return f'{self._name}, {cause_of(inventory, self._amount)}'


def cause_of(inventory: Inventory, amount: int) -> str:
    """The cause why the inventory of a host cannot give an amount to an instance."""
    if amount > (inventory.total - inventory.reserved) * inventory.allocation_ratio:
        return 'more than there is'
    if amount > inventory.max_unit:
        return f'more than a server may have ({inventory.max_unit})'
    if amount < inventory.min_unit:
        return f'at least {inventory.min_unit} at once'
    if amount % inventory.step_size:
        return f'only in units of {inventory.step_size}'
    return 'in use or reserved'


def _inventory(host: Host, resource_class: str) -> Inventory | None:
    """The inventory that nova-compute reports for a host, without the reserved amount;
    None if nova's databases do not tell.

    Dedicated CPUs are PCPU, all others VCPU. Overcommitment is for several instances:
    nova-compute sets ``max_unit`` to the total.
    """
    topology = host.numa_topology
    dedicated = 0
    if topology is not None:
        dedicated, _ = topology.dedicated_cpus

    if resource_class == 'VCPU':
        total = host.vcpus_total - dedicated
        ratio = host.cpu_allocation_ratio
    elif resource_class == 'PCPU' and topology is not None:
        total = dedicated
        ratio = 1.0
    elif resource_class == 'MEMORY_MB':
        total = host.total_usable_ram_mb
        ratio = host.ram_allocation_ratio
    elif resource_class == 'DISK_GB':
        total = host.total_usable_disk_gb
        ratio = host.disk_allocation_ratio
    else:
        return None
    return Inventory(total, max_unit=total, allocation_ratio=ratio)


def _aggregates(
    constraint: Constraint, request: Request, aggregates: AggregateList
) -> tuple[str, str]:
    """Words and name of a constraint to aggregates.

    The prefilters turn the availability zone of a request and, with ``[scheduler]
    limit_tenants_to_placement_aggregate``, the project into sets of aggregates. The
    words name the zone or the project if the aggregates show the origin.
    """
    members = set(constraint.value.removeprefix('in:').split(','))
    names_by_uuid = {aggregate.uuid: aggregate.name for aggregate in aggregates}
    names = ', '.join(sorted(names_by_uuid.get(uuid, uuid) for uuid in members))
    if constraint.forbidden:
        return 'in isolated aggregates', f'staying out of aggregate {names}'

    zone = request.availability_zone
    if zone and _uuids(aggregates.in_zone(zone)) == members:
        return ZONE, f'availability zone {zone}'
    if _uuids(aggregates.reserved_for(request.project_id)) == members:
        return PROJECTS, f'aggregate {names}'
    return OUTSIDE, f'aggregate {names}'


def _uuids(aggregates: Sequence[Aggregate]) -> set[str | None]:
    return {aggregate.uuid for aggregate in aggregates}
