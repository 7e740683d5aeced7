# SPDX-License-Identifier: Apache-2.0
"""Keeps records of decisions, in memory and in a file. No request waits for a record.

::

    driver -> DecisionRecorder -> queue "metrics"   -> counters
                               -> queue "records"   -> RecordRing, RecordFile, observers
                                      ^  |
                                      |  v  a refusal that Placement may explain
                                  queue "diagnoses" -> Placement

A diagnosis returns to the queue of records, because one thread writes the file.
"""

import logging
import math
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from novasched.concurrency.worker_queue import WorkerQueue
from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import record_of, rejections_of
from novasched.observe.records.record import (
    Diagnosis,
    Record,
    Rejections,
    StageRejections,
    from_json,
    packed,
    unpacked,
)
from novasched.observe.records.store import RecordWriter
from novasched.scheduler.decision import Decision

LOG = logging.getLogger(__name__)
WRITE_ERRORS = (sqlite3.Error, OSError, NovaschedError)

MAX_WAITING_RECORDS = 256
"""Decisions that wait to be recorded. Further decisions are dropped."""

RECORDS_IN_MEMORY = 20
"""Records for the Guru Meditation Report of a worker, also without a file."""

SHARE = 0.02
"""The part of the time of a processor for the reasons against single hosts."""

MAX_ALLOWANCE_S = 0.1
"""Seconds of processor time that are saved up for a burst of decisions, and that
refusals may take in advance."""

DROP_LOG_INTERVAL_S = 60.0
"""Seconds between two log lines about dropped records."""

MAX_WAITING_DIAGNOSES = 8
"""Refusals that wait for a diagnosis. Further refusals get no diagnosis."""

Diagnose = Callable[[Decision], tuple[Diagnosis, StageRejections]]
"""Finds out why Placement did not offer hosts, in numbers and host by host."""


class RecordRing:
    """The newest records, compressed, in the memory of this worker."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}  # by id, the oldest first

    def add(self, id: str, text: bytes) -> None:
        self._texts[id] = text
        while len(self._texts) > RECORDS_IN_MEMORY:
            del self._texts[next(iter(self._texts))]

    def replace(self, id: str, text: bytes) -> None:
        """Replace a record, unless newer records have displaced it."""
        if id in self._texts:
            self._texts[id] = text

    def newest(self) -> list[Record]:
        """The records, newest first."""
        # The tuple is a copy: another thread adds records meanwhile.
        texts = reversed(tuple(self._texts.values()))
        return [from_json(unpacked(text)) for text in texts]


class RecordFile:
    """The file of records. A failure is logged once, and the recovery once.

    :param writer: None if ``[novasched] decisions_file`` is empty.
    """

    def __init__(self, writer: RecordWriter | None) -> None:
        self._writer = writer
        self._is_writable = True

    @property
    def is_wanted(self) -> bool:
        return self._writer is not None

    def open(self) -> str | None:
        """Create or open the file.

        :returns: why the file cannot be opened. The caller logs the reason; later
            records try again.
        """
        if self._writer is None:
            return None
        try:
            self._writer.open()
        except WRITE_ERRORS as error:
            self._is_writable = False
            return str(error)
        return None

    def write(self, record: Record, rejections: Rejections | None, text: bytes) -> None:
        """Write a record, in place of an earlier version of the record."""
        if self._writer is None:
            return
        try:
            self._writer.write(record, rejections, text)
        except WRITE_ERRORS as error:
            if self._is_writable:
                LOG.warning('Decision records are kept in memory only: %s', error)
            self._is_writable = False
        else:
            if not self._is_writable:
                LOG.info('Decision records are kept in %s again', self._writer.path)
            self._is_writable = True

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass
class ReasonsAllowance:
    """Processor time for the reasons against single hosts, in seconds.

    :param monotonic: seconds, from any moment on.
    """

    monotonic: Callable[[], float]
    _seconds: float = field(default=MAX_ALLOWANCE_S, init=False)
    _earned_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._earned_at = self.monotonic()

    def is_left(self, for_refusal: bool) -> bool:
        """True if there is time for the reasons of a decision. A customer asks for the
        reasons of a refusal, so that refusals come first."""
        now = self.monotonic()
        earned = SHARE * (now - self._earned_at)
        self._seconds = min(MAX_ALLOWANCE_S, self._seconds + earned)
        self._earned_at = now
        if for_refusal:
            return self._seconds > -MAX_ALLOWANCE_S
        return self._seconds > 0

    def spend(self, seconds: float) -> None:
        """Note processor time for reasons. A decision among very many hosts costs no
        later decision more than refusals may take in advance."""
        self._seconds = max(-MAX_ALLOWANCE_S, self._seconds - seconds)


@dataclass
class DropReport:
    """Logs the number of dropped records, at most once in an interval."""

    monotonic: Callable[[], float]
    _reported: int = 0
    _next_at: float = -math.inf

    def __call__(self, dropped: int, at_once: bool = False) -> None:
        """Log the drops since the last line.

        :param dropped: all drops since the start.
        """
        number = dropped - self._reported
        now = self.monotonic()
        if not number or (now < self._next_at and not at_once):
            return

        LOG.warning(
            '%d decision records were dropped, since %d decisions waited already',
            number,
            MAX_WAITING_RECORDS,
        )
        self._reported += number
        self._next_at = now + DROP_LOG_INTERVAL_S


class Diagnoses:
    """The queue of refusals that wait for a diagnosis.

    :param diagnose: asks Placement.
    :param pause: seconds until the next diagnosis may ask Placement.
    :param done: receives each record with its diagnosis, and the reasons against hosts.
    """

    def __init__(
        self,
        diagnose: Diagnose,
        pause: Callable[[], float],
        done: Callable[[Record, Rejections], None],
    ) -> None:
        self._diagnose = diagnose
        self._pause = pause
        self._done = done
        self._is_ending = threading.Event()  # set to end a pause early
        self._queue: WorkerQueue[tuple[Decision, Record]] = WorkerQueue(
            self._ask,
            'diagnoses',
            lambda _: 'ask Placement why it does not offer hosts',
            MAX_WAITING_DIAGNOSES,
        )

    def put(self, decision: Decision, record: Record) -> None:
        self._queue.put((decision, record))

    def close(self) -> None:
        """Work through the queue without pauses: a refusal that would have to pause
        gets no diagnosis."""
        self._is_ending.set()
        self._queue.close()
        self._is_ending.clear()

    def _ask(self, refusal: tuple[Decision, Record]) -> None:
        decision, record = refusal
        # The answers to the next questions also serve the refusals that arrive during
        # the pause.
        seconds = self._pause()
        if seconds and self._is_ending.wait(seconds):
            return

        try:
            diagnosis, unoffered = self._diagnose(decision)
        except NovaschedError as error:
            LOG.debug(
                'Placement cannot be asked why it does not offer hosts: %s', error
            )
            return

        rejections = rejections_of(decision)
        rejections = replace(rejections, dropped=[unoffered, *rejections.dropped])
        self._done(replace(record, diagnosis=diagnosis), rejections)


class DecisionRecorder:
    """Receives every decision
    (:attr:`novasched.scheduler.drivers.SchedulerDeps.recorder`).

    :param store: writes the file, or None.
    :param diagnose: finds out why Placement did not offer hosts to a refused request.
    :param pause: seconds until the next diagnosis may ask Placement.
    :param count: adds a decision to the metrics, from any thread.
    :param clock: seconds since 1970.
    :param monotonic: seconds, from any moment on.
    :param observers: receive each decision with its record, in the recording thread.
    """

    def __init__(
        self,
        settings: Settings,
        store: RecordWriter | None = None,
        diagnose: Diagnose | None = None,
        count: Callable[[Decision], None] | None = None,
        clock: Callable[[], float] = time.time,
        observers: Sequence[Callable[[Decision, Record], None]] = (),
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._ring = RecordRing()
        self._file = RecordFile(store)
        self._allowance = ReasonsAllowance(monotonic)
        self._report_drops = DropReport(monotonic)
        self._observers = observers
        self._clock = clock

        # The items are calls: one queue takes new decisions and diagnosed records.
        self._records: WorkerQueue[Callable[[], None]] = WorkerQueue(
            lambda keep: keep(),
            'records',
            lambda _: 'keep a decision record',
            MAX_WAITING_RECORDS,
        )
        self._diagnoses: Diagnoses | None = None
        if diagnose and self._file.is_wanted and settings.decisions_questions:
            self._diagnoses = Diagnoses(diagnose, pause, self._put_diagnosed)
        self._counts: DecisionCounts | None = None
        if count:
            self._counts = DecisionCounts(count)

    @property
    def dropped(self) -> int:
        """Number of records that were dropped because the queue was full."""
        return self._records.dropped

    def __call__(self, decision: Decision) -> None:
        """Queue a decision. Raises nothing."""
        # The recording thread reports drops, not the thread of the request.
        self._records.put(lambda: self._keep(decision))
        if self._counts is not None:
            self._counts.add(decision)

    def open(self) -> str | None:
        """Create or open the file; see :meth:`RecordFile.open`."""
        return self._file.open()

    def wait(self) -> None:
        """Record, count and diagnose the decisions in the queues."""
        if self._counts is not None:
            self._counts.close()
        self._records.close()
        if self._diagnoses is not None:
            self._diagnoses.close()
            # Diagnosed records have come back to the queue.
            self._records.close()

    def close(self) -> None:
        """Work through the queues, and close the file."""
        self.wait()
        self._report_drops(self.dropped, at_once=True)
        self._file.close()

    def newest(self) -> list[Record]:
        """Records kept in memory, newest first."""
        return self._ring.newest()

    def _keep(self, decision: Decision) -> None:
        """Record a decision, in the recording thread."""
        self._report_drops(self.dropped)

        at = self._clock() - (time.perf_counter() - decision.began)
        record = record_of(decision, uuid.uuid4().hex, at)
        text = packed(record)
        self._ring.add(record.id, text)

        # The reasons against each single host are the largest part by far among
        # thousands of hosts. Under load they are left out.
        is_refusal = decision.refusal is not None
        if self._file.is_wanted and self._allowance.is_left(is_refusal):
            began = time.thread_time()
            self._file.write(record, rejections_of(decision), text)
            self._allowance.spend(time.thread_time() - began)
        else:
            self._file.write(record, None, text)

        if self._diagnoses is not None and _is_short_of_offers(record):
            self._diagnoses.put(decision, record)
        for observer in self._observers:
            observer(decision, record)

    def _put_diagnosed(self, record: Record, rejections: Rejections) -> None:
        self._records.put(lambda: self._keep_diagnosed(record, rejections))

    def _keep_diagnosed(self, record: Record, rejections: Rejections) -> None:
        """Replace a record by the one with a diagnosis, in the recording thread."""
        self._report_drops(self.dropped)
        text = packed(record)
        self._ring.replace(record.id, text)
        self._file.write(record, rejections, text)


class DecisionCounts:
    """The queue of decisions for the metrics.

    :param count: adds a decision to the metrics, from any thread.
    """

    def __init__(self, count: Callable[[Decision], None]) -> None:
        self._count = count
        self._queue = WorkerQueue(
            count, 'metrics', lambda _: 'count a decision', MAX_WAITING_RECORDS
        )

    def add(self, decision: Decision) -> None:
        """Count a decision. While the queue is full the caller's thread counts: a
        counter that misses requests is worse than a slow request."""
        if not self._queue.put(decision):
            self._count(decision)

    def close(self) -> None:
        self._queue.close()


def _is_short_of_offers(record: Record) -> bool:
    """True for a refused request to which Placement did not offer every host."""
    offer = record.counts
    result = record.result
    if offer is None or not offer.asked:
        return False
    if result.refusal is None or result.failure is not None:
        return False
    return not offer.candidates or offer.hosts < offer.total
