# SPDX-License-Identifier: Apache-2.0
"""Decisions one after the other, each on what those before it have left; and requests
of the past, under one configuration and another."""

import json
from collections import Counter, defaultdict

import pytest

from novasched.observe.records import render
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import InstanceGroup
from novasched.tools.shadow.messages import Recorded
from novasched.tools.simulate.runs import (
    Change,
    replay,
    replayed_as_json,
    replayed_as_text,
    until_full,
    without_the_past,
)
from novasched.tools.simulate.sources import Entries
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.ports import Asked, a_simulator

A = a_host('a', ram=2048, num_io_ops=3)
B = a_host('b', ram=1100)


def test_until_full():
    """Four and two of 512 MiB, the emptiest host first; Placement is asked once. A
    refusal is not waited for where it would not come."""
    ask = Asked({A.uuid: 2048, B.uuid: 1100})
    filled = until_full(a_simulator([A, B], ask), a_request(), most=99)
    assert filled.placed == {'a': 4, 'b': 2}
    headline = 'Placement offers no host, but would without 512 MEMORY_MB'
    assert render.headline(filled.refusal) == headline
    assert filled.refused.full == {'MEMORY_MB': 2}
    assert len(ask.strings) == 1
    assert 'limit' not in ask.strings[0]
    filled = until_full(a_simulator([A, B]), a_request(), most=3)
    assert (filled.fit, filled.refused, filled.refusal) == (3, None, None)


def test_servers_have_settled():
    """A server that was placed is on its host, and builds no more. A rebuild takes
    nothing, so that there would be no end."""
    simulator = a_simulator([A])
    request = simulator.anew(a_request())
    simulator.decide(request)
    (after,) = simulator.hosts
    assert set(after.instances) == {request.instance_uuid}
    assert (after.free_ram_mb, after.num_instances, after.num_io_ops) == (1536, 1, 3)
    simulator = a_simulator([A])
    request = a_request(hints={'_nova_check_type': ['rebuild']})
    assert simulator.decide(simulator.anew(request)).decision.hosts == ('a',)
    assert simulator.hosts == [A]
    with pytest.raises(BadRequest):
        until_full(simulator, request, 9)


def test_the_same_seed_gives_the_same():
    """Hosts, UUIDs, seeds and reasons; another seed draws others."""
    hosts = [a_host(f'host{i}', ram=4096) for i in range(9)]

    def told(seed):
        simulator = a_simulator(hosts, host_subset_size=9, seed=seed)
        outcomes = [simulator.decide(simulator.anew(a_request())) for _ in range(20)]
        return [outcome.record(0) for outcome in outcomes]

    assert told(1) == told(1)
    assert [each.result for each in told(1)] != [each.result for each in told(2)]


def test_what_the_limit_keeps():
    """It is told where a refusal did not look at all that Placement has."""
    filled = until_full(
        a_simulator([A, B], max_placement_results=1, max_instances_per_host=2),
        a_request(),
        99,
    )
    assert filled.placed == {'a': 2}
    assert filled.refused.beyond == 1
    whole = until_full(a_simulator([A, B], max_instances_per_host=2), a_request(), 99)
    assert (whole.placed, whole.refused.beyond) == ({'a': 2, 'b': 2}, 0)


def test_spread():
    """The numbers of all hosts; what was there before is not touched."""
    hosts = [
        a_host('a', ram=0, total_usable_ram_mb=100, num_instances=3),
        a_host('b', ram=60, total_usable_ram_mb=100, num_instances=3),
        a_host('c', ram=100, total_usable_ram_mb=100),
    ]
    before = [*hosts[:1], a_host('b', ram=100), *hosts[2:]]
    found = Change(before=before, after=hosts).spread
    assert (found.hosts, found.touched, found.empty) == (3, 1, 1)
    assert found.servers_deviation == pytest.approx(2**0.5)
    assert found.ram_deviation_mb == pytest.approx(41.096, abs=0.001)
    assert (found.fullest, found.fullest_share) == ('a', 1.0)


HOSTS = [a_host(name, ram=2048) for name in 'abc']
UUIDS = [a_uuid(f'{i}') for i in range(4)]
ENTRIES = [
    Recorded(1, a_request(instance_uuids=(x,), instance_uuid=x), None) for x in UUIDS
]
PROBE = a_request(flavor=a_flavor(memory_mb=512, name='probe'))


def runs(entries=ENTRIES):
    return [
        replay(name, a_simulator(HOSTS, ram_weight_multiplier=ram), entries, PROBE, 99)
        for name, ram in (('spread', 1.0), ('packed', -1.0))
    ]


def test_two_configurations():
    """One spreads, the other packs; each has hosts of its own to begin with."""
    spread, packed = runs()
    assert spread.answers == [('a',), ('b',), ('c',), ('a',)]
    assert packed.answers == [('a',)] * 4
    assert (spread.spread.empty, packed.spread.empty) == (0, 2)
    assert (spread.spread.touched, packed.spread.touched) == (3, 1)
    assert (spread.probe, packed.probe) == (8, 8)
    assert packed.spread.fullest_share == 1.0


def test_refusals():
    """What was refused is counted by its first line, what could not be decided by its
    error."""
    odd = a_request(extra_specs={'hw:cpu_policy': 'odd'})
    many = a_request(count=13)
    (run, _) = runs(
        [*ENTRIES, *(Recorded(1, request, None) for request in (odd, many, many))]
    )
    assert run.servers == 4
    assert run.refusals.total() == 3
    assert set(run.refusals.values()) == {1, 2}


def test_groups_of_the_past():
    """A request knows the hosts that its group has now, and not those that servers
    which are replayed had then."""
    past = defaultdict(set)

    def asked(hosts, got):
        group = InstanceGroup(uuid='g', policy='affinity', hosts=frozenset(hosts))
        entry = Recorded(1, a_request(group=group), got)
        return without_the_past(entry, past).instance_group.hosts

    assert asked(['old'], ('x',)) == {'old'}
    assert asked(['old', 'x'], ('y',)) == {'old'}
    assert asked(['old', 'x', 'y', 'z'], None) == {'old', 'z'}


TABLE = """\
+--------------------------+---------+----------+
| of 4 requests            |  spread |   packed |
+--------------------------+---------+----------+
| servers placed           |       4 |        4 |
| requests refused         |       0 |        0 |
| hosts touched            |  3 of 3 |   1 of 3 |
| empty hosts left         |       0 |        2 |
| deviation of servers     |    0.47 |     1.89 |
| deviation of used memory | 241 MiB |  965 MiB |
| fullest host             | a (50%) | a (100%) |
| probe that fit then      |       8 |        8 |
+--------------------------+---------+----------+
"""


def test_reports():
    """Side by side, and what is missing below; for machines the same, and each
    answer."""
    skipped = Counter({'not kept: retry': 2})
    entries = Entries(ENTRIES, skipped, ['line 7: no pair of request and reply'])
    text = replayed_as_text(runs(), entries, 'probe')
    assert text.startswith(TABLE)
    assert text.splitlines()[-3:] == [
        '2 requests get other hosts.',
        'Skipped: 2: not kept: retry',
        'Not read: line 7: no pair of request and reply',
    ]
    found = json.loads(replayed_as_json(runs(), Entries(ENTRIES), None))
    assert found['requests'] == 4
    assert [each['answers'][3] for each in found['runs']] == [['a'], ['a']]
    assert found['elsewhere'] == 2
