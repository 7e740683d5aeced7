# SPDX-License-Identifier: Apache-2.0
"""The peers of a scheduler, and their pending claims.

``peer_protocol.py`` explains peers and messages. This module joins the protocol with
the threads and the pending claims of this process:

    decision threads   PeerSchedulers.announce(), catch_up()
    sending thread     PeerSchedulers.announcements()      claims_exchange.py
    receiving thread   PeerSchedulers.receive()            claims_exchange.py
"""

import itertools
import logging
import math
import os
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from novasched.rpc.announcements import (
    MAX_CLAIM_BYTES,
    MAX_ROWS,
    Row,
    claim_of,
    decode,
    decode_number,
    decode_row,
    encode,
    memory_of,
    row_of,
)
from novasched.rpc.peer_protocol import (
    Action,
    ApplyRows,
    CleanUp,
    Echo,
    PeerProtocol,
    Refuse,
)
from novasched.scheduler.claims.ledger import chosen_limit
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.claim import PendingClaim, Stage

LOG = logging.getLogger(__name__)

CATCH_UP_S = 0.5
"""Maximum wait of a decision for earlier announcements, in seconds. Usually the
announcements have arrived, since a claim in Placement takes longer."""
MAX_CLAIMS_OF_PEERS = MAX_ROWS
"""Maximum number of pending claims of all peers, so that no sender can fill the
memory."""
WARNING_INTERVAL_S = 60.0
"""Seconds between log lines about refused announcements."""

Change = tuple[PendingClaim, Stage]
"""A claim of this process, and its new stage."""


class RefusalLog:
    """Counts refused announcements, and logs a line per ``WARNING_INTERVAL_S``.

    Only the receiving thread uses this object, except for ``count``.
    """

    def __init__(self) -> None:
        self.count = 0
        self._next_line = -math.inf

    def add(self, sender: str, reason: object, now: float) -> None:
        self.count += 1
        if now < self._next_line:
            return
        self._next_line = now + WARNING_INTERVAL_S
        LOG.warning(
            'Announcement of pending claims from %r ignored: %s (%d ignored so far)',
            sender,
            reason,
            self.count,
        )


class AnnouncedClaims:
    """The pending claims of this process and of peers, by the number in messages.

    When the announcement of a claim of this process comes back, the claim gets a
    position among all announcements.
    """

    def __init__(self, ledger: SharedLedger, refusals: RefusalLog) -> None:
        self._ledger = ledger
        self._refusals = refusals
        # Only the receiving thread gives positions, and uses the claims of peers.
        self._positions = itertools.count(1)
        self._of_peers: dict[tuple[str, int], PendingClaim] = {}
        # The memory of each claim above, and the sum, as estimated from the rows.
        self._bytes_of: dict[tuple[str, int], int] = {}
        self._bytes = 0
        # Claims of this process without a position yet, by number.
        self._unheard: dict[int, PendingClaim] = {}
        # Guards the dict above and the positions of claims. Notified when claims get a
        # position.
        self._heard = threading.Condition()

    # The sending thread

    def rows(self, changes: Iterable[Change], now: float) -> list[Row]:
        """Rows for changes of claims of this process."""
        rows: list[Row] = []
        for claim, stage in changes:
            if stage is Stage.CHOSEN:
                rows += self._full_rows([claim], now)
            else:
                rows.append(Row(claim.number, stage))
        return rows

    def table(self, now: float) -> list[Row]:
        """Rows of the newest ``MAX_ROWS`` claims of this process."""
        claims = [claim for claim in self._ledger.all() if claim.is_ours]
        claims.sort(key=lambda claim: claim.since)
        return self._full_rows(claims[-MAX_ROWS:], now)

    def _full_rows(self, claims: Iterable[PendingClaim], now: float) -> list[Row]:
        """The rows of claims, without claims that have left the ledger meanwhile."""
        rows = []
        for claim in claims:
            with self._ledger as ledger:
                is_unheard = ledger.position_of(claim) == math.inf
                claimed_at = ledger.claimed_at(claim)
            if is_unheard:
                with self._heard:
                    self._unheard[claim.number] = claim
            if claimed_at is not None:
                rows.append(row_of(claim, claimed_at, now))
        return rows

    # The decision threads

    def wait_for_echo(self, claim: PendingClaim, seconds: float) -> bool:
        """Wait until the announcement of a claim comes back, and with it all earlier
        announcements. False after the given time."""

        def is_heard() -> bool:
            with self._ledger as ledger:
                return claim not in ledger or ledger.position_of(claim) < math.inf

        with self._heard:
            return self._heard.wait_for(is_heard, seconds)

    # The receiving thread

    def came_back(self, rows: Sequence[msgspec.Raw]) -> None:
        """Give the claims of an announcement of this process their positions.

        :raises ValueError: a row is invalid: a forged message.
        """
        numbers = [decode_number(row) for row in rows]
        with self._heard:
            for number in numbers:
                claim = self._unheard.pop(number, None)
                if claim is not None:
                    with self._ledger as ledger:
                        ledger.announced(claim, next(self._positions))
            self._heard.notify_all()

    def apply(
        self, sender: str, rows: Sequence[msgspec.Raw], is_table: bool, now: float
    ) -> None:
        """Apply the rows of a peer. Invalid rows are refused.

        :param is_table: the rows are all claims of the peer.
        """
        numbers = set()
        for text in rows:
            try:
                row = decode_row(text)
            except ValueError as error:
                self._refusals.add(sender, error, now)
                continue
            self._apply_row(row, memory_of(row, text), sender, now)
            numbers.add(row.number)

        if is_table:
            self._drop_choices_without_row(sender, numbers)

    def _drop_choices_without_row(self, sender: str, numbers: Collection[int]) -> None:
        """Drop the choices of a peer that have no row in its table.

        :param numbers: the numbers of the rows.
        """
        for key in list(self._of_peers):
            if key[0] == sender and key[1] not in numbers:
                self._drop_choice(key)

    def _drop_choice(self, key: tuple[str, int]) -> None:
        """Drop the claim of a peer if the claim is CHOSEN.

        Any other claim ends by the rules of the ledger: a request in progress may have
        read the hosts before the instance came.
        """
        with self._ledger as ledger:
            is_chosen = ledger.stage_of(self._of_peers[key]) is Stage.CHOSEN
        if is_chosen:
            self._release(self._forget(key))

    def _apply_row(self, row: Row, memory: int, sender: str, now: float) -> None:
        """Apply a row to the claim with the same number.

        :param memory: the memory that the claim takes, in bytes.
        """
        claim = self._of_peers.get((sender, row.number))
        if row.state == Stage.RELEASED:
            if claim is not None:
                self._release(claim)
            return

        # A row without an instance only changes a state.
        if claim is None and row.instance and not self._is_over(row):
            reason = ''
            if len(self._of_peers) >= MAX_CLAIMS_OF_PEERS:
                reason = f'more than {MAX_CLAIMS_OF_PEERS} claims of peers'
            elif self._bytes + memory > MAX_CLAIM_BYTES:
                reason = f'claims of peers of more than {MAX_CLAIM_BYTES} bytes'
            if reason:
                self._refusals.add(sender, reason, now)
                return

            claim = claim_of(row, now)
            self._of_peers[sender, row.number] = claim
            self._bytes_of[sender, row.number] = memory
            self._bytes += memory
            with self._ledger as ledger:
                ledger.chosen(claim, next(self._positions))

        if claim is None or row.state != Stage.CLAIMED:
            return
        with self._ledger as ledger:
            # A table repeats the state. The moment of the answer must not change:
            # answers of Placement since then include the claim.
            if not ledger.is_claimed(claim):
                ledger.claimed([claim], self._ledger.clock() - (row.claimed_age or 0.0))

    def _release(self, claim: PendingClaim) -> None:
        with self._ledger as ledger:
            ledger.released(claim, self._ledger.clock())

    def _is_over(self, row: Row) -> bool:
        """True if the claim of a row has ended by the limits of this process. The
        timeout of the peer may be longer."""
        if row.state != Stage.CLAIMED:
            return row.age > chosen_limit(self._ledger.timeout)
        age = row.claimed_age
        if age is None:
            age = row.age
        return age > self._ledger.timeout

    def drop_choices_of_dead(self, alive: Collection[str]) -> None:
        """Drop the choices of dead peers. A dead peer never claims in Placement.

        :param alive: the living peers.
        """
        for key in list(self._of_peers):
            if key[0] not in alive:
                self._drop_choice(key)

    def forget_ended(self) -> None:
        """Forget claims without an entry in the ledger."""
        pending = set(self._ledger.all())
        for key, claim in list(self._of_peers.items()):
            if claim not in pending:
                self._forget(key)
        with self._heard:
            for number, claim in list(self._unheard.items()):
                if claim not in pending:
                    del self._unheard[number]

    def _forget(self, key: tuple[str, int]) -> PendingClaim:
        """Take a claim of a peer out of the table of claims."""
        self._bytes -= self._bytes_of.pop(key)
        return self._of_peers.pop(key)


class PeerSchedulers:
    """The peers of this scheduler. Implements
    :class:`novasched.scheduler.ports.Peers`.

    ``position``, ``missed`` and ``late`` are explained in ``Peers``. Every thread may
    read the three values without the lock.
    """

    def __init__(
        self,
        ledger: SharedLedger,
        host: str,
        patience: float = CATCH_UP_S,
    ) -> None:
        """``patience``: the maximum wait of a decision for earlier announcements, in
        seconds."""
        self.position = (0, 1)
        self.missed = 0
        self.late = 0
        # Guards the protocol, the changes and the three values above. Held for short
        # times only, since decision threads need the lock. Notified when messages are
        # due.
        self._due = threading.Condition()
        self._protocol = PeerProtocol(f'{host}:{os.getpid()}:{secrets.token_hex(4)}')
        self._changes: list[Change] = []
        self._refusals = RefusalLog()
        self._claims = AnnouncedClaims(ledger, self._refusals)
        self._patience = patience
        self._clock = ledger.clock

    @property
    def name(self) -> str:
        """The unique name of this process."""
        return self._protocol.name

    @property
    def refused(self) -> int:
        """The number of announcements that were refused."""
        return self._refusals.count

    # The decision threads

    def announce(self, claim: PendingClaim, stage: Stage) -> None:
        """See :class:`novasched.scheduler.ports.Peers`."""
        with self._due:
            if self._protocol.is_heard:
                self._changes.append((claim, stage))
                self._due.notify()
            else:
                # The next table has the claim.
                self._protocol.leave_out_change()

    def catch_up(self, claim: PendingClaim) -> None:
        """See :class:`novasched.scheduler.ports.Peers`. The broker returns the
        announcement of a claim behind all earlier announcements."""
        began = self._clock()
        end = self._echo_due(began)
        while end > began:
            if self._claims.wait_for_echo(claim, end - self._clock()):
                return

            # A connection may have been lost meanwhile.
            extended = self._echo_due(began)
            if extended <= end:
                with self._due:
                    self.late += 1
                return
            end = extended

    def _echo_due(self, began: float) -> float:
        """Until when a decision waits for the announcement of its claim.

        :param began: when the decision began to wait.
        """
        with self._due:
            end = self._protocol.apart_until
            if self._protocol.is_heard:
                end = max(end, began + self._patience)
            return end

    @property
    def is_sharing(self) -> bool:
        """See :class:`novasched.scheduler.ports.Peers`."""
        return self._protocol.is_sharing(self._clock())

    # The sending thread

    @contextmanager
    def sending(self) -> Iterator[None]:
        """A context for the time in which messages reach the broker."""
        with self._due:
            self._protocol.start_sending(self._clock())
        try:
            yield
        finally:
            with self._due:
                self._protocol.stop_sending(self._clock())

    def announcements(self) -> list[bytes]:
        """Wait until messages are due, at most until the next heartbeat, and return the
        messages."""
        with self._due:
            timeout = max(0.0, self._protocol.next_heartbeat - self._clock())
            self._due.wait_for(self._has_messages, timeout)
            changes = self._changes
            self._changes = []

        # Rows are made without the lock: a table may have thousands.
        now = self._clock()
        rows = self._claims.rows(changes, now)
        with self._due:
            messages = self._protocol.due(now, rows)

        texts = []
        for message in messages:
            if message.whole:
                message.rows = self._claims.table(now)
            texts.append(encode(message))
        return texts

    def _has_messages(self) -> bool:
        return bool(self._changes) or self._protocol.is_due(self._clock())

    def wake(self) -> None:
        """Make :meth:`announcements` return."""
        with self._due:
            self._protocol.hasten_heartbeat()
            self._due.notify()

    # The receiving thread

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """A context for the time in which messages of peers arrive."""
        with self._due:
            self._protocol.start_receiving(self._clock())
            self._due.notify()
        try:
            yield
        finally:
            with self._due:
                self._protocol.stop_receiving(self._clock())
                self._publish()

    def receive(self, text: bytes) -> None:
        """Act on a message. Every holder of the RabbitMQ password can send messages."""
        now = self._clock()
        try:
            message = decode(text)
        except ValueError as error:
            self._refusals.add('unknown', error, now)
            return

        with self._due:
            actions = self._protocol.receive(message, now)
            # In the same step: as soon as a table is due, changes have to be told.
            self._publish()
            if self._protocol.is_due(now):
                self._due.notify()
        for action in actions:
            self._carry_out(action, now)

    def _carry_out(self, action: Action, now: float) -> None:
        match action:
            case Echo(rows):
                try:
                    self._claims.came_back(rows)
                except ValueError as error:
                    self._refusals.add(self.name, error, now)
            case ApplyRows(sender, rows, is_table):
                self._claims.apply(sender, rows, is_table, now)
            case CleanUp(alive):
                if alive is not None:
                    self._claims.drop_choices_of_dead(alive)
                self._claims.forget_ended()
            case Refuse(sender, reason):
                self._refusals.add(sender, reason, now)

    def _publish(self) -> None:
        """Copy the state of the protocol for all threads. The caller holds the
        lock."""
        part = self._protocol.position
        if part[1] != self.position[1]:
            LOG.info('Pending claims are shared with %d other schedulers', part[1] - 1)
        self.position = part
        self.missed = self._protocol.missed

    # Both threads of the exchange

    def expect_echo(self) -> None:
        """Note a new connection. Messages take time to come back."""
        self._protocol.echoed_at = self._clock()

    def seconds_without_echo(self) -> float:
        """Seconds since a message of this process came back, or since a connection was
        made."""
        return self._clock() - self._protocol.echoed_at
