# SPDX-License-Identifier: Apache-2.0
"""Keeps the accounts of decisions, which no request waits for."""

from __future__ import annotations

import logging
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from novasched.backlog import Backlog
from novasched.errors import NovaschedError
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.recorder.store import Store
from novasched.records.account import Account
from novasched.records.record import Inquiry, Record, from_json, to_json

LOG = logging.getLogger(__name__)
ROOM = 256
"""So many accounts wait to be kept; more are dropped."""

QUESTIONS = 8
"""So many refusals wait for Placement to be asked why; more are not asked about."""

Ask = Callable[[Request], Inquiry]
Observer = Callable[[Account, Record], None]
"""Hears of each decision once it is kept, in the thread that keeps them."""
Count = Callable[[Account], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that Placement has nothing for, and its record."""

    request: Request
    record: Record


class Keeper:
    """Implements :class:`novasched.ports.Records`.

    :param store: the file, if there is one.
    :param ask: finds out why Placement offers nothing.
    :param count: adds a decision to others, kept or not; from any thread.
    :param clock: seconds since 1970.
    :param observers: accounts are kept for them, too.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        ask: Ask | None = None,
        count: Count | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.settings = settings
        self._kept: deque[bytes] = deque(maxlen=settings.decisions_kept)
        self._store = store if settings.decisions_kept else None
        self._ask, self._count = ask, count
        self._observers = tuple(observers)
        self._keeps = bool(settings.decisions_kept or self._observers)
        self._clock, self._timer = clock, timer
        self._accounts: Backlog[Account | Record] = Backlog(
            self._keep, 'records', lambda _: 'keep a decision record', ROOM
        )
        self._questions: Backlog[Refused] = Backlog(
            self._inquire, 'inquiries', lambda _: 'ask Placement why it offers nothing', QUESTIONS
        )
        self._counts: Backlog[Account] = Backlog(
            count or _forget, 'metrics', lambda _: 'count a decision', ROOM
        )
        self._writes = True

    @property
    def dropped(self) -> int:
        """How many records were."""
        return self._accounts.dropped

    def opened(self, request: Request, seed: int) -> Account | None:
        """See :class:`novasched.ports.Records`."""
        shown = self.settings.fault_detail != 'none'
        if not (self._keeps or shown or self._count):
            return None
        return Account(request, seed, self._timer, detailed=self._store is not None)

    def closed(self, account: Account) -> None:
        """See :class:`novasched.ports.Records`."""
        if self._keeps and not self._accounts.add(account):
            LOG.warning('A decision record is dropped, since %d wait to be kept', ROOM)
        if self._count and not self._counts.add(account):
            self._count(account)  # none is left out

    def close(self) -> None:
        """Keep and count what is left. Accounts lead to questions, and their answers to
        records."""
        self._counts.close()
        for backlog in (self._accounts, self._questions, self._accounts):
            backlog.close()

    def newest(self, most: int | None = None) -> list[Record]:
        """What is kept in memory, or so many of it, the newest first."""
        return [from_json(text) for text in islice(reversed(tuple(self._kept)), most)]

    def _keep(self, account: Account | Record) -> None:
        if isinstance(account, Record):  # one that Placement has been asked about since
            self._replace(account)
            self._write(account, None)
            return
        id, hashed = uuid.uuid4().hex, self.settings.decisions_hash_ids
        record = account.record(id, self._clock() - account.age, hashed)
        self._kept.append(to_json(record))
        self._write(record, account)
        offer = record.offer
        unoffered = offer and offer.asked and not offer.candidates
        asks = self._store and self._ask and self.settings.decisions_questions
        if unoffered and account.narrowed and asks:
            self._questions.add(Refused(replace(account.narrowed, origin=None), record))
        for observer in self._observers:
            observer(account, record)

    def _replace(self, record: Record) -> None:
        for place, text in enumerate(self._kept):
            if record.id.encode() in text:
                self._kept[place] = to_json(record)

    def _inquire(self, refused: Refused) -> None:
        assert self._ask is not None
        try:
            found = self._ask(refused.request)
        except NovaschedError as error:
            LOG.debug('Placement cannot be asked why it offers nothing: %s', error)
            return
        self._accounts.add(replace(refused.record, inquiry=found))

    def _write(self, record: Record, account: Account | None) -> None:
        """Into the file. It is told once that this fails, until it does not any more."""
        if self._store is None:
            return
        try:
            self._store.write(record, None if account is None else account.causes())
        except (sqlite3.Error, OSError, NovaschedError) as error:
            if self._writes:
                LOG.warning('Decision records are kept in memory alone: %s', error)
            self._writes = False
        else:
            self._writes = True


def _forget(_: Account) -> None:
    """Nobody counts."""
