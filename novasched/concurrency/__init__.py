# SPDX-License-Identifier: Apache-2.0
"""Threads: one call for many, a circuit breaker, a queue of work, and the choice of
threads itself.

oslo.service has threads instead of green threads here. It takes its backend once, when
its modules are first imported: importing ``loopingcall`` from here, or this package
before oslo.messaging, makes sure that the choice comes first. That is why the imports
below stand between other statements.
"""

import os
import random
import sys
import traceback
import warnings
from collections.abc import Iterator

# oslo.service brings eventlet, for its other backend. Libraries that only look whether
# it is there do not find it: importing it takes a fifth of the time of a start. Plugins
# may import it.
HIDES_EVENTLET = 'eventlet' not in sys.modules
if HIDES_EVENTLET:
    sys.modules['eventlet'] = None  # type: ignore[assignment]
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
# NumPy would start a thread for each CPU, for what nobody does here.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging  # noqa: E402, F401
from oslo_service import loopingcall  # noqa: E402

if HIDES_EVENTLET:
    del sys.modules['eventlet']

__all__ = ['backoff', 'clear_frames', 'loopingcall']


def backoff(first: float, last: float) -> Iterator[float]:
    """Seconds to pause between tries: they double up to the last, and a little more at
    random."""
    pause = first
    while True:
        yield pause + random.uniform(0, first / 2)
        pause = min(2 * pause, last)


def clear_frames(error: BaseException | None) -> None:
    """Free the local variables of the frames in which an error and its causes were
    raised. They and the places where they were handled refer to each other, and garbage
    is looked for rarely.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
