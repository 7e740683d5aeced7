# SPDX-License-Identifier: Apache-2.0
"""Keeps records of decisions, which no request waits for."""

import logging
import math
import secrets
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

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
"""Decisions that wait to be kept; more are dropped."""

SHARE = 0.05
MAX_ALLOWANCE_S = 0.1
"""Of the time that decisions take, for writing their records, and seconds of a
processor that are saved up for a burst. Where nothing is left the reasons against each
single host are not written: among thousands of hosts they take most of it."""

DROP_LOG_INTERVAL_S = 60.0
"""Seconds between two log lines about dropped records."""

HASH_KEY = secrets.token_bytes(32)
"""The key of hashed ids unless an option sets one. Made before the workers are forked,
so that they share it."""

MAX_WAITING_DIAGNOSES = 8
"""Refusals that wait for Placement to be asked why; more are not asked about."""

Diagnose = Callable[[Decision], tuple[Diagnosis, StageRejections]]
"""Says why Placement did not offer the hosts that it did not, and what each of them
lacks."""


class DecisionRecorder:
    """Gets every decision (:attr:`novasched.scheduler.drivers.Parts.recorder`).

    :param store: the file, if there is one.
    :param diagnose: finds out, of refusals, why Placement did not offer hosts.
    :param pause: seconds until the next diagnosis may ask Placement.
    :param count: adds a decision to others, kept or not; from any thread.
    :param clock: seconds since 1970.
    :param monotonic: seconds, from any moment on.
    :param observers: get each decision with its record, in the thread that keeps them.
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
        key = (settings.decisions_hash_key or '').encode() or HASH_KEY
        self._hash_key = key if settings.decisions_hash_ids else None
        self._kept: dict[str, bytes] = {}  # compressed, by id, the oldest first
        self._limit = settings.decisions_kept
        self._store = store if settings.decisions_kept else None
        if self._store and settings.decisions_questions:
            self._diagnose = diagnose
        else:
            self._diagnose = None
        self._pause = pause
        self._ending = threading.Event()  # ends a pause
        self._count = count
        self._observers = observers
        self._keeps = bool(settings.decisions_kept or observers)
        self._clock = clock
        self._monotonic = monotonic
        self._decisions: WorkerQueue[Decision | tuple[Record, Rejections]] = (
            WorkerQueue(
                self._keep,
                'records',
                lambda _: 'keep a decision record',
                MAX_WAITING_RECORDS,
            )
        )
        self._refusals: WorkerQueue[tuple[Decision, Record]] = WorkerQueue(
            self._ask,
            'diagnoses',
            lambda _: 'ask Placement why it does not offer hosts',
            MAX_WAITING_DIAGNOSES,
        )
        self._counts = count and WorkerQueue(
            count, 'metrics', lambda _: 'count a decision', MAX_WAITING_RECORDS
        )
        self._writes = True
        self._allowance = MAX_ALLOWANCE_S
        self._earned_at = monotonic()
        self._reported_drops = 0
        self._report_drops_at = -math.inf

    @property
    def dropped(self) -> int:
        return self._decisions.dropped

    def __call__(self, decision: Decision) -> None:
        """Take a decision; raises nothing, and takes no time."""
        if self._keeps:
            # The thread that keeps records reports the number of dropped ones.
            self._decisions.put(decision)
        if self._count and self._counts and not self._counts.put(decision):
            self._count(decision)  # none is left out

    def open(self) -> str | None:
        """Make the file, or open it. The answer is why that cannot be, which is tried
        again with each record, and not logged then."""
        if self._store is None:
            return None
        try:
            self._store.open()
        except WRITE_ERRORS as error:
            self._writes = False
            return str(error)
        return None

    def wait(self) -> None:
        """Keep and count the decisions that wait. A refused decision leads to
        questions, unless Placement may not be asked yet, and the answers lead to
        another record."""
        if self._counts:
            self._counts.close()
        self._decisions.close()
        self._ending.set()
        self._refusals.close()
        self._ending.clear()
        self._decisions.close()

    def close(self) -> None:
        """Keep and count the decisions that wait, and close the file."""
        self.wait()
        self._report_drops_at = -math.inf
        self._report_drops()
        if self._store is not None:
            self._store.close()

    def newest(self, limit: int | None = None) -> list[Record]:
        """Records kept in memory, the newest first."""
        kept = reversed(tuple(self._kept.values()))
        return [from_json(unpacked(text)) for text in islice(kept, limit)]

    def _report_drops(self) -> None:
        """Log the number of dropped records, once in an interval."""
        number = self.dropped - self._reported_drops
        now = self._monotonic()
        if not number or now < self._report_drops_at:
            return
        LOG.warning(
            '%d decision records were dropped, since %d decisions waited already',
            number,
            MAX_WAITING_RECORDS,
        )
        self._reported_drops += number
        self._report_drops_at = now + DROP_LOG_INTERVAL_S

    def _keep(self, kept: Decision | tuple[Record, Rejections]) -> None:
        self._report_drops()
        if isinstance(kept, tuple):  # Placement has been asked about it since
            record, rejections = kept
            text = packed(record)
            if record.id in self._kept:
                self._kept[record.id] = text
            self._write(record, rejections, text)
            return

        at = self._clock() - (time.perf_counter() - kept.began)
        record = record_of(kept, uuid.uuid4().hex, at, self._hash_key)
        text = packed(record)
        self._kept[record.id] = text
        while len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]

        # Decisions at the same time share one processor.
        now = self._monotonic()
        began = time.thread_time()
        earned = SHARE * min(kept.ended - kept.began, now - self._earned_at)
        self._allowance = min(MAX_ALLOWANCE_S, self._allowance + earned)
        self._earned_at = now
        reasons: Rejections | None = None
        if self._store is not None and self._allowance > 0:
            reasons = rejections_of(kept)
        self._write(record, reasons, text)
        spent = time.thread_time() - began
        self._allowance = max(-MAX_ALLOWANCE_S, self._allowance - spent)
        if self._diagnose and _lacks_hosts(record):
            self._refusals.put((kept, record))
        for observer in self._observers:
            observer(kept, record)

    def _ask(self, refused: tuple[Decision, Record]) -> None:
        assert self._diagnose is not None
        decision, record = refused
        # The answers to the next questions also serve the refusals that wait meanwhile.
        if (seconds := self._pause()) and self._ending.wait(seconds):
            return
        try:
            found, unoffered = self._diagnose(decision)
        except NovaschedError as error:
            LOG.debug(
                'Placement cannot be asked why it does not offer hosts: %s', error
            )
            return
        rejections = rejections_of(decision)
        rejections = replace(rejections, dropped=[unoffered, *rejections.dropped])
        self._decisions.put((replace(record, inquiry=found), rejections))

    def _write(
        self,
        record: Record,
        rejections: Rejections | None,
        text: bytes,
    ) -> None:
        """Write into the file. The first of several failures is logged."""
        if self._store is None:
            return
        try:
            self._store.write(record, rejections, text)
        except WRITE_ERRORS as error:
            if self._writes:
                LOG.warning('Decision records are kept in memory alone: %s', error)
            self._writes = False
        else:
            if not self._writes:
                LOG.info('Decision records are kept in %s again', self._store.path)
            self._writes = True


def _lacks_hosts(record: Record) -> bool:
    """True for a request that was refused, and of which Placement did not offer all
    hosts."""
    offer = record.offer
    result = record.result
    if (
        offer is None
        or not offer.asked
        or result.refusal is None
        or result.failure is not None
    ):
        return False
    return not offer.candidates or offer.hosts < offer.total
