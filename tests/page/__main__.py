# SPDX-License-Identifier: Apache-2.0
"""Serves the page of a made-up cloud, to look at: ``python -m tests.page [HOSTS]``."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from tests.lab.browser import served
from tests.lab.page_sample import Cells, a_page, cloud, decided

HOSTS, REQUESTS = 2000, 60


def main(count: int) -> None:
    """Serve it until Ctrl-C."""
    hosts = cloud(count)
    with tempfile.TemporaryDirectory() as work, contextlib.suppress(KeyboardInterrupt):
        path = Path(work, 'decisions')
        decided(path, [host for each in hosts.values() for host in each], REQUESTS)
        with served(a_page(Cells(hosts), path)) as url:
            print(url, flush=True)
            signal.pause()


if __name__ == '__main__':
    main(int(sys.argv[1]) if sys.argv[1:] else HOSTS)
