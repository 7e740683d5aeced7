# SPDX-License-Identifier: Apache-2.0
"""The time for which requests wait until Placement or a database answers again."""

import logging
import math
import time

from novasched.conf.settings import Settings
from novasched.scheduler.attempt import End, Outcome
from novasched.scheduler.errors import PlacementUnavailable, Unavailable
from novasched.scheduler.model.request import Request

LOG = logging.getLogger('nova.scheduler.manager')

FIRST_PAUSE_S = 0.1
PAUSE_S = 1.0
"""Seconds before a request is decided anew, at first and in the end."""
LOOK_S = 1.0
"""Seconds after which a request that waits looks whether the process is going to
end."""
ROOM_S = 2.0
"""Seconds for which requests make room after the last message was left in the broker.
The broker needs a moment to deliver the next messages."""


class Patience:
    """Limits the time for which requests wait.

    Every method may be called by any thread: each value is written as a whole, and a
    value that is a moment old does no harm.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ends_at = math.inf  # when the process ends
        self._failing_since = math.inf
        self._full_at = -math.inf  # when no message could be taken from the broker

    def stop(self, seconds: float) -> None:
        """Let every request end within some seconds: the process ends."""
        self._ends_at = time.monotonic() + seconds

    def make_room(self) -> None:
        """Note that no message can be taken from the broker, for want of threads."""
        self._full_at = time.monotonic()

    def note(self, outcome: Outcome) -> None:
        """Note since when Placement or a database fails.

        An outage ends with an answer. A try that did not ask Placement says nothing: a
        rebuild does not need Placement, and prefilters may refuse before Placement is
        asked.
        """
        if outcome.end is End.UNAVAILABLE:
            self._failing_since = min(self._failing_since, time.monotonic())
            return
        counts = outcome.decision.counts
        is_answer = outcome.end in (End.PLACED, End.REFUSED)
        if is_answer and counts is not None and counts.asked:
            self._failing_since = math.inf

    def wait(self, request: Request, error: Unavailable, tries: int) -> bool:
        """Wait until the service that failed may work again.

        :param tries: the number of tries that have failed.
        :returns: False if the request has waited for as long as it may.
        """
        if self.seconds_left(request, error) <= 0:
            return False

        if tries == 1:
            LOG.warning(
                'Instances %s wait, for %.0f s at the most: %s',
                request.instance_uuids,
                self.seconds_left(request, error),
                error,
            )
        # An open circuit tells when it closes. Other errors are over at once as far as
        # they can tell, so that a pause has to pass.
        if error.is_over(0.0):
            pause = min(FIRST_PAUSE_S * 2 ** (tries - 1), PAUSE_S)
            time.sleep(min(pause, max(0.0, self.seconds_left(request, error))))
        while (left := self.seconds_left(request, error)) > 0:
            # In short looks, since the process may be told to end.
            if error.is_over(min(LOOK_S, left)):
                break
        return True

    def seconds_left(self, request: Request, error: Unavailable) -> float:
        """Seconds that a request may still wait for the end of an outage.

        While this process has no room for more messages, the broker keeps them, and
        their callers get no heartbeats. Then the patience of a request counts from the
        beginning of the outage, if the outage began before the request arrived, so that
        the request leaves its thread to the next one.
        """
        patience = self._settings.database_patience
        if isinstance(error, PlacementUnavailable):
            patience = self._settings.placement_patience
        now = time.monotonic()
        since = request.received
        if now < self._full_at + ROOM_S:
            since = min(since, self._failing_since)
        return min(since + patience, self._ends_at) - now
