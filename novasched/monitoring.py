# SPDX-License-Identifier: Apache-2.0
"""Metrics, where nova.conf wants them: what the master has for them, and its children use."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from novasched.conf.address import Address
from novasched.errors import ConfigError
from novasched.web.server import Web, listening

if TYPE_CHECKING:
    from novasched.measuring import Meter

OPTION = '[novasched] metrics_bind'
NEEDED = ('prometheus_client', 'waitress')
"""What the extra ``metrics`` brings."""
DIRECTORY = 'PROMETHEUS_MULTIPROC_DIR'
"""prometheus_client's, which looks there when it is first imported."""

NICE = 10
"""What is added to the niceness of who serves HTTP: a tenth of a share where others want the
processor."""


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The socket that HTTP comes to, and the directory of the workers' metrics."""

    socket: socket.socket
    directory: str

    def meter(self, number: int) -> Meter:
        """What the worker of that number measures with; to be called in there, where nobody
        is to keep the port when the master has died."""
        from novasched.measuring import Meter

        self.socket.close()
        return Meter(number)

    def web(self) -> Web:
        """What the process does that serves HTTP; to be called in there, by the main thread,
        from which all others have their niceness."""
        from novasched.web.surface import surface

        os.nice(NICE)
        if hasattr(os, 'SCHED_BATCH'):  # who wakes up then interrupts nobody
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return Web(self.socket, surface(self.directory))

    def ended(self, number: int) -> None:
        """A worker has ended: how things stood in it does not count any more. What it has
        counted does, and whoever takes its place counts on."""
        from prometheus_client import multiprocess

        with contextlib.suppress(OSError):
            multiprocess.mark_process_dead(number, self.directory)


@contextlib.contextmanager
def monitoring(address: Address | None) -> Iterator[Monitoring | None]:
    """All that, as long as the master runs; None if there is nowhere to listen.

    :raises ConfigError: it cannot be had.
    """
    if address is None:
        yield None
        return
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            why = f'{name} is not installed: pip install novasched[metrics]'
            raise ConfigError(OPTION, address, why)
    with (
        listening(address, OPTION) as listens,
        tempfile.TemporaryDirectory(prefix='novasched-metrics-') as directory,
    ):
        os.environ[DIRECTORY] = directory
        yield Monitoring(listens, directory)
