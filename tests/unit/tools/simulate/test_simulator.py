# SPDX-License-Identifier: Apache-2.0
"""Decisions one after the other, each on what those before it have left."""

import pytest

from novasched.observe.records import render
from novasched.scheduler.errors import BadRequest
from novasched.tools.simulate.runs import Change, until_full
from tests.lab.builders import a_host, a_request
from tests.lab.simulated import Asked, a_simulator

A, B = a_host('a', ram=2048, num_io_ops=3), a_host('b', ram=1100)


def test_until_full():
    """Four and two of 512 MiB, the emptiest host first; Placement is asked once."""
    ask = Asked({A.uuid: 2048, B.uuid: 1100})
    filled = until_full(a_simulator([A, B], ask), a_request(), most=99)
    assert filled.placed == {'a': 4, 'b': 2}
    assert (
        render.headline(filled.refusal)
        == 'Placement offers no host, but would without 512 MEMORY_MB'
    )
    assert filled.refused.full == {'MEMORY_MB': 2}
    assert len(ask.strings) == 1
    assert 'limit' not in ask.strings[0]


def test_no_more_than_that():
    """The refusal is not waited for where it would not come."""
    filled = until_full(a_simulator([A, B]), a_request(), most=3)
    assert (filled.fit, filled.refused, filled.refusal) == (3, None, None)


def test_servers_have_settled():
    """A server that was placed is on its host, and builds no more."""
    simulator = a_simulator([A])
    request = simulator.anew(a_request())
    simulator.decide(request)
    (after,) = simulator.hosts
    assert set(after.instances) == {request.instance_uuid}
    assert (after.free_ram_mb, after.num_instances, after.num_io_ops) == (1536, 1, 3)


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
        a_simulator([A, B], max_placement_results=1, max_instances_per_host=2), a_request(), 99
    )
    assert filled.placed == {'a': 2}
    assert filled.refused.beyond == 1
    whole = until_full(a_simulator([A, B], max_instances_per_host=2), a_request(), 99)
    assert (whole.placed, whole.refused.beyond) == ({'a': 2, 'b': 2}, 0)


def test_a_rebuild():
    """It takes nothing, so that there would be no end."""
    simulator, request = a_simulator([A]), a_request(hints={'_nova_check_type': ['rebuild']})
    assert simulator.decide(simulator.anew(request)).decision.hosts == ('a',)
    assert simulator.hosts == [A]
    with pytest.raises(BadRequest):
        until_full(simulator, request, 9)


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
