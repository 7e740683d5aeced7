# SPDX-License-Identifier: Apache-2.0
"""The worth of the free capacity of hosts for the usual guests of the cloud.

A guest fits on a host as often as the scarcest resource of the host allows. Free
capacity is worth the guests that fit, each by its share of the guests and by its size.
Capacity that a usual guest cannot use, since another resource of the host is scarcer,
is worth nothing to this guest.

The scarcest resource of the cloud counts in addition wherever a usual guest reaches the
resource: on a host that has room for the guest, all of the resource that is free.

A host has amounts as a whole, such as memory, and parts with amounts: NUMA cells and
devices. All arrays have a row for each host. Arrays of parts have a column for each
part; a host with fewer parts has zeros.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Amounts = tuple[tuple[Hashable, float], ...]
"""Pairs of the name of a resource and a positive amount."""

SCARCITY_POWER = 8
"""The price of a resource is this power of its scarcity: the share of the capacity of
the cloud that the usual guests ask for. The scarcer of two resources counts more."""

SIGNIFICANT_DIGITS = 9
"""Digits of a loss in units of the weights of all kinds together. Smaller digits are
rounding errors, even on a host with room for a hundred thousand guests."""

REACH = 6.0
"""The worth of a free unit of the scarcest resource within reach of a usual guest, in
units of the worth of a unit that the guests on a full host would use."""


@dataclass(frozen=True, slots=True)
class PartDemand:
    """The demand of a guest on parts of a host.

    :ivar kind: the kind of the parts.
    :ivar count: the number of different parts of which the guest takes the amounts.
    :ivar amounts: the amounts of each of these parts.
    """

    kind: Hashable
    count: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a guest on a host.

    :ivar amounts: the amounts of the host as a whole.
    """

    amounts: Amounts
    parts: tuple[PartDemand, ...] = ()

    @property
    def sizes(self) -> Mapping[Hashable, float]:
        """The amounts of the whole guest by the name of the resource."""
        sizes = dict(self.amounts)
        for part in self.parts:
            for name, amount in part.amounts:
                sizes[name] = sizes.get(name, 0.0) + part.count * amount
        return sizes


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The free capacity of hosts.

    :ivar hosts: the number of hosts.
    :ivar amounts: the amounts of the hosts as a whole, by the name of the resource.
    :ivar parts: the amounts of the parts, by kind and by the name of the resource.
    """

    hosts: int
    amounts: Mapping[Hashable, Numbers]
    parts: Mapping[Hashable, Mapping[Hashable, Numbers]] = field(default_factory=dict)

    def total_of(self, name: Hashable) -> Numbers:
        """The free amount of a resource on each host as a whole, in all parts; 0 for an
        overcommitted host."""
        total = np.zeros(self.hosts)
        if name in self.amounts:
            total = np.maximum(self.amounts[name], 0.0)
        for columns in self.parts.values():
            if name in columns:
                total = total + np.sum(np.maximum(columns[name], 0.0), axis=1)
        return total

    def without(self, demand: Demand) -> 'FreeCapacity':
        """The free capacity after each host has taken a guest.

        Of the parts that are large enough, the guest takes the parts with the least
        room, so that the other parts stay whole. Parts that are too small stay as they
        are: filters reject the host.
        """
        amounts = dict(self.amounts)
        for name, amount in demand.amounts:
            amounts[name] = amounts[name] - amount

        parts = dict(self.parts)
        for part in demand.parts:
            room = room_of_parts(parts[part.kind], part.amounts)
            narrowest = np.where(room > 0.0, room, np.inf)
            chosen = np.argsort(narrowest, axis=1, kind='stable')[:, : part.count]
            is_chosen = np.zeros(room.shape)
            np.put_along_axis(is_chosen, chosen, 1.0, axis=1)
            is_chosen *= room > 0.0
            left = dict(parts[part.kind])
            for name, amount in part.amounts:
                left[name] = left[name] - amount * is_chosen
            parts[part.kind] = left
        return FreeCapacity(self.hosts, amounts, parts)


def room_of_parts(free: Mapping[Hashable, Numbers], amounts: Amounts) -> Numbers:
    """The number of times that each part has the amounts, as a fraction; 0 if a part
    has too little for a single time."""
    rooms = [free[name] / amount for name, amount in amounts]
    room: Numbers = np.min(np.array(rooms), axis=0)
    return np.where(room < 1.0, 0.0, room)


def spread(room: Numbers, count: int) -> Numbers:
    """The number of guests, as a fraction, that can each take ``count`` different parts
    of a host.

    :param room: the number of guests that each part can serve.
    """
    if count == 1:
        number: Numbers = np.sum(room, axis=1)
        return number

    # A guest takes each part once. With k guests, each part serves k at most: for any
    # number of widest parts that serve k each, the other parts must serve the rest.
    ascending = np.sort(room, axis=1)
    number = np.full(len(room), np.inf)
    for widest in range(count):
        others = ascending[:, : max(0, room.shape[1] - widest)]
        number = np.minimum(number, np.sum(others, axis=1) / (count - widest))
    return number


def _whole_rooms(free: FreeCapacity, demand: Demand) -> Mapping[Hashable, Numbers]:
    """The number of whole guests that each host has room for, by the name of the
    resource or the kind of the parts."""
    rooms = {}
    for name, amount in demand.amounts:
        rooms[name] = np.floor(np.maximum(free.amounts[name], 0.0) / amount)
    for part in demand.parts:
        room = np.floor(room_of_parts(free.parts[part.kind], part.amounts))
        rooms[part.kind] = np.floor(spread(room, part.count))
    return rooms


@dataclass(frozen=True, slots=True)
class Stranded:
    """The free capacity of a resource, and how much of it no usual guest can use.

    :ivar by: parts of ``amount`` by the resource that is scarcer on the host.
    """

    free: float
    amount: float
    by: Mapping[Hashable, float]

    @property
    def scarcest(self) -> Hashable | None:
        """The resource that is scarcer for the largest part of ``amount``; None if
        nothing is stranded."""
        if not self.by:
            return None
        return max(self.by, key=self.by.__getitem__)


class UsualDemands:
    """The demands of the usual guests of a cloud.

    :ivar demands: the demand of a guest of each kind.
    :ivar weights: for each kind, the worth of one guest times the number of guests.
    :ivar reach: by name of a scarcest resource of the cloud, the worth of a free unit
        that a guest of each kind reaches; 0 for a kind that needs none.
    """

    def __init__(
        self,
        demands: Sequence[Demand],
        weights: Sequence[float],
        reach: Mapping[Hashable, Sequence[float]] | None = None,
    ) -> None:
        self.demands = tuple(demands)
        self.weights = np.array(weights, np.float64)
        self.reach: dict[Hashable, Numbers] = {}
        for name, of_kinds in (reach or {}).items():
            self.reach[name] = np.array(of_kinds, np.float64)
        # Decimals of a loss that matter.
        total = float(np.sum(self.weights))
        self._decimals = SIGNIFICANT_DIGITS
        if total > 0.0:
            self._decimals -= math.ceil(math.log10(total))
        # By name of a resource, the kinds that demand the resource.
        self._kinds: dict[Hashable, list[int]] = {}
        # Many kinds have equal demands on parts, whose room is worked out once.
        self._kinds_of_part: dict[PartDemand, list[int]] = {}
        amounts: dict[Hashable, list[float]] = {}
        for kind, demand in enumerate(demands):
            for name, amount in demand.amounts:
                self._kinds.setdefault(name, []).append(kind)
                amounts.setdefault(name, []).append(amount)
            for part in demand.parts:
                self._kinds_of_part.setdefault(part, []).append(kind)
        # The amounts of these kinds, each in a row.
        self._amounts: dict[Hashable, Numbers] = {}
        for name, column in amounts.items():
            self._amounts[name] = np.array(column, np.float64)[:, None]

    @classmethod
    def of(
        cls,
        demands: Sequence[Demand],
        numbers: Sequence[float],
        capacity: Mapping[Hashable, float],
    ) -> 'UsualDemands':
        """The demands with the worth of each guest, which is the sum over its resources
        of the price times the amount, and with the worth of capacity in reach.

        :param numbers: the number of guests of each kind.
        :param capacity: the capacity of the cloud by the name of the resource.
        """
        prices = prices_of(demands, numbers, capacity)
        weights = []
        for demand, number in zip(demands, numbers, strict=True):
            value = 0.0
            for name, size in demand.sizes.items():
                value += prices.get(name, 0.0) * size
            weights.append(number * value)

        reach = {}
        for name, price in prices.items():
            is_scarcest = math.isclose(price * capacity[name], 1.0)
            if is_scarcest:
                worth_of_unit = []
                for demand, number in zip(demands, numbers, strict=True):
                    is_needed = name in demand.sizes
                    worth_of_unit.append(REACH * price * number * is_needed)
                reach[name] = worth_of_unit
        return cls(demands, weights, reach)

    @property
    def kinds_of_parts(self) -> Collection[Hashable]:
        """The kinds of the parts that the demands need."""
        return {part.kind: None for part in self._kinds_of_part}.keys()

    def part_of(self, demand: Demand) -> Demand:
        """The part of a demand that matters to the usual guests."""
        amounts = []
        for name, amount in demand.amounts:
            if name in self._kinds:
                amounts.append((name, amount))
        kinds = self.kinds_of_parts
        parts = tuple(part for part in demand.parts if part.kind in kinds)
        return Demand(tuple(amounts), parts)

    def whole_guests(self, free: FreeCapacity) -> Numbers:
        """The number of whole guests that fit on each host, with a row for each kind
        and a column for each host."""
        number = np.empty((len(self.demands), free.hosts))
        for kind, demand in enumerate(self.demands):
            number[kind] = np.min([*_whole_rooms(free, demand).values()], axis=0)
        return number

    def stranded(self, free: FreeCapacity) -> Mapping[Hashable, Stranded]:
        """The free capacity of the hosts that the usual guests cannot use, by the name
        of the resource.

        A host can be filled with whole guests of one kind. For each resource, the kind
        counts that uses most of the resource.
        """
        names: dict[Hashable, None] = {}
        for demand in self.demands:
            names.update(dict.fromkeys(demand.sizes))
        rooms = [_whole_rooms(free, demand) for demand in self.demands]
        return {name: self._stranded(free, name, rooms) for name in names}

    def _stranded(
        self,
        free: FreeCapacity,
        name: Hashable,
        rooms: Sequence[Mapping[Hashable, Numbers]],
    ) -> Stranded:
        """The stranded amount of a resource.

        :param rooms: for each kind and resource, the guests that each host has room
            for.
        """
        most_used = np.full(free.hosts, -1.0)
        scarcest = np.empty(free.hosts, object)
        for demand, of_kind in zip(self.demands, rooms, strict=True):
            size = demand.sizes.get(name)
            if size is None:
                continue
            table = np.array([*of_kind.values()])
            used = size * np.min(table, axis=0)
            limits = np.array([*of_kind], object)
            is_better = used > most_used
            most_used[is_better] = used[is_better]
            scarcest[is_better] = limits[np.argmin(table, axis=0)][is_better]

        left = free.total_of(name)
        stranded = np.maximum(left - np.maximum(most_used, 0.0), 0.0)
        by: dict[Hashable, float] = {}
        for host in np.flatnonzero(stranded).tolist():
            by[scarcest[host]] = by.get(scarcest[host], 0.0) + float(stranded[host])
        return Stranded(float(np.sum(left)), float(np.sum(stranded)), by)

    def worth(self, free: FreeCapacity) -> Numbers:
        """The worth of the free capacity of each host."""
        rooms = {}
        for part in self._kinds_of_part:
            rooms[part] = room_of_parts(free.parts[part.kind], part.amounts)
        fitting = self._fitting(free, rooms)
        # 1 if a guest fits, and 0 if not. NumPy multiplies booleans more slowly.
        fits = np.minimum(fitting, 1.0)
        worth: Numbers = self.weights @ fitting
        return worth + self._worth_within_reach(free, rooms, fits)

    def _worth_within_reach(
        self, free: FreeCapacity, rooms: Mapping[PartDemand, Numbers], fits: Numbers
    ) -> Numbers:
        """The worth of the scarcest resources of the cloud that are free on each host,
        as far as a usual guest reaches them.

        :param rooms: see :meth:`_fitting`.
        :param fits: 1 for each kind and host if a guest fits, else 0.
        """
        worth = np.zeros(free.hosts)
        for name, worth_of_unit in self.reach.items():
            if name in self._kinds:
                left = np.maximum(free.amounts[name], 0.0)
                worth += left * (worth_of_unit @ fits)
            for part, kinds in self._kinds_of_part.items():
                if name in dict(part.amounts):
                    is_large = rooms[part] > 0.0
                    left = np.sum(free.parts[part.kind][name] * is_large, axis=1)
                    worth += left * (worth_of_unit[kinds] @ fits[kinds])
        return worth

    def _fitting(
        self, free: FreeCapacity, rooms: Mapping[PartDemand, Numbers]
    ) -> Numbers:
        """The number of guests that fit on each host, as a fraction, with a row for
        each kind and a column for each host; 0 if no whole guest fits.

        :param rooms: the number of times that each part serves a demand on parts.
        """
        number = np.full((len(self.demands), free.hosts), np.inf)
        for name, kinds in self._kinds.items():
            room = free.amounts[name] / self._amounts[name]
            if len(kinds) == len(number):
                # Without the copy that a selection of rows makes.
                np.minimum(number, room, out=number)
            else:
                number[kinds] = np.minimum(number[kinds], room)
        for part, kinds in self._kinds_of_part.items():
            number[kinds] = np.minimum(number[kinds], spread(rooms[part], part.count))
        number *= number >= 1.0
        return number

    def loss(self, free: FreeCapacity, demand: Demand) -> Numbers:
        """The worth that each host loses by a guest.

        Hosts that lose as much have equal losses: rounding errors are cut. Otherwise,
        the normalisation of weights would make the most of the errors.
        """
        loss = self.worth(free) - self.worth(free.without(demand))
        return np.round(loss, self._decimals)


def prices_of(
    demands: Sequence[Demand],
    numbers: Sequence[float],
    capacity: Mapping[Hashable, float],
) -> Mapping[Hashable, float]:
    """The price of a unit of each resource with a known capacity.

    All of the scarcest resource of the cloud is worth 1. All of another resource is
    worth less, by :data:`SCARCITY_POWER`.
    """
    asked = dict.fromkeys(capacity, 0.0)
    for demand, number in zip(demands, numbers, strict=True):
        for name, size in demand.sizes.items():
            if name in asked:
                asked[name] += number * size

    scarcity = {}
    for name, amount in capacity.items():
        if amount > 0.0:
            scarcity[name] = asked[name] / amount
    highest = max(scarcity.values(), default=0.0)
    if not highest:
        return {}
    prices = {}
    for name, share in scarcity.items():
        prices[name] = (share / highest) ** SCARCITY_POWER / capacity[name]
    return prices
