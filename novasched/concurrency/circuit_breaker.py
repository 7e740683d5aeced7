# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker: a silent service gets only probes, until a probe is answered."""

import functools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from novasched.concurrency import backoff

FIRST_PROBE_S = 1.0
"""Seconds between the first two probes. The pause doubles from probe to probe."""
LAST_PROBE_S = 5.0
"""Longest pause between two probes, in seconds."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A series of calls without an answer, not interrupted by an answer.

    :ivar since: when the first call failed, in monotonic seconds.
    :ivar last: when the last call failed, in monotonic seconds.
    :ivar why: why the last call failed.
    """

    since: float
    last: float
    why: str


class CircuitBreaker:
    """Tells callers whether the circuit to a service is open, and why.

    The circuit is closed while calls are answered. When a call fails after a wait, a
    thread starts to probe, with back-off. The circuit opens at once if the service has
    answered no call since the failed call began, and later if the service answers no
    call while a probe fails. A slow answer among many therefore does not open the
    circuit. The first answered probe closes the circuit and ends the thread.

    :ivar reason: the failure for which the circuit is open; None while it is closed.
    :ivar trouble: the calls without an answer since the last answer, including calls
        that failed too fast to open the circuit; None after an answer.
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

        :param probe: asks the service for something small; raises one of ``errors`` if
            there is no answer.
        :param first: seconds between the first two probes.
        :param last: longest pause between two probes, in seconds.
        :param on_change: called with the reason when the circuit opens, and with None
            when the circuit closes.
        """
        self._probe = probe
        self._errors = errors
        self._pauses = functools.partial(backoff, first, last)
        self._on_change = on_change
        # Guards the next two, and wakes waiting callers and the probing thread.
        self._changed = threading.Condition()
        self._is_stopped = False
        self._is_probing = False
        self._last_success = -math.inf
        self.reason: str | None = None
        self.trouble: Trouble | None = None

    def wait_closed(self, seconds: float) -> bool:
        """Wait for the circuit to close; False if the circuit stays open."""

        def is_over() -> bool:
            return self.reason is None or self._is_stopped

        with self._changed:
            return self._changed.wait_for(is_over, seconds)

    def succeeded(self) -> None:
        """Note that a call was answered just now."""
        self._last_success = time.monotonic()
        self.trouble = None

    def missed(self, why: str) -> None:
        """Note that a call got no answer, no matter how fast the call failed."""
        now = time.monotonic()
        since = now
        if (before := self.trouble) is not None:
            since = before.since
        self.trouble = Trouble(since, now, why)

    def failed(self, reason: str, began: float) -> None:
        """Note that a call has waited without an answer.

        :param began: when the call began, in monotonic seconds.
        """
        self.missed(reason)

        with self._changed:
            if self._is_probing or self._is_stopped:
                return
            self._is_probing = True

        self._open_unless_succeeded(reason, began)
        threading.Thread(
            target=self._probe_until_answered,
            args=(reason,),
            name='breaker',
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Stop probing, and let waiting callers go on."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _open_unless_succeeded(self, reason: str, began: float) -> bool:
        """Open the circuit unless a call has been answered since ``began``; True if the
        circuit is open."""
        if self.reason is None and self._last_success < began:
            self._on_change(reason)
            self.reason = reason
        return self.reason is not None

    def _probe_until_answered(self, reason: str) -> None:
        was_open = False
        try:
            for pause in self._pauses():
                if self._is_answered(reason):
                    was_open = self.reason is not None
                    break
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_stopped, pause):
                        break
        finally:
            # Also if a probe raises an unexpected error: callers will meet it, too.
            with self._changed:
                self.reason = None
                self._is_probing = False
                self._changed.notify_all()

        if was_open:
            self._on_change(None)

    def _is_answered(self, reason: str) -> bool:
        """Probe; True if the probe is answered, or fails while another call is answered
        and the circuit is still closed."""
        began = time.monotonic()
        try:
            self._probe()
        except self._errors:
            self.missed(reason)
            return not self._open_unless_succeeded(reason, began)
        self.succeeded()
        return True
