# SPDX-License-Identifier: Apache-2.0
"""How many inputs are tried, and how much one may cost.

Without ``NOVASCHED_FUZZ_SECONDS`` they are few and the same each time, so that a test fails for
what was changed and not for what was drawn. With it each property is tried with ever new inputs
for its share of these seconds.
"""

import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings

SECONDS = float(os.environ.get('NOVASCHED_FUZZ_SECONDS') or 0)
EFFORT = settings(
    max_examples=200 if SECONDS else 15,
    derandomize=not SECONDS,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
"""Of one property, once; more than once with these seconds."""

MOST_SECONDS = 10
"""Of processor time, which a busy machine does not use up. What takes longer for one input is
quadratic at the least: inputs are small."""

MOST_MEMORY = 2 << 30
"""Bytes that all inputs together may take; a list of CPUs that is written out takes more."""

TRIED: Counter[str] = Counter()
"""Inputs by target."""


class TooLong(Exception):
    """An input has taken more time than any may."""


@contextmanager
def one_input(target: str) -> Iterator[None]:
    """An input of a target, which ends in time.

    :raises TooLong: it does not.
    """
    TRIED[target] += 1
    before = signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """What asks for more than :data:`MOST_MEMORY` gets a MemoryError, and not the machine."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _interrupt(number: int, frame: Any) -> None:
    raise TooLong(f'more than {MOST_SECONDS} s')
