# SPDX-License-Identifier: Apache-2.0
"""What a worker measures, and where. Imported where metrics are on alone."""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections import deque

from novasched.cells.schema import Database
from novasched.cells.snapshot import HostReader
from novasched.metrics.catalogue import (
    BREAKER_OPEN,
    BUILD,
    CASTS,
    GIVE_BACKS,
    INFLIGHT,
    MESSAGE_WAIT,
    MESSAGES_DROPPED,
    MESSAGES_IN_PROGRESS,
    MESSAGES_WAITING,
    NOTIFICATIONS_DROPPED,
    RECORDS_DROPPED,
    ROWS_REFRESHED,
    SNAPSHOT_AGE,
    SNAPSHOT_HOSTS,
    WORKERS,
)
from novasched.metrics.instruments import Instruments
from novasched.metrics.sampling import INTERVAL, ROOM, Draining, Found, Reading, Sampler
from novasched.metrics.tally import Tally
from novasched.model.host import Fleet
from novasched.notify.sender import Sender
from novasched.placement.client import PlacementClient
from novasched.ports import Silence
from novasched.processes import loopingcall
from novasched.recorder.keeper import Keeper
from novasched.rpc.intake import Counts
from novasched.rpc.server import Server

PACKAGE = 'novasched'


class Meter:
    """Counts for one worker.

    :ivar tally: adds up decisions.
    :ivar counts: is kept of messages.
    """

    def __init__(self, number: int) -> None:
        self._instruments = Instruments(number)
        self.tally = Tally(self._instruments)
        self.counts = Counts(waits=deque(maxlen=ROOM))

    def watch(
        self,
        hosts: HostReader,
        placement: PlacementClient,
        own: Database,
        notices: Sender | Silence,
        records: Keeper,
        server: Server,
    ) -> loopingcall.FixedIntervalLoopingCall:
        """Look every now and then at how things stand in these; the task that does."""
        counts, version = self.counts, importlib.metadata.version(PACKAGE)
        readings = [
            Reading(WORKERS, lambda: 1),
            Reading(BUILD, lambda: {(version,): 1}),
            Reading(MESSAGES_WAITING, lambda: server.waiting),
            Reading(MESSAGES_IN_PROGRESS, lambda: server.in_progress),
            Reading(MESSAGES_DROPPED, lambda: counts.dropped),
            Reading(CASTS, lambda: {('handled',): counts.handled, ('ignored',): counts.ignored}),
            Reading(SNAPSHOT_AGE, lambda: _age(hosts.fleet)),
            Reading(SNAPSHOT_HOSTS, lambda: len(hosts.fleet.hosts)),
            Reading(ROWS_REFRESHED, lambda: hosts.refreshed),
            Reading(INFLIGHT, hosts.in_flight.count),
            Reading(BREAKER_OPEN, lambda: _breakers(hosts, placement, own)),
            Reading(GIVE_BACKS, lambda: placement.give_backs),
            Reading(RECORDS_DROPPED, lambda: records.dropped),
            Reading(NOTIFICATIONS_DROPPED, lambda: notices.dropped),
        ]
        assert counts.waits is not None
        sampler = Sampler(self._instruments, readings, [Draining(MESSAGE_WAIT, counts.waits)])
        task = loopingcall.FixedIntervalLoopingCall(sampler)
        task.start(interval=INTERVAL, stop_on_exception=False)
        return task


def _age(fleet: Fleet) -> Found:
    """Seconds; nothing as long as no hosts have been read."""
    age = time.monotonic() - fleet.read_at
    return {(): age} if age < math.inf else {}


def _breakers(hosts: HostReader, placement: PlacementClient, own: Database) -> Found:
    """What is left alone, by the metric's labels."""
    cells = hosts.cells
    return {
        ('placement', ''): placement.left_alone,
        ('database', ''): own.left_alone,
        ('api_database', ''): cells.api.left_alone,
        **{('cell', cell.uuid): cell.database.left_alone for cell in cells.all()},
    }
