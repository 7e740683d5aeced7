# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker: a service that does not answer is not asked until a probe is
answered."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from novasched.concurrency import backoff

FIRST_PROBE_S = 1.0
LAST_PROBE_S = 5.0
"""Seconds between probes, at first and in the end."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Calls without an answer, none of which had one between: the moments of the first
    and of the last (monotonic seconds), and why the last had none."""

    since: float
    last: float
    why: str


class CircuitBreaker:
    """Tells callers whether the circuit to a service is open, and why.

    One slow answer does not open it while others are answered: it opens if no call was
    answered since the failed one began, or if none is while a probe fails. A thread
    probes then, with back-off, and closes it at the first answer.

    :ivar reason: the failure for which the circuit is open; None while it is closed.
    :ivar trouble: the calls without an answer since the last one that had one, also
        those that failed too soon to open the circuit; None if there are none.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        errors: type[Exception] | tuple[type[Exception], ...],
        first: float = FIRST_PROBE_S,
        last: float = LAST_PROBE_S,
        on_change: Callable[[str | None], object] = lambda reason: None,
    ) -> None:
        """Begin with a closed circuit.

        :param probe: asks for something small, and raises one of ``errors`` while there
            is no answer.
        :param on_change: called with the reason when the circuit opens, with None when
            it closes.
        """
        self._probe = probe
        self._errors = errors
        self._on_change = on_change
        self._first = first
        self._last = last
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._closed = threading.Event()
        self._closed.set()
        self._probing = False
        self._last_success = -math.inf
        self.reason: str | None = None
        self.trouble: Trouble | None = None

    def wait_closed(self, seconds: float) -> bool:
        """Wait until the circuit is closed; False if it stays open for that long."""
        return self._closed.wait(seconds)

    def succeeded(self) -> None:
        """Note that a call was answered just now."""
        self._last_success = time.monotonic()
        self.trouble = None

    def missed(self, why: str) -> None:
        """Note that a call got no answer, however soon it failed."""
        now = time.monotonic()
        before = self.trouble
        self.trouble = Trouble(before.since if before else now, now, why)

    def failed(self, reason: str, began: float) -> None:
        """Note that a call has waited in vain since ``began`` (monotonic seconds)."""
        self.missed(reason)
        with self._lock:
            if self._probing or self._stopped.is_set():
                return
            self._probing = True
        self._open_unless_succeeded(reason, began)
        threading.Thread(
            target=self._probe_until_answered,
            args=(reason,),
            name='breaker',
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Probe no more, and let no caller wait."""
        self._stopped.set()
        self._closed.set()

    def _open_unless_succeeded(self, reason: str, began: float) -> bool:
        """Open the circuit unless a call was answered since; True if it is open."""
        if self.reason is None and self._last_success < began:
            self._on_change(reason)
            self._closed.clear()
            self.reason = reason
        return self.reason is not None

    def _probe_until_answered(self, reason: str) -> None:
        was_open = False
        try:
            for pause in backoff(self._first, self._last):
                if self._is_answered(reason):
                    was_open = self.reason is not None
                    break
                if self._stopped.wait(pause):
                    break
        finally:
            # Whatever else a probe raises, callers are to meet it themselves.
            with self._lock:
                self.reason = None
                self._closed.set()
                self._probing = False
        if was_open:
            self._on_change(None)

    def _is_answered(self, reason: str) -> bool:
        """Probe; its failure counts only while no other call is answered."""
        began = time.monotonic()
        try:
            self._probe()
        except self._errors:
            self.missed(reason)
            return not self._open_unless_succeeded(reason, began)
        self.succeeded()
        return True
