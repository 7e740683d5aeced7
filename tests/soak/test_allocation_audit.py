# SPDX-License-Identifier: Apache-2.0
"""Verdicts on the growth of a daemon, and on the allocations of two schedulers."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.soak.allocation_audit import DOUBTFUL, LEFT_OVER, MISSING, AllocationAudit
from tests.soak.schedulers import Journal
from tests.soak.verdict import (
    BROKER,
    DATABASES,
    DESCRIPTORS,
    MEMORY,
    PLACEMENT,
    THREADS,
    Verdict,
)
from tests.soak.world import World

MINUTES = 10
FLAT = {
    MEMORY: 150,
    THREADS: 80,
    DESCRIPTORS: 40,
    DATABASES: 10,
    BROKER: 6,
    PLACEMENT: 5,
}


@pytest.mark.parametrize(
    ('at', 'met'),
    [
        pytest.param(lambda m: {}, True, id='nothing changes'),
        pytest.param(lambda m: {MEMORY: 100 + min(m, 3) * 20}, True, id='it warms up'),
        pytest.param(
            lambda m: {MEMORY: 190 if 6 < m < 8.5 else 150}, True, id='a while'
        ),
        pytest.param(
            lambda m: {MEMORY: 190 if m > 9.5 else 150}, True, id='at the very end'
        ),
        pytest.param(
            lambda m: {MEMORY: 150 + m + 40 * (m % 1)}, False, id='up, down and up'
        ),
        pytest.param(lambda m: {MEMORY: 150 + 10 * (m > 6)}, False, id='a step'),
        pytest.param(
            lambda m: {THREADS: min(80, int(m * 20))}, True, id='a pool fills up'
        ),
        pytest.param(lambda m: {THREADS: 80 + (m > 5)}, True, id='one thread more'),
        pytest.param(
            lambda m: {THREADS: 80 + 4 * (m > 5)}, False, id='four threads more'
        ),
        pytest.param(
            lambda m: {DATABASES: 10 + 9 * (m > 9.9)}, True, id='more for a moment'
        ),
    ],
)
def test_only_lasting_growth_fails_the_verdict(at, met):
    """The least memory counts. Pools may grow by a few members, or for a moment."""
    samples = []
    for second in range(0, MINUTES * 60 + 1, 2):
        samples.append((second, FLAT | at(second / 60)))

    assert Verdict('', MINUTES * 60, {}, {}, samples).met is met


HERE = {'here': {'VCPU': 1}}
THERE = {'there': {'VCPU': 1}}


@pytest.mark.parametrize(
    ('held', 'counted'),
    [
        pytest.param({'a': HERE}, {}, id='right'),
        pytest.param({}, {MISSING: 1}, id='nothing'),
        pytest.param({'a': {'here': {'VCPU': 0}}}, {MISSING: 1}, id='less'),
        pytest.param({'a': HERE | THERE}, {DOUBTFUL: 1, LEFT_OVER: 1}, id='twice'),
        pytest.param(
            {'a': HERE, 'b': THERE}, {DOUBTFUL: 1, LEFT_OVER: 1}, id="nobody's"
        ),
    ],
)
def test_a_wrong_allocation_counts_once_and_fails_the_verdict(held, counted):
    """A difference counts once, and fails the run. A surplus counts after the time to
    undo it."""
    world = World.__new__(World)
    vars(world).update(
        placement=SimpleNamespace(all_allocations=lambda: held),
        expected={'a': HERE},
        machines={},
        counts=Counter(),
        _idle={},
        _names={},
        _lock=threading.Lock(),
    )
    audit = AllocationAudit(world, Journal(str), [], undo_s=-1.0)

    for _ in range(3):
        audit.compare()

    del world.counts['allocations compared']
    assert world.counts == counted
    assert Verdict('', 60, world.counts, {}).met is not bool(counted)
