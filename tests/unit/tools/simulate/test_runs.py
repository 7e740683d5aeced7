# SPDX-License-Identifier: Apache-2.0
"""Repeated requests on changing hosts, and replays under two configurations."""

import json
from collections import Counter, defaultdict

import pytest

from novasched.observe.records import render
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import ServerGroup
from novasched.tools.shadow.messages import Recorded
from novasched.tools.simulate.runs import (
    HostsChange,
    replay,
    replayed_as_json,
    replayed_as_text,
    until_full,
    without_the_past,
)
from novasched.tools.simulate.sources import Entries
from tests.lab.builders import (
    a_flavor,
    a_host,
    a_request,
    a_uuid,
    named_hosts,
    numbered_hosts,
)
from tests.lab.memory_simulators import MemoryCandidates, a_simulator

A = a_host('a', ram=2048, num_io_ops=3)
B = a_host('b', ram=1100)


def test_hosts_are_filled_until_a_refusal_or_the_limit():
    """The emptiest host is filled first, and Placement is asked once. A limit ends a
    run without a refusal."""
    placement = MemoryCandidates({A.uuid: 2048, B.uuid: 1100})
    filled = until_full(a_simulator([A, B], placement), a_request(), most=99)
    assert filled.placed == {'a': 4, 'b': 2}
    headline = 'Placement offers no host, but would without 512 MEMORY_MB'
    assert render.headline(filled.refusal) == headline
    assert filled.refused.full == {'MEMORY_MB': 2}
    assert len(placement.queries) == 1
    assert 'limit' not in placement.queries[0]
    filled = until_full(a_simulator([A, B]), a_request(), most=3)
    assert (filled.fit, filled.refused, filled.refusal) == (3, None, None)


def test_a_placed_instance_is_on_the_host_and_no_longer_builds():
    """A placed server is on its host, and no longer builds. A rebuild claims nothing
    and cannot be repeated."""
    simulator = a_simulator([A])
    request = simulator.anew(a_request())
    simulator.decide(request)
    (after,) = simulator.hosts

    assert set(after.instances) == {request.instance_uuid}
    assert (after.free_ram_mb, after.num_instances, after.num_io_ops) == (1536, 1, 3)

    simulator = a_simulator([A])
    hints = {'_nova_check_type': ['rebuild']}
    request = a_request(hints=hints, force_hosts=('a',))
    assert simulator.decide(simulator.anew(request)).decision.hosts == ('a',)
    assert simulator.hosts == [A]

    with pytest.raises(BadRequest):
        until_full(simulator, request, 9)


def test_the_same_seed_gives_the_same_decisions():
    """A seed gives the same hosts, UUIDs and reasons; another seed draws
    differently."""
    hosts = numbered_hosts(9, 'host', ram=4096)

    def told(seed):
        simulator = a_simulator(hosts, host_subset_size=9, seed=seed)
        records = []
        for _ in range(20):
            outcome = simulator.decide(simulator.anew(a_request()))
            records.append(outcome.record(0))
        return records

    assert told(1) == told(1)
    results = [record.result for record in told(1)]
    others = [record.result for record in told(2)]
    assert results != others


def test_a_refusal_counts_the_candidates_beyond_the_limit():
    """A refusal counts the candidates beyond Placement's limit."""
    filled = until_full(
        a_simulator([A, B], max_placement_results=1, max_instances_per_host=2),
        a_request(),
        99,
    )
    assert filled.placed == {'a': 2}
    assert filled.refused.beyond == 1
    whole = until_full(a_simulator([A, B], max_instances_per_host=2), a_request(), 99)
    assert (whole.placed, whole.refused.beyond) == ({'a': 2, 'b': 2}, 0)


def test_the_spread_counts_touched_and_empty_hosts():
    """Numbers over all hosts. Servers from before do not touch a host."""
    hosts = [
        a_host('a', ram=0, total_usable_ram_mb=100, num_instances=3),
        a_host('b', ram=60, total_usable_ram_mb=100, num_instances=3),
        a_host('c', ram=100, total_usable_ram_mb=100),
    ]
    before = [*hosts[:1], a_host('b', ram=100), *hosts[2:]]
    found = HostsChange(before=before, after=hosts).spread

    assert (found.hosts, found.touched, found.empty) == (3, 1, 1)
    assert found.servers_deviation == pytest.approx(2**0.5)
    assert found.ram_deviation_mb == pytest.approx(41.096, abs=0.001)
    assert (found.fullest, found.fullest_share) == ('a', 1.0)


def recorded(uuid):
    return Recorded(1, a_request(instance_uuids=(uuid,), instance_uuid=uuid), None)


HOSTS = named_hosts('abc', ram=2048)
ENTRIES = [*map(recorded, map(a_uuid, '0123'))]
PROBE = a_request(flavor=a_flavor(memory_mb=512, name='probe'))


def runs(entries=ENTRIES):
    results = []
    for name, ram in (('spread', 1.0), ('packed', -1.0)):
        simulator = a_simulator(HOSTS, ram_weight_multiplier=ram)
        results.append(replay(name, simulator, entries, PROBE, 99))
    return results


def test_each_configuration_replays_on_separate_hosts():
    """One configuration spreads, the other packs. Each starts with its own hosts."""
    spread, packed = runs()
    assert spread.answers == [('a',), ('b',), ('c',), ('a',)]
    assert packed.answers == [('a',)] * 4
    assert (spread.spread.empty, packed.spread.empty) == (0, 2)
    assert (spread.spread.touched, packed.spread.touched) == (3, 1)
    assert (spread.probe, packed.probe) == (8, 8)
    assert packed.spread.fullest_share == 1.0


def test_refusals_are_counted_by_headline_or_error():
    """Refusals are counted by headline, undecided requests by error."""
    odd = a_request(extra_specs={'hw:cpu_policy': 'odd'})
    many = a_request(count=13)
    refused = [Recorded(1, odd, None), Recorded(1, many, None), Recorded(1, many, None)]
    (run, _) = runs([*ENTRIES, *refused])
    assert run.servers == 4
    assert run.refusals.total() == 3
    assert set(run.refusals.values()) == {1, 2}


def test_a_group_drops_the_recorded_hosts_of_replayed_instances():
    """A request keeps the present hosts of its group, without recorded hosts of
    replayed servers."""
    past = defaultdict(set)

    def asked(hosts, got):
        group = ServerGroup(uuid='g', policy='affinity', hosts=frozenset(hosts))
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


def test_replay_reports_show_each_run_and_skipped_requests():
    """The table has a column for each run and notes below; the JSON has each answer."""
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
    spread, packed = found['runs']
    assert (spread['answers'][3], packed['answers'][3]) == (['a'], ['a'])
    assert found['elsewhere'] == 2
