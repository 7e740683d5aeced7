# SPDX-License-Identifier: Apache-2.0
"""What holds for the process as a whole: threads, memory, and the name that it shows.

oslo.service has threads instead of green threads here. It takes its backend once, when its
modules are first imported; importing them from here makes sure that the choice comes first.
That is why the imports below stand between other statements.
"""

import contextlib
import ctypes
import gc
import traceback
import warnings

# Libraries look for eventlet, and it warns of itself when they find it.
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

import setproctitle  # noqa: E402
from oslo_service import loopingcall  # noqa: E402

__all__ = [
    'collect_all',
    'collect_seldom',
    'entitle',
    'let_go',
    'loopingcall',
    'share_heaps',
    'share_modules',
    'trim_heaps',
]

HEAPS = 2
M_ARENA_MAX = -8  # glibc's malloc.h
YOUNGER = 1
"""The generations of objects that were made since others were looked through."""
YOUNG = 100_000
"""So many objects are made before garbage is looked for among them."""
NAME = 'nova-scheduler'


def share_heaps() -> None:
    """Let threads share heaps, where the C library is glibc. It gives each thread its own
    else, and what one thread has freed, such as an answer of some MB, no other can use."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, HEAPS)


def trim_heaps() -> None:
    """Look for garbage among what is young, and give the system back what is free between the
    pieces in use, where the C library is glibc. The long texts of hosts and answers leave much
    of it, which nothing else fits."""
    gc.collect(YOUNGER)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def share_modules() -> None:
    """Let processes that are forked after this share what there is by now. The collector of
    cycles writes to each object that it looks at, and a page that is written to is copied."""
    gc.collect()
    gc.freeze()


def collect_seldom() -> None:
    """Let the collector of cycles run rarely. A request makes many objects per host, which
    live as long as it does and have no cycles: looking through them costs a third of a
    decision over 20,000 hosts and finds nothing. What has cycles is mostly messages: see
    :func:`collect_all`."""
    gc.set_threshold(YOUNG, 20, 20)


def collect_all() -> None:
    """Look for garbage everywhere. oslo.messaging leaves some with each message: what was in
    use when it was young would else be collected after hours, and keep pages until then."""
    gc.collect()


def let_go(error: BaseException | None) -> None:
    """Free what was at hand where an error and its causes were raised. They and the places where
    they were handled refer to each other, and garbage is looked for rarely."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def entitle(role: str) -> None:
    """Show the process as nova-scheduler in a role.

    Health probes of kolla search command lines for that name. Those of openstack-helm
    compare it with the name of the process, which the system cuts off after 15 characters
    of the title: with the colon, unless it is set by itself. For the main thread alone.
    """
    setproctitle.setproctitle(f'{NAME}: {role}')
    setproctitle.setthreadtitle(NAME)
