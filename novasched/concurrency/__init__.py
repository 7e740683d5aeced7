# SPDX-License-Identifier: Apache-2.0
"""Single flight, circuit breaker and worker queue, and the choice of the threading
backend of oslo.service.

oslo.service fixes its backend when its first module is imported. Import ``loopingcall``
from here, and this package before oslo.messaging, so the choice comes first. The
imports below stand between statements for the same reason.
"""

import os
import random
import sys
import traceback
import warnings
from collections.abc import Iterator

# oslo.service requires eventlet for its other backend. Several libraries import
# eventlet if they find it, which takes a fifth of the time of a start, so eventlet is
# hidden from the imports below. Plugins may import eventlet afterwards.
HIDES_EVENTLET = 'eventlet' not in sys.modules
if HIDES_EVENTLET:
    sys.modules['eventlet'] = None  # type: ignore[assignment]
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
# NumPy would start a thread for each CPU for linear algebra, which nothing here uses.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging  # noqa: E402, F401
from oslo_service import loopingcall  # noqa: E402

if HIDES_EVENTLET:
    del sys.modules['eventlet']

__all__ = ['backoff', 'clear_frames', 'loopingcall']


def backoff(first: float, last: float) -> Iterator[float]:
    """Pauses between tries, in seconds: doubling from ``first`` up to ``last``, with a
    random addition of up to half of ``first``."""
    pause = first
    while True:
        yield pause + random.uniform(0, first / 2)
        pause = min(2 * pause, last)


def clear_frames(error: BaseException | None) -> None:
    """Free the local variables of the frames of an error and of all causes.

    An error refers to frames, and often a frame to the error. The garbage collector
    runs rarely, and would free such a cycle late.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
