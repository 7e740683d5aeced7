# SPDX-License-Identifier: Apache-2.0
"""What counts as growth of a daemon that is watched for long, and as wrong of two schedulers."""

import json
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.soak.books import DOUBTFUL, LEFT_OVER, MISSING, Books
from tests.soak.twins import NOVA, NOVASCHED, Journal
from tests.soak.verdict import Sample, Verdict
from tests.soak.world import MISMATCHES, World

MINUTES = 10
FLAT = Sample(
    seconds=0, memory=150, threads=80, descriptors=40, databases=10, broker=6, placement=5
)


def verdict(at, **counts):
    """What is said of a run whose samples are so at each minute of it."""
    moments = [second / 60 for second in range(0, MINUTES * 60 + 1, 2)]
    samples = [replace(FLAT, seconds=60 * m, **at(m)) for m in moments]
    return Verdict('', MINUTES * 60, counts, {}, samples)


@pytest.mark.parametrize(
    ('at', 'met'),
    [
        pytest.param(lambda m: {}, True, id='nothing changes'),
        pytest.param(lambda m: {'memory': 100 + min(m, 3) * 20}, True, id='it warms up'),
        pytest.param(lambda m: {'memory': 150 + 40 * (m % 1)}, True, id='up and down'),
        pytest.param(lambda m: {'memory': 190 if 6 < m < 8.5 else 150}, True, id='a while'),
        pytest.param(lambda m: {'memory': 190 if m > 9.5 else 150}, True, id='at the very end'),
        pytest.param(lambda m: {'memory': 150 + m}, False, id='a MiB a minute'),
        pytest.param(lambda m: {'memory': 150 + m + 40 * (m % 1)}, False, id='up, down and up'),
        pytest.param(lambda m: {'memory': 150 + 10 * (m > 6)}, False, id='a step'),
        pytest.param(lambda m: {'threads': min(80, int(m * 20))}, True, id='a pool fills up'),
        pytest.param(lambda m: {'threads': 80 - (m > 5)}, True, id='a thread ends'),
        pytest.param(lambda m: {'threads': 80 + (m > 5)}, True, id='one thread more'),
        pytest.param(lambda m: {'threads': 80 + 4 * (m > 5)}, False, id='four threads more'),
        pytest.param(lambda m: {'descriptors': 40 + int(m)}, False, id='one a minute'),
        pytest.param(lambda m: {'databases': 10 + (m > 9.9)}, True, id='one more for a moment'),
    ],
)
def test_growth(at, met):
    """Of memory the least counts; what can be counted is in the end as before, but for
    a few, and for a moment."""
    assert verdict(at).met is met


def test_a_wrong_answer_is_enough():
    """Nothing that must not happen may happen once."""
    assert verdict(lambda m: {}, requests=10_000).met
    assert not verdict(lambda m: {}, requests=10_000, **{MISMATCHES: 1}).met


def test_who_wrote_it():
    """Only what nova-scheduler alone has written is not novasched's."""
    journal = Journal(str.upper)

    def put(who, consumer, *providers, status=204):
        body = json.dumps({'allocations': {each: {} for each in providers}}).encode()
        journal.wrote(who, 'PUT', f'/allocations/{consumer}', body, status)

    put(NOVASCHED, 'both', 'late')
    put(NOVA, 'both', 'late', 'chosen')
    put(NOVASCHED, 'refused', 'full', status=409)
    put(NOVA, 'refused', 'chosen')
    assert not journal.is_novas('both')
    assert journal.is_novas('both', ['chosen'])
    assert journal.is_novas('refused')
    assert not journal.is_novas('unknown')
    assert journal.claims == {NOVASCHED: 1, NOVA: 2}
    assert [line.split(' ', 1)[1] for line in journal.lines('refused')] == [
        'novasched: PUT FULL -> 409',
        'nova-scheduler: PUT CHOSEN -> 204',
    ]


def books(held, expected):
    """Those of a world without hosts and schedulers, where Placement has what is held."""
    world = World.__new__(World)
    vars(world).update(
        placement=SimpleNamespace(all_allocations=lambda: held), expected=expected, machines={}, counts=Counter(),
        _idle={}, _names={}, _lock=threading.Lock(),
    )  # fmt: skip
    return Books(world, Journal(str), [], undo_s=-1.0)


HERE, THERE = {'here': {'VCPU': 1}}, {'there': {'VCPU': 1}}


@pytest.mark.parametrize(
    ('held', 'counted'),
    [
        pytest.param({'a': HERE}, {}, id='right'),
        pytest.param({}, {MISSING: 1}, id='nothing'),
        pytest.param({'a': THERE}, {MISSING: 1}, id='elsewhere'),
        pytest.param({'a': {'here': {'VCPU': 0}}}, {MISSING: 1}, id='less'),
        pytest.param({'a': HERE | THERE}, {DOUBTFUL: 1, LEFT_OVER: 1}, id='twice'),
        pytest.param({'a': HERE, 'b': THERE}, {DOUBTFUL: 1, LEFT_OVER: 1}, id="nobody's"),
    ],
)
def test_comparison(held, counted):
    """Each difference counts once, what is too much after the time to undo it."""
    compared = books(held, {'a': HERE})
    for _ in range(3):
        compared.compare()
    counts = compared.world.counts
    assert {name: n for name, n in counts.items() if name != 'allocations compared'} == counted
