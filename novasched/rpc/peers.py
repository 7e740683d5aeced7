# SPDX-License-Identifier: Apache-2.0
"""The schedulers of a cloud, and the pending claims that they tell each other of.

Each process announces the claims that it chooses, makes and releases. Once a second
each process announces the number of messages with changes that it has sent. A process
that has missed a message, or has just started, asks the sender for all its pending
claims. This module writes messages and acts on messages. ``announcements.py`` defines
their form, and ``claims_exchange.py`` carries them.
"""

import itertools
import logging
import math
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from novasched.rpc.announcements import (
    MAX_ASKED,
    MAX_ROWS,
    Message,
    Row,
    claim_of,
    decode,
    decode_number,
    decode_row,
    encode,
    row_of,
)
from novasched.scheduler.model.claim import PendingClaim, Stage
from novasched.scheduler.pending_claims import PendingClaims

LOG = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 1.0
"""Seconds between messages that say how much was announced."""
PEER_TIMEOUT_S = 5.0
"""Seconds after which a process from which nothing comes counts as gone."""
CATCH_UP_S = 0.5
"""Seconds that a decision waits at most to hear what others announced before; mostly it
has, since the claim took longer."""
ALL_PEERS = '*'
MAX_PEERS = 1000
"""Maximum number of other processes whose announcements count."""
MAX_CLAIMS_OF_PEERS = MAX_ROWS
"""Maximum number of pending claims of all other processes, so that no sender can fill
the memory."""
WARNING_INTERVAL_S = 60.0
"""Seconds between lines in the log about refused announcements."""


@dataclass(slots=True)
class Other:
    """Another scheduler: the number of its last message, and when that came (monotonic
    seconds)."""

    number: int
    at: float


class PeerSchedulers:
    """The other schedulers. Implements :class:`novasched.scheduler.ports.Peers`.

    :ivar name: that of this process, which no other has or had.
    :ivar part: the place of this process among all that are alive, by their names, and
        their number.
    :ivar missed: how often messages of others were missed.
    :ivar refused: the number of invalid announcements, and of announcements beyond the
        maximum numbers.
    :ivar late: decisions that could not wait for what others had announced before.
    :ivar echoed_at: when this process heard itself (monotonic seconds).
    """

    def __init__(
        self,
        claims: PendingClaims,
        host: str,
        patience: float = CATCH_UP_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``patience`` are the seconds that a decision waits to hear what others
        announced; ``clock`` is that of the claims."""
        self.name = f'{host}:{os.getpid()}:{secrets.token_hex(4)}'
        self.part = 0, 1
        self.missed = self.late = self.refused = 0
        self.echoed_at = -math.inf
        self._claims = claims
        self._patience = patience
        self._clock = clock
        # Changes of claims, and names of processes to be asked.
        self._to_tell: queue.SimpleQueue[tuple[PendingClaim, Stage] | str] = (
            queue.SimpleQueue()
        )
        self._messages = 0
        self._order = itertools.count(1)
        self._unheard: dict[int, PendingClaim] = {}
        self._is_asked = self._speaks = False
        self._next_beat = self._next_look = 0.0
        self._next_warning = -math.inf
        self._listens_since = math.inf
        self._others: dict[str, Other] = {}
        self._theirs: dict[tuple[str, int], PendingClaim] = {}
        self._heard = threading.Condition()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """While announcements reach the broker, the first of all pending claims."""
        self._speaks = self._is_asked = True
        self._to_tell.put(ALL_PEERS)  # nobody was asked meanwhile
        try:
            yield
        finally:
            self._speaks = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While what others announce is heard; they are asked for what was before."""
        self._is_asked = (
            True  # others may hear now what this process has not heard itself
        )
        self._listens_since = self._clock()
        self._ask(ALL_PEERS)
        try:
            yield
        finally:
            self._listens_since = math.inf
            self._others.clear()
            self._see_who_is_there()

    def tell(self, claim: PendingClaim, stage: Stage) -> None:
        """See :class:`novasched.scheduler.ports.Peers`."""
        if (
            self._speaks and self._others
        ):  # else all is told once it does, and to who comes
            self._to_tell.put((claim, stage))

    def catch_up(self, claim: PendingClaim) -> None:
        """See :class:`novasched.scheduler.ports.Peers`. The broker sends each process
        its own announcements, too, behind those that came before."""
        if self._others and self._speaks:
            with self._heard:
                told = self._heard.wait_for(
                    lambda: self._claims.order_of(claim) < math.inf, self._patience
                )
                self.late += not told

    @property
    def is_sharing(self) -> bool:
        """See :class:`novasched.scheduler.ports.Peers`: this process hears itself."""
        return self._speaks and self._clock() - self.echoed_at <= PEER_TIMEOUT_S

    def wake(self) -> None:
        """Have :meth:`announcements` return."""
        self._to_tell.put('')

    def announcements(self) -> list[bytes]:
        """The next messages, as soon as there is something to tell, and at each
        beat."""
        rows = []
        asked = set()
        with suppress(queue.Empty):
            told = self._to_tell.get(timeout=max(0.0, self._next_beat - self._clock()))
            while True:
                if isinstance(told, str):
                    asked.add(told)
                elif told[1] is Stage.CHOSEN:
                    rows.append(self._row(told[0]))
                else:
                    rows.append(Row(told[0].number, told[1]))
                told = self._to_tell.get_nowait()
        self._next_beat = self._clock() + HEARTBEAT_INTERVAL_S
        self._messages += bool(rows)
        texts = [self._message(rows, ask=[*filter(None, asked)][:MAX_ASKED])]
        if self._is_asked:
            self._is_asked = False
            ours = [claim for claim in self._claims.all() if claim.is_ours]
            newest = sorted(ours, key=lambda claim: claim.since)[-MAX_ROWS:]
            texts.append(self._message([*map(self._row, newest)], whole=True))
        return texts

    def _message(self, rows: list[Row], **fields: Any) -> bytes:
        return encode(Message(self.name, self._messages, rows, **fields))

    def _row(self, claim: PendingClaim) -> Row:
        """All of a claim, which is announced now if it was not before."""
        if self._claims.order_of(claim) == math.inf:
            with self._heard:
                self._unheard[claim.number] = claim
        return row_of(claim, self._claims.is_claimed(claim), self._clock())

    def hear(self, text: bytes) -> None:
        """Act on a message, which anybody with the password of RabbitMQ may have
        sent."""
        now = self._clock()
        try:
            message = decode(text)
        except ValueError as error:
            self._refuse('a process', error, now)
            return

        sender = message.sender
        if sender == self.name:
            self._hear_itself(message, now)
            return
        if sender not in self._others and len(self._others) >= MAX_PEERS:
            self._refuse(sender, f'more than {MAX_PEERS} processes speak', now)
            return

        # Before the sender is told all claims: changes after them are told as well.
        self._count(message, now)
        if not {self.name, ALL_PEERS}.isdisjoint(message.ask):
            self._is_asked = True
            if self._speaks:
                self.wake()
        numbers = {self._apply(row, sender, now) for row in message.rows}
        if message.whole:
            kept = {(sender, number) for number in numbers}
            for key in [x for x in self._theirs if x[0] == sender and x not in kept]:
                self._claims.drop(self._theirs.pop(key))

    def _hear_itself(self, message: Message[msgspec.Raw], now: float) -> None:
        """Give the claims of this process their order among those of the others."""
        self._look(now)
        self.echoed_at = now
        try:
            numbers = [decode_number(row) for row in message.rows]
        except ValueError as error:
            self._refuse(self.name, error, now)
            return
        with self._heard:
            for number in numbers:
                if claim := self._unheard.pop(number, None):
                    self._claims.announced(claim, next(self._order))
            self._heard.notify_all()

    def _refuse(self, sender: str, why: object, now: float) -> None:
        """Count an announcement that is ignored, and log one now and then."""
        self.refused += 1
        if now >= self._next_warning:
            self._next_warning = now + WARNING_INTERVAL_S
            LOG.warning(
                'An announcement of a pending claim by %r is ignored, since %s (%d so'
                ' far)',
                sender,
                why,
                self.refused,
            )

    def _ask(self, name: str) -> None:
        """Ask a process, or ``ALL_PEERS``, for pending claims. While this process
        cannot speak, the question is dropped: it asks all processes once it speaks
        again."""
        if self._speaks:
            self._to_tell.put(name)

    def _count(self, message: Message[msgspec.Raw], now: float) -> None:
        """Note that a process is there, and see whether messages of it were missed."""
        other = self._others.get(message.sender)
        if other is None:
            self._others[message.sender] = Other(message.number, now)
            self._see_who_is_there()
        if not message.whole:
            if other is None:
                self._ask(message.sender)
            elif message.number != other.number + bool(message.rows):
                self.missed += 1
                self._ask(message.sender)
        self._others[message.sender] = Other(message.number, now)

    def _apply(self, text: msgspec.Raw, sender: str, now: float) -> int | None:
        """Apply a row to the claim of another process, and return the claim's number;
        None if the row is refused."""
        try:
            row = decode_row(text)
        except ValueError as error:
            self._refuse(sender, error, now)
            return None

        claim = self._theirs.get((sender, row.number))
        if row.state == Stage.RELEASED:
            if claim is not None:
                self._claims.drop(claim)
            return row.number
        if claim is None and row.instance and row.age <= self._claims.timeout:
            if len(self._theirs) >= MAX_CLAIMS_OF_PEERS:
                why = f'{MAX_CLAIMS_OF_PEERS} claims of others are known'
                self._refuse(sender, why, now)
                return None
            claim = claim_of(row, now)
            self._theirs[sender, row.number] = claim
            self._claims.put(claim, next(self._order))
        if (
            claim is not None
            and row.state == Stage.CLAIMED
            and not self._claims.is_claimed(claim)
        ):
            self._claims.settle([claim])
        return row.number

    def _look(self, now: float) -> None:
        """Forget silent processes, and claims that have ended, once a beat."""
        if now < self._next_look:
            return
        self._next_look = now + HEARTBEAT_INTERVAL_S

        silent = [
            name
            for name, other in self._others.items()
            if now - other.at > PEER_TIMEOUT_S
        ]
        for name in silent:
            del self._others[name]
        if silent:
            self._see_who_is_there()
        if now - self._listens_since > PEER_TIMEOUT_S:
            self._drop_unclaimed_of_silent()

        pending = {*self._claims.all()}
        for key, claim in list(self._theirs.items()):
            if claim not in pending:
                del self._theirs[key]
        with self._heard:
            for number, claim in list(self._unheard.items()):
                if claim not in pending:
                    del self._unheard[number]

    def _drop_unclaimed_of_silent(self) -> None:
        """Drop the claims that silent processes have chosen and not made in Placement.
        A process that has died never makes them."""
        for (sender, _), claim in self._theirs.items():
            if sender not in self._others and not self._claims.is_claimed(claim):
                self._claims.drop(claim)

    def _see_who_is_there(self) -> None:
        names = sorted([self.name, *self._others])
        self.part = names.index(self.name), len(names)
        LOG.info(
            'Pending claims are shared with %d other schedulers', len(self._others)
        )
