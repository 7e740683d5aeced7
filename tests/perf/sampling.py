# SPDX-License-Identifier: Apache-2.0
"""Where the time of a call goes: the stack is looked at again and again while it runs."""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import novasched

SECONDS = 3.0
TICK = 0.0005  # seconds between two looks

PACKAGE = str(Path(novasched.__file__).parent)
PLUGINS = tuple(f'{PACKAGE}/{room}/' for room in ('filters', 'weighers'))


def shares(call: Callable[[], object]) -> dict[str, float]:
    """Shares of a call's time by where it goes, greatest first."""
    seen = Counter[str]()

    def look(_: int, frame: FrameType | None) -> None:
        seen[place(frame)] += 1

    before = signal.signal(signal.SIGALRM, look)
    end = time.perf_counter() + SECONDS
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        while time.perf_counter() < end:
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return {where: count / seen.total() for where, count in seen.most_common()}


def place(frame: FrameType | None) -> str:
    """Where a stack is: the innermost function of ours, and the filter or weigher that it
    works for."""
    inmost = None
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(PACKAGE) and not name.startswith('<'):
            if file.startswith(PLUGINS) and 'self' in frame.f_locals:
                plugin = type(frame.f_locals['self']).__name__
                return f'{plugin}: {inmost}' if inmost else plugin
            if not file.startswith(PLUGINS):
                inmost = inmost or f'{file.removeprefix(PACKAGE)[1:]} {name}'
        frame = frame.f_back
    return inmost or 'elsewhere'


@contextmanager
def collecting() -> Iterator[list[float]]:
    """A list of the processor's seconds that each garbage collection takes, in the block."""
    pauses: list[float] = []

    def called(phase: str, _: object) -> None:
        now = time.process_time()
        if phase == 'start':
            pauses.append(-now)
        else:
            pauses[-1] += now

    gc.callbacks.append(called)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(called)
