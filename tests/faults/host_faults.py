# SPDX-License-Identifier: Apache-2.0
"""What happens to the machine that a scheduler runs on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from .fault import fault
from .site import Site

HOUR = 3600


@fault(
    'no room for the log', seconds=2, config=lambda _site: {'DEFAULT': {'log_file': '/dev/full'}}
)
def log_full(_site: Site) -> Iterator[None]:
    """Each write of a line fails, from the first to the last."""
    yield


@fault('clock jumps by an hour', environment=lambda site: site.clock.environment())
def clock_jumps(site: Site) -> Iterator[None]:
    """Forward, and back again."""
    site.clock.jump(HOUR)
    yield
    site.clock.jump(0)


@fault('scheduler frozen', quick=False, varied=True)
def frozen(site: Site) -> Iterator[None]:
    """A virtual machine that is moved."""
    with site.frozen_workers():
        yield


@fault('scheduler reloads', seconds=0, quick=False)
def reloads(site: Site) -> Iterator[None]:
    """SIGHUP, ten times."""
    for _ in range(10):
        for daemon in site.daemons:
            os.kill(daemon.pid, signal.SIGHUP)
    yield
