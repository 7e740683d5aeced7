# SPDX-License-Identifier: Apache-2.0
"""Servers that would have to go: what Placement has of a provider, sets of servers, and
what is said of them."""

import json
from collections import Counter
from itertools import combinations

import pytest

from novasched.placement.api import Response
from novasched.scheduler.decision import Decision
from novasched.scheduler.errors import BadRequest, PlacementUnavailable
from novasched.tools.simulate import departures, evictions
from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.evictions import Eviction, Evictions, Evictor
from novasched.tools.simulate.simulator import SimulatedDecision
from tests.lab.builders import a_flavor, a_group, a_host, a_request, a_uuid
from tests.lab.ports import a_simulator


class Answers:
    """A Placement with one provider."""

    def __init__(self, **inventory):
        self.inventory = inventory

    def send(self, method, path):
        if path == '/resource_providers/rp/inventories':
            return Response(
                200, json.dumps({'inventories': {'A': self.inventory}}).encode()
            )
        if path == '/resource_providers/rp/allocations':
            held = {
                'one': {'resources': {'A': 4}},
                'two': {'resources': {'A': 2, 'B': 1}},
            }
            return Response(200, json.dumps({'allocations': held}).encode())
        return Response(404, b'{}', 'Not Found')


@pytest.mark.parametrize(
    ('inventory', 'amount', 'gone', 'lacking'),
    [
        ({'total': 10}, 4, [], []),
        ({'total': 10}, 5, [], ['A']),
        ({'total': 10}, 5, ['two'], []),
        ({'total': 10}, 7, ['two', 'stranger'], ['A']),
        ({'total': 10}, 10, ['one', 'two'], []),
        ({'total': 10, 'reserved': 1}, 10, ['one', 'two'], ['A']),
        ({'total': 10, 'allocation_ratio': 1.5}, 9, [], []),
        ({'total': 10, 'allocation_ratio': 0.5}, 5, ['one', 'two'], []),
        ({'total': 10, 'max_unit': 3}, 4, ['one'], ['A']),
        ({'total': 10, 'min_unit': 3}, 2, ['one'], ['A']),
        ({'total': 10, 'step_size': 2}, 3, ['one'], ['A']),
    ],
)
def test_what_a_provider_has(inventory, amount, gone, lacking):
    """Less what is reserved, times its ratio, in the units that it gives; without those
    gone."""
    found = departures.read_provider(Answers(**inventory), 'rp')
    assert found.lacking({'A': amount}, gone) == lacking
    assert found.lacking({'A': amount, 'C': 1}, gone) == [*lacking, 'C']


def test_a_provider_that_is_gone():
    with pytest.raises(PlacementUnavailable, match='404'):
        departures.read_provider(Answers(total=1), 'other')


def an_evacuee(name, memory_mb=512, host='a', **flavor):
    request = a_request(
        flavor=a_flavor(memory_mb=memory_mb, name=f'm{memory_mb}', **flavor)
    )
    return Evacuee(name, host, 'active', request)


KINDS = [
    [an_evacuee('s1', 1), an_evacuee('s2', 1)],
    [an_evacuee('m', 2)],
    [an_evacuee('l1', 4), an_evacuee('l2', 4), an_evacuee('l3', 4)],
]


@pytest.mark.parametrize('number', [1, 2, 3, 4, 6, 7])
def test_sets_of_kinds(number):
    """Those of all sets that differ in their kinds, the least memory first."""
    kind_of = {each.uuid: i for i, kind in enumerate(KINDS) for each in kind}
    found = [
        [each.uuid for each in chosen] for chosen in departures.sets(KINDS, number)
    ]
    as_kinds = [tuple(sorted(kind_of[uuid] for uuid in chosen)) for chosen in found]
    assert all(len({*chosen}) == number for chosen in found)
    assert len({*as_kinds}) == len(found)
    assert {*as_kinds} == {
        tuple(sorted(kind_of[uuid] for uuid in chosen))
        for chosen in combinations(kind_of, number)
    }
    memory = [sum((1, 2, 4)[i] for i in chosen) for chosen in as_kinds]
    assert memory == sorted(memory)


def test_a_host_without_servers():
    """Has what they had of it; a disk that is a volume took nothing."""
    gone = [an_evacuee('one', 512, vcpus=2, ephemeral_gb=3), an_evacuee('two', 256)]
    volume = Evacuee(
        'two', 'a', 'active', a_request(flavor=gone[1].request.flavor, is_bfv=True)
    )
    names = ('one', 'two', 'three')
    before = a_host('a', ram=100, vcpus_used=5, num_instances=3, instances=names)
    after = departures.without(before, [gone[0], volume])
    assert (after.free_ram_mb, after.vcpus_used, after.num_instances) == (868, 2, 1)
    assert after.free_disk_mb - before.free_disk_mb == 4 * 1024
    assert {*after.instances} == {'three'}


def a_trial(group=None, amounts=({'A': 5},), **inventory):
    """A host with a server of the group and another one, for a request of that
    group."""
    held = {'one': {'A': 4}, 'two': {'A': 4}}
    inventories = departures.read_provider(Answers(**inventory), 'rp').inventories
    host = a_host('a', instances=held)
    return departures.Trial(
        host,
        a_request(group=group),
        a_simulator([host]).pipeline,
        [an_evacuee(name) for name in held],
        amounts=amounts,
        provider=departures.Provider(inventories, held),
        located={'one': host, 'far': a_host('b')},
    )


def test_a_group_without_its_server():
    """Is where the others are: what a host loses with its last server of an affinity
    group is the group."""
    trial = a_trial(a_group('affinity', ['one', 'far'], hosts=frozenset('ab')), total=9)
    one, two = trial.servers
    assert trial.why_not([]) == ('lack A', '')
    assert trial.why_not([two]) is None
    assert trial.why_not([one])[0] == 'outside of the server group'
    assert trial.smallest(1) == [two]
    assert trial._asked({'one'}).instance_group.located.keys() == {'far'}


@pytest.mark.parametrize(
    ('amounts', 'words'),
    [
        ([{'B': 1}], departures.NESTED),
        ([{'A': 9, 'B': 1}], departures.NESTED),
        ([{'B': 1}, {'A': 99}], 'lack A'),
    ],
)
def test_what_the_provider_does_not_have(amounts, words):
    """At all, another one may have in its place."""
    trial = a_trial(amounts=amounts, total=9)
    assert trial.why_not(trial.servers) == (words, '')


@pytest.mark.parametrize(
    'request_',
    [a_request(count=2), a_request(hints={'_nova_check_type': ['rebuild']})],
)
def test_requests_of_other_kinds(request_):
    """Are for no one server that comes."""
    with pytest.raises(BadRequest, match='one server'):
        Evictor(a_simulator([]), None, None, None, {}).evict(request_)


def refused():
    decision = Decision(a_request(), 0, 0.0, 0.0, refusal='no')
    return SimulatedDecision(decision)


FOUND = Evictions(
    decided=refused(),
    found=[
        Eviction('a', [an_evacuee(a_uuid('one'), 2048)]),
        Eviction(
            'b', [an_evacuee(a_uuid('two'), 1024), an_evacuee(a_uuid('three'), 512)]
        ),
    ],
    tried=2,
    more=['c', 'd'],
    rejected=Counter({'disabled': 3, 'lack VCPU': 1}),
    kept=Counter({'have PCI devices': 4}),
)
TEXT = f"""\
Refused before Placement was asked: no

+------------+-----------------+-----------+--------------------------------------------+
| it fits on | without servers | of memory | which                                      |
+------------+-----------------+-----------+--------------------------------------------+
| a          |               1 | 2,048 MiB | {a_uuid('one')} m2048 |
| b          |               2 | 1,536 MiB | {a_uuid('two')} m1024 |
|            |                 |           | {a_uuid('three')} m512  |
+------------+-----------------+-----------+--------------------------------------------+
More than 2 servers would have to leave each of 2 other hosts.
Hosts that no eviction helps: 3 disabled, 1 lack VCPU
Servers that may not go: 4: have PCI devices"""


def test_for_people_and_machines():
    assert evictions.as_text(FOUND) == TEXT
    said = json.loads(evictions.as_json(FOUND))
    assert (said['host'], said['tried'], said['more']) == (None, 2, ['c', 'd'])
    assert [(each['host'], each['memory_mb']) for each in said['evictions']] == [
        ('a', 2048),
        ('b', 1536),
    ]
    assert said['rejected'] == {'disabled': 3, 'lack VCPU': 1}
    assert 'On no host does it fit' in evictions.as_text(Evictions(decided=refused()))
