# SPDX-License-Identifier: Apache-2.0
"""What the workers have counted, all together, in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'
AGE = 1.0
"""Seconds for which a text serves whoever asks."""


class Exposition:
    """The text, read from the workers' files no more often than makes sense."""

    def __init__(
        self, directory: str, age: float = AGE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = CollectorRegistry()
        MultiProcessCollector(self._registry, directory)
        self._age, self._clock = age, clock
        self._lock = threading.Lock()
        self._read_at, self._text = -age, b''

    def __call__(self) -> bytes:
        """The text."""
        with self._lock:
            now = self._clock()
            if now - self._read_at >= self._age:
                self._text = generate_latest(self._registry)
                self._read_at = now
            return self._text
