# SPDX-License-Identifier: Apache-2.0
"""The worth of free capacity, against a count host by host."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.weighers.usable_capacity import (
    REACH,
    Demand,
    FreeCapacity,
    PartDemand,
    UsualDemands,
)

NAMES = ('VCPU', 'MEMORY_MB')
SIZES = st.integers(1, 6)
ROOM = st.integers(-2, 12)
PARTS = 3
COUNTS = st.integers(1, PARTS + 1)


@st.composite
def demands(draw):
    """A demand on the host as a whole, and perhaps on its parts."""
    amounts = tuple((name, float(draw(SIZES))) for name in NAMES)
    parts = ()
    if draw(st.booleans()):
        parts = (PartDemand('cell', draw(COUNTS), (('PCPU', float(draw(SIZES))),)),)
    return Demand(amounts, parts)


HOSTS = st.lists(
    st.tuples(ROOM, ROOM, st.lists(ROOM, min_size=PARTS, max_size=PARTS)),
    min_size=1,
    max_size=5,
)
KINDS = st.lists(st.tuples(demands(), st.integers(0, 5)), min_size=1, max_size=4)


def room_of(cell, amount):
    """The number of times that a cell has an amount."""
    if cell < amount:
        return 0.0
    return cell / amount


def number_of_guests(host, demand):
    """The number of guests that fit on a host, counted in small steps."""
    vcpus, memory, cells = host
    sizes = dict(demand.amounts)
    number = min(vcpus / sizes['VCPU'], memory / sizes['MEMORY_MB'])
    for part in demand.parts:
        [(_, amount)] = part.amounts
        rooms = [room_of(cell, amount) for cell in cells]
        number = min(number, most_guests(rooms, part.count))
    return number if number >= 1.0 else 0.0


def most_guests(rooms, count):
    """The greatest number of guests for which the parts suffice, if each part serves a
    guest once, by bisection."""
    low = 0.0
    high = sum(rooms) / count
    for _ in range(60):
        middle = (low + high) / 2
        if sum(min(middle, room) for room in rooms) >= count * middle - 1e-12:
            low = middle
        else:
            high = middle
    return low


def with_guest(host, demand):
    """A host after it has taken a guest."""
    vcpus, memory, cells = host
    sizes = dict(demand.amounts)
    cells = list(cells)
    for part in demand.parts:
        [(_, amount)] = part.amounts
        order = sorted(
            range(len(cells)), key=lambda cell: room_of(cells[cell], amount) or np.inf
        )
        for cell in order[: part.count]:
            if room_of(cells[cell], amount):
                cells[cell] -= amount
    return vcpus - sizes['VCPU'], memory - sizes['MEMORY_MB'], cells


def within_reach(host, demand, name):
    """The free amount of a resource that a guest reaches, if a whole guest fits."""
    _, memory, cells = host
    if not number_of_guests(host, demand):
        return 0.0
    if name == 'MEMORY_MB':
        return memory
    total = 0.0
    for part in demand.parts:
        [(_, amount)] = part.amounts
        total += sum(cell for cell in cells if cell >= amount)
    return total


@given(HOSTS, KINDS, demands(), st.sampled_from(['MEMORY_MB', 'PCPU']))
def test_the_loss_of_each_host_equals_a_host_by_host_count(
    hosts, kinds, demand, scarcest
):
    """Each host loses the usual guests that no longer fit, each times its weight, and
    the scarcest resource that guests no longer reach."""
    wanted = [kind for kind, _ in kinds]
    weights = [float(weight) for _, weight in kinds]
    needs = [scarcest in kind.sizes for kind in wanted]
    reach = [
        REACH * weight * is_needed
        for weight, is_needed in zip(weights, needs, strict=True)
    ]

    def worth(host):
        total = 0.0
        for kind, weight, of_unit in zip(wanted, weights, reach, strict=True):
            total += weight * number_of_guests(host, kind)
            total += of_unit * within_reach(host, kind, scarcest)
        return total

    expected = [worth(host) - worth(with_guest(host, demand)) for host in hosts]
    usual = UsualDemands(wanted, weights, {scarcest: reach})
    loss = usual.loss(capacity(hosts), demand)
    assert loss.tolist() == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.integers(50, 500), min_size=2), st.integers(1, 7))
def test_hosts_that_lose_as_much_have_equal_losses(rooms, size):
    """Hosts that lose as much have equal losses with any room."""
    kinds = [Demand((('VCPU', 3.0),)), Demand((('VCPU', 7.0),))]
    usual = UsualDemands.of(kinds, [0.3, 11.0], {'VCPU': 1000.0})
    free = FreeCapacity(len(rooms), {'VCPU': np.array(rooms, float)})
    loss = usual.loss(free, Demand((('VCPU', float(size)),)))
    assert len(set(loss.tolist())) == 1


@given(KINDS)
def test_the_resource_with_the_most_demand_is_in_reach(kinds):
    """Of two resources with as much capacity, the resource that guests ask more of is
    in reach."""
    wanted = [kind for kind, _ in kinds]
    numbers = [float(number) for _, number in kinds]
    asked = dict.fromkeys(NAMES, 0.0)
    for kind, number in zip(wanted, numbers, strict=True):
        for name in NAMES:
            asked[name] += number * kind.sizes[name]

    usual = UsualDemands.of(wanted, numbers, dict.fromkeys(NAMES, 100.0))
    most = max(asked.values())
    expected = {}
    for name in NAMES:
        if most and asked[name] == most:
            expected[name] = [REACH * number / 100.0 for number in numbers]
    found = {name: of_kinds.tolist() for name, of_kinds in usual.reach.items()}
    assert found == expected


def capacity(hosts):
    """The free capacity of hosts in columns."""
    columns = [np.array(column, float) for column in zip(*hosts, strict=True)]
    return FreeCapacity(
        len(hosts),
        dict(zip(NAMES, columns[:2], strict=True)),
        {'cell': {'PCPU': columns[2]}},
    )


def whole_guests(host, demand):
    """The number of whole guests of a kind that fill a host, placed one by one."""
    vcpus, memory, cells = host
    sizes = dict(demand.amounts)
    number = 0
    while True:
        vcpus -= sizes['VCPU']
        memory -= sizes['MEMORY_MB']
        if vcpus < 0 or memory < 0:
            return number
        for part in demand.parts:
            [(_, amount)] = part.amounts
            # The emptiest cells first: then no choice fits more guests.
            cells = sorted(cells, reverse=True)
            if len([cell for cell in cells if cell >= amount]) < part.count:
                return number
            for cell in range(part.count):
                cells[cell] -= amount
        number += 1


@given(HOSTS, KINDS)
def test_capacity_that_no_usual_guest_uses_is_stranded(hosts, kinds):
    """The capacity that no kind of guests uses, if its guests fill the host, is
    stranded."""
    wanted = [kind for kind, _ in kinds]
    usual = UsualDemands(wanted, [1.0] * len(wanted))
    free = capacity(hosts)
    numbers = [[whole_guests(host, kind) for host in hosts] for kind in wanted]
    assert usual.whole_guests(free).tolist() == numbers

    for name, found in usual.stranded(free).items():
        stranded = 0.0
        for host, of_host in zip(hosts, zip(*numbers, strict=True), strict=True):
            amounts = [*host[:2], sum(max(cell, 0) for cell in host[2])]
            left = max(amounts[[*NAMES, 'PCPU'].index(name)], 0)
            used = 0.0
            for kind, number in zip(wanted, of_host, strict=True):
                used = max(used, number * kind.sizes.get(name, 0.0))
            stranded += left - used
        assert found.amount == stranded
        assert sum(found.by.values()) == stranded
