# SPDX-License-Identifier: Apache-2.0
"""Leaving alone what does not answer, until it is seen to answer again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import tenacity

FIRST, MOST = 1.0, 30.0
"""Seconds between probes: at first, and in the end."""


class Breaker:
    """Tells whether something is to be left alone, and why.

    Who has waited for it in vain trips the breaker. From then on nobody need wait: a thread
    asks every now and then by itself, and closes the breaker at the first answer.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        errors: type[Exception] | tuple[type[Exception], ...],
        first: float = FIRST,
        most: float = MOST,
    ) -> None:
        """:param probe: asks for something small, and raises one of ``errors`` while there is
        no answer.
        """
        self._probe = probe
        self._errors = errors
        self._wait = tenacity.wait_exponential(first, most) + tenacity.wait_random(0, first / 2)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._why: str | None = None

    @property
    def why(self) -> str | None:
        """What happened that it is left alone; None while it is not."""
        return self._why

    def trip(self, why: str) -> bool:
        """Leave it alone from now on; False while it already is."""
        with self._lock:
            if self._why is not None or self._over.is_set():
                return False
            self._why = why
        threading.Thread(target=self._watch, name='breaker', daemon=True).start()
        return True

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _watch(self) -> None:
        retrying = tenacity.Retrying(
            before=self._pause,
            retry=tenacity.retry_if_exception_type(self._errors),
            stop=tenacity.stop_when_event_set(self._over),
            sleep=tenacity.sleep_using_event(self._over),
            wait=self._wait,
        )
        try:
            retrying(self._probe)
        except tenacity.RetryError:
            return  # the process ends
        finally:
            # Whatever else a probe raises, callers shall see it for themselves.
            with self._lock:
                self._why = None

    def _pause(self, state: tenacity.RetryCallState) -> None:
        """The first probe, too, comes only after a while."""
        if state.attempt_number == 1:
            self._over.wait(self._wait(state))
