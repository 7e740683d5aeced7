# SPDX-License-Identifier: Apache-2.0
"""Requests of the past, under one configuration and another."""

import json
from collections import Counter, defaultdict

from novasched.scheduler.model.request import InstanceGroup
from novasched.tools.shadow.messages import Recorded
from novasched.tools.simulate.runs import (
    replay,
    replayed_as_json,
    replayed_as_text,
    without_the_past,
)
from novasched.tools.simulate.sources import Entries
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.simulated import a_simulator


def an_entry(request, hosts=None):
    return Recorded(1, request, hosts)


HOSTS = [a_host(name, ram=2048) for name in 'abc']
ENTRIES = [
    an_entry(a_request(instance_uuids=(a_uuid(f'{i}'),), instance_uuid=a_uuid(f'{i}')))
    for i in range(4)
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
    """What was refused is counted by its first line, what could not be decided by its error."""
    entries = [*ENTRIES, an_entry(a_request(flavor=a_flavor(extra_specs={'hw:cpu_policy': 'odd'})))]
    (run, _) = runs([*entries, *[an_entry(a_request(count=13))] * 2])
    assert run.servers == 4
    assert run.refusals.total() == 3
    assert set(run.refusals.values()) == {1, 2}


def test_groups_of_the_past():
    """A request knows the hosts that its group has now, and not those that servers which are
    replayed had then."""
    past = defaultdict(set)

    def asked(hosts, got):
        group = InstanceGroup(uuid='g', policy='affinity', hosts=frozenset(hosts))
        return without_the_past(an_entry(a_request(group=group), got), past).instance_group.hosts

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


def test_for_people():
    """Side by side, and what is missing below."""
    skipped = Counter({'not kept: retry': 2})
    entries = Entries(ENTRIES, skipped, ['line 7: no pair of request and reply'])
    text = replayed_as_text(runs(), entries, 'probe')
    assert text.startswith(TABLE)
    assert text.splitlines()[-3:] == [
        '2 requests get other hosts.',
        'Skipped: 2: not kept: retry',
        'Not read: line 7: no pair of request and reply',
    ]


def test_for_machines():
    """The same, and each answer."""
    found = json.loads(replayed_as_json(runs(), Entries(ENTRIES), None))
    assert found['requests'] == 4
    assert [each['answers'][3] for each in found['runs']] == [['a'], ['a']]
    assert found['elsewhere'] == 2
