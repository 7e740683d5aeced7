# SPDX-License-Identifier: Apache-2.0
"""oslo.service, with threads instead of green threads.

oslo.service takes its backend once, when its modules are first imported; importing
them from here makes sure that the choice comes first. That is why the imports below
stand between other statements.
"""

import contextlib
import ctypes
import gc
import warnings

# Libraries look for eventlet, and it warns of itself when they find it.
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

from oslo_service import loopingcall, service  # noqa: E402

__all__ = ['collect_seldom', 'loopingcall', 'service', 'share_heaps']

HEAPS = 2
M_ARENA_MAX = -8  # glibc's malloc.h
YOUNG = 100_000
"""So many objects are made before garbage is looked for among them."""


def share_heaps() -> None:
    """Let threads share heaps, where the C library is glibc. It gives each thread its own
    else, and what one thread has freed, such as an answer of some MB, no other can use."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, HEAPS)


def collect_seldom() -> None:
    """Let the collector of cycles run rarely. A request makes many objects per host, which
    live as long as it does and have no cycles: looking through them costs a third of a
    decision over 20,000 hosts and finds nothing."""
    gc.set_threshold(YOUNG, 20, 20)
