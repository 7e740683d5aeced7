# SPDX-License-Identifier: Apache-2.0
"""What counts as growth of a daemon that is watched for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.soak.verdict import Verdict
from tests.soak.watch import Sample
from tests.soak.world import MISMATCHES

MINUTES = 10
FLAT = Sample(
    seconds=0, memory=150, threads=80, descriptors=40, databases=10, broker=6, placement=5
)


def verdict(at: Callable[[float], dict[str, float]], **counts: int) -> Verdict:
    """What is said of a run whose samples are so at each minute of it."""
    moments = [second / 60 for second in range(0, MINUTES * 60 + 1, 2)]
    samples = [replace(FLAT, seconds=60 * m, **at(m)) for m in moments]
    return Verdict.of(MINUTES * 60, counts, {}, samples, {})


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
def test_growth(at: Callable[[float], dict[str, float]], met: bool) -> None:
    """Of memory the least counts; what can be counted is in the end as before, but for
    a few, and for a moment."""
    assert verdict(at).met is met


def test_a_wrong_answer_is_enough() -> None:
    """Nothing that must not happen may happen once."""
    assert verdict(lambda m: {}, requests=10_000).met
    assert not verdict(lambda m: {}, requests=10_000, **{MISMATCHES: 1}).met
