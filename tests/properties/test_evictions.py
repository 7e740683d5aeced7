# SPDX-License-Identifier: Apache-2.0
"""Servers that would have to go, against a twin that tries all sets of them."""

import json
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from novasched.observe.records.diagnosis import Lack
from novasched.placement.api import Response
from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.evictions import MAX_SERVERS, Evictor
from tests.lab.builders import a_flavor, a_group, a_host, a_request, a_uuid
from tests.lab.ports import Asked, a_simulator

NAMES = 'abc'
SIZES = (256, 512, 1024)
SPOT = {'preemptible': 'true'}
MOST_SERVERS = 5  # of max_instances_per_host
DISABLED = Lack(1, 'disabled', '', '')


@st.composite
def servers(draw):
    """A server's memory, whether it may go, and whether it is of the request's
    group."""
    return (
        draw(st.sampled_from(SIZES)),
        draw(st.booleans()),
        draw(st.integers(0, 4)) == 0,
    )


@st.composite
def clouds(draw):
    """Free memory of each host, its servers, and whether it is disabled; and what is
    asked for."""
    rows = {
        name: (
            draw(st.sampled_from([0, 100, 256, 1500, 4096])),
            draw(st.lists(servers(), max_size=6)),
            draw(st.integers(0, 5)) == 0,
        )
        for name in NAMES
    }
    return rows, draw(st.sampled_from([256, 512, 1024, 2048])), draw(st.booleans())


def uuid_of(name, i):
    return a_uuid(f'{name}{i}')


class Reader:
    """The servers of hosts."""

    def __init__(self, rows):
        self.evacuees = [
            Evacuee(
                uuid_of(name, i),
                name,
                'active',
                a_request(flavor=a_flavor(SPOT if may_go else None, memory_mb=size)),
            )
            for name, (_, its, _) in rows.items()
            for i, (size, may_go, _) in enumerate(its)
        ]

    def on(self, hosts):
        return [each for each in self.evacuees if each.host in hosts]


class Api:
    """A Placement whose providers are full up to what hosts have free."""

    def __init__(self, rows):
        self.answers = {}
        for name, (free, its, _) in rows.items():
            held = {uuid_of(name, i): size for i, (size, _, _) in enumerate(its)}
            memory = {'total': 64 + free + sum(held.values()), 'reserved': 64}
            inventories = {
                'MEMORY_MB': memory,
                'VCPU': {'total': 99},
                'DISK_GB': {'total': 99},
            }
            allocations = {x: {'resources': {'MEMORY_MB': n}} for x, n in held.items()}
            path = f'/resource_providers/{a_uuid(name)}'
            self.answers[f'{path}/inventories'] = {'inventories': inventories}
            self.answers[f'{path}/allocations'] = {'allocations': allocations}

    def send(self, method, path):
        return Response(200, json.dumps(self.answers[path]).encode())


def brute(rows, name, wanted, grouped):
    """The number and the memory of the smallest set of a host's servers; None if there
    is none."""
    free, its, is_disabled = rows[name]
    found = []
    may_go = [each for each in its if each[1]]
    for number in range(len(may_go) + 1):
        for gone in combinations(may_go, number):
            members = sum(x[2] for x in its) - sum(x[2] for x in gone)
            fits = free + sum(x[0] for x in gone) >= wanted
            if fits and len(its) - number < MOST_SERVERS and not (grouped and members):
                found.append((number, sum(x[0] for x in gone)))
    if is_disabled:
        return None
    return min(found, default=None)


@given(clouds())
def test_no_smaller_set(cloud):
    """Each host is found with a set as small as any; on the others more would have to
    go, or all are not enough; afterwards the simulator is as before."""
    rows, wanted, grouped = cloud
    hosts = [
        a_host(
            name,
            ram=free,
            instances=[uuid_of(name, i) for i in range(len(its))],
            num_instances=len(its),
        )
        for name, (free, its, _) in rows.items()
    ]
    room = {a_uuid(name): 0 if off else free for name, (free, _, off) in rows.items()}
    simulator = a_simulator(
        hosts, Asked(room, wanted), max_instances_per_host=MOST_SERVERS
    )
    off = {a_uuid(name) for name, row in rows.items() if row[2]}
    amount = Lack(2, 'lack MEMORY_MB', '', '', is_amount=True)
    lacks = {
        uuid: [DISABLED, amount] if uuid in off else [amount]
        for uuid, free in room.items()
        if free < wanted
    }
    members = [
        uuid_of(name, i)
        for name, (_, its, _) in rows.items()
        for i, each in enumerate(its)
        if each[2]
    ]
    group = a_group('anti-affinity', members) if grouped else None
    request = a_request(flavor=a_flavor(memory_mb=wanted), group=group)
    evictor = Evictor(simulator, lambda decision: lacks, Reader(rows), Api(rows), SPOT)
    found = evictor.evict(replace(request, arrived=0.0), enough=99)
    expected = {name: brute(rows, name, wanted, grouped) for name in NAMES}
    assert bool(found.decided.decision.hosts) == ((0, 0) in expected.values())
    if not found.decided.decision.hosts:
        few = {
            name: each
            for name, each in expected.items()
            if each and each[0] <= MAX_SERVERS
        }
        sets = {x.host: (len(x.servers), x.memory_mb) for x in found.found}
        assert sets == few
        assert [*sets] == sorted(few, key=lambda name: (*few[name], name))
        assert all(
            each.request.flavor.extra_specs for x in found.found for each in x.servers
        )
        assert {*found.more} == {
            name for name, each in expected.items() if each
        } - few.keys()
        assert found.rejected.total() == [*expected.values()].count(None)
        assert found.rejected['disabled'] == len(off)
    assert simulator.hosts == sorted(hosts, key=lambda host: host.host)
    assert simulator.placement.allocations == {}
