# SPDX-License-Identifier: Apache-2.0
"""What the daemon takes of the machine, looked at every few seconds while it works."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil

from tests.lab.nova_cloud import NovaCloud
from tests.lab.watching import resident

EVERY = 2.0  # seconds


@dataclass(frozen=True)
class Sample:
    """Of all processes of the daemon together; memory in MiB, what they share counted once."""

    seconds: float
    memory: float
    threads: int
    descriptors: int
    databases: int
    broker: int
    placement: int


@dataclass
class Watch:
    """Takes samples, from ``with`` to its end."""

    pid: int
    cloud: NovaCloud
    samples: list[Sample] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)
    """Every process that there ever was beside the first."""

    def __post_init__(self) -> None:
        urls = {
            'databases': self.cloud.api.url,
            'broker': self.cloud.amqp_url,
            'placement': self.cloud.placement_url,
        }
        self._ports = {urlsplit(url).port: name for name, url in urls.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._begun = time.monotonic()
        self.samples.append(self._sample())
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self.samples.append(self._sample())
            except psutil.NoSuchProcess:
                continue  # who waits for its answers hears of its end

    def _sample(self) -> Sample:
        master = psutil.Process(self.pid)
        workers = master.children()
        self.workers.update(each.pid for each in workers)
        every = [master, *workers]
        found = Counter(
            self._ports[connection.raddr.port]
            for process in every
            for connection in process.net_connections('tcp')
            if connection.status == psutil.CONN_ESTABLISHED and connection.raddr.port in self._ports
        )
        return Sample(
            seconds=time.monotonic() - self._begun,
            memory=resident(self.pid) / 2**20,
            threads=sum(each.num_threads() for each in every),
            descriptors=sum(each.num_fds() for each in every),
            **{name: found[name] for name in self._ports.values()},
        )
