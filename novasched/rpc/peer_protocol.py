# SPDX-License-Identifier: Apache-2.0
"""The protocol for pending claims among schedulers.

This module has no connection, thread, lock or clock. ``peers.py`` has the locks and the
pending claims, ``claims_exchange.py`` has the connections and threads, and
``announcements.py`` defines the format of messages.

Every worker process of novasched is a scheduler. A scheduler calls all further
schedulers peers.

A message goes to all schedulers, and comes back to the sender. All schedulers receive
all messages in the same order. This order decides between two conflicting claims.

    message      sent                                  effect on the receiver
    -----------  ------------------------------------  --------------------------------
    changes      when claims are chosen, claimed or    applies the rows
                 released
    heartbeat    once a second; changes without rows   the sender is alive
    question     with changes or a heartbeat, and      sends a table, if it is asked
                 again until the table arrives
    table        when asked, and after a reconnect     replaces the claims of the sender

The number of a message shows lost messages. Only changes increase the number:

    scheduler A                          scheduler B
        |------ heartbeat 7 -------------->|  knows A at number 7
        |------ changes 8 ---------------->|  7 + 1: nothing is missing
        |------ changes 9 ----X            |
        |------ heartbeat 9 -------------->|  not 8: a message was lost
        |<----- question, ask = [A] -------|
        |------ table 9 ------------------>|  A at number 9 again

The life of a peer:

    unknown --- first message -----------> alive   asked for a table
    alive   --- silent for 5 seconds ----> gone    forgotten: unknown again

A peer that is gone may have died between the choice of a host and the claim in
Placement. The unclaimed claims of the peer are dropped. The claimed claims stay until
the usual end of a claim: the databases show the instance, or the timeout is over.

A scheduler without living peers, or without a connection to send, announces no changes.
With a connection, the scheduler still sends heartbeats. A new peer asks for the table,
which contains all claims without an announcement. A peer may also be silent for the
scheduler alone, and still hear the scheduler. For such a peer, each change without an
announcement counts as a lost message. After a reconnect, a scheduler sends a table, and
asks all peers for tables.

A connection may break while several schedulers decide. A scheduler that has lost a
connection is apart from the peers that were alive:

    together --- a connection breaks ----> apart
    apart    --- connected, and all -----> together   sends a table
                 tables are there, or
                 5 seconds are over

While a scheduler is apart, its claims get no position. The position comes with the
table of the reunion, behind the claims in the tables of the peers. Decisions wait for
the position for up to 20 seconds after the break.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from novasched.rpc.announcements import MAX_ASKED, Message, Row

HEARTBEAT_INTERVAL_S = 1.0
"""Seconds between heartbeats."""
ANSWER_TIMEOUT_S = 2.0
"""Seconds after which a question without an answer is asked again."""
PEER_TIMEOUT_S = 5.0
"""A peer without a message for this time counts as gone, in seconds."""
ALL_PEERS = '*'
"""The name of all schedulers in ``ask``."""
REUNION_S = 20.0
"""Seconds after the break of a connection for which decisions wait until the schedulers
are together again. A restart of RabbitMQ takes less. A request may take three times as
long by the default of ``[DEFAULT] rpc_response_timeout``."""
MAX_PEERS = 1000
"""Maximum number of peers."""


@dataclass(frozen=True, slots=True)
class Echo:
    """Action: an announcement of this scheduler came back. The claims in the
    announcement get their positions now."""

    rows: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class ApplyRows:
    """Action: apply the rows of a peer.

    :ivar is_table: the rows are all pending claims of the sender.
    """

    sender: str
    rows: Sequence[msgspec.Raw]
    is_table: bool


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Action, once a second: forget ended claims.

    :ivar alive: the living peers. Drop the unclaimed claims of all further peers.
        ``None`` in the first seconds after a reconnect: living peers may be unknown.
    """

    alive: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Action: count and log an ignored message."""

    sender: str
    reason: str


Action = Echo | ApplyRows | CleanUp | Refuse


@dataclass(frozen=True, slots=True)
class Peer:
    """A living peer.

    :ivar number: the number of the last message.
    :ivar received_at: when the message arrived (monotonic seconds).
    :ivar asked_at: when this scheduler last asked the peer for a table that has not
        arrived (monotonic seconds). None after a table.
    """

    number: int
    received_at: float
    asked_at: float | None


@dataclass(slots=True)
class Separation:
    """The time after the break of a connection.

    :ivar missed: the peers that were alive, and have sent no table since.
    :ivar since: when the first connection broke (monotonic seconds).
    """

    missed: set[str] = field(default_factory=set)
    since: float = -math.inf


@dataclass(slots=True)
class Outbox:
    """The messages to send.

    :ivar number: the number of messages with rows, and of changes without an
        announcement, until now.
    :ivar ask: names of peers to ask for tables, as an ordered set.
    :ivar is_table_due: True if a peer has asked this scheduler for a table.
    :ivar next_heartbeat: when the next heartbeat is due (monotonic seconds).
    """

    number: int = 0
    ask: dict[str, None] = field(default_factory=dict)
    is_table_due: bool = False
    next_heartbeat: float = 0.0


class PeerProtocol:
    """The protocol in the view of a scheduler. Moments are monotonic seconds.

    :ivar name: the unique name of this scheduler.
    :ivar position: the position of this scheduler among all living schedulers, in the
        order of names from 0 on, and the number of living schedulers.
    :ivar missed: how often messages of peers were lost.
    :ivar echoed_at: when a message of this scheduler last came back.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = (0, 1)
        self.missed = 0
        self.echoed_at = -math.inf
        self._peers: dict[str, Peer] = {}
        self._outbox = Outbox()
        self._sending_since = math.inf
        self._receiving_since = math.inf
        self._next_clean_up = 0.0
        self._separation = Separation()

    # The connections of this scheduler

    def start_sending(self, now: float) -> None:
        """Messages reach the broker from now on."""
        self._sending_since = now
        self._outbox.is_table_due = True
        # Without a connection, questions were dropped.
        self._ask(ALL_PEERS)

    def stop_sending(self, now: float) -> None:
        """Messages no longer reach the broker."""
        self._sending_since = math.inf
        self._part(now)

    def start_receiving(self, now: float) -> None:
        """Messages of peers arrive from now on."""
        self._receiving_since = now
        self._ask(ALL_PEERS)
        # Messages of this scheduler may have reached peers without coming back. A claim
        # has no position until the row of the claim comes back.
        self._outbox.is_table_due = True

    def stop_receiving(self, now: float) -> None:
        """Messages no longer arrive: this scheduler is alone."""
        self._receiving_since = math.inf
        self._part(now)
        self._peers.clear()
        self._count_schedulers()

    def _part(self, now: float) -> None:
        """Note that this scheduler is apart from all living peers."""
        separation = self._separation
        if not separation.missed:
            separation.since = now
        separation.missed.update(self._peers)

    def _reunite(self) -> None:
        """Note that no peer is missed any more."""
        self._separation.missed.clear()
        # With the table, claims get their positions.
        self._outbox.is_table_due = True

    @property
    def apart_until(self) -> float:
        """Until when decisions wait for the peers from which this scheduler is apart;
        minus infinity while the schedulers are together."""
        if not self._separation.missed:
            return -math.inf
        return self._separation.since + REUNION_S

    @property
    def _is_sending(self) -> bool:
        """True while messages reach the broker."""
        return self._sending_since < math.inf

    @property
    def _connected_since(self) -> float:
        """Since when messages go out and arrive; infinite while one connection is
        missing."""
        return max(self._sending_since, self._receiving_since)

    @property
    def is_heard(self) -> bool:
        """True while changes have to be announced: a peer is alive, and messages reach
        the broker."""
        return self._is_sending and bool(self._peers)

    def is_sharing(self, now: float) -> bool:
        """True while messages go out and come back."""
        return self._is_sending and now - self.echoed_at <= PEER_TIMEOUT_S

    # Messages out

    @property
    def next_heartbeat(self) -> float:
        return self._outbox.next_heartbeat

    def is_due(self, now: float) -> bool:
        """True if messages have to be sent even without changes."""
        outbox = self._outbox
        return bool(outbox.ask) or outbox.is_table_due or now >= outbox.next_heartbeat

    def hasten_heartbeat(self) -> None:
        """Make the next heartbeat due."""
        self._outbox.next_heartbeat = -math.inf

    def due(self, now: float, changes: Sequence[Row] = ()) -> list[Message[Row]]:
        """The messages to send now.

        The first message has the changes and the questions, and is a heartbeat. The
        second message, if a table is due, is the table. The caller adds the rows of all
        pending claims of this scheduler to the table, and collects the rows after this
        call: claims until then need no announcement, and later claims have changes.
        """
        outbox = self._outbox
        outbox.next_heartbeat = now + HEARTBEAT_INTERVAL_S
        if changes:
            outbox.number += 1
        ask = list(outbox.ask)[:MAX_ASKED]
        outbox.ask.clear()
        messages = [Message(self.name, outbox.number, list(changes), ask=ask)]

        if outbox.is_table_due:
            outbox.is_table_due = False
            messages.append(Message(self.name, outbox.number, [], whole=True))
        return messages

    def leave_out_change(self) -> None:
        """Note a change that is not announced, since no peer is heard.

        Peers that hear this scheduler ask for the table as after a lost message.
        Without a connection to send, :meth:`start_sending` sends the table.
        """
        if self._is_sending:
            self._outbox.number += 1

    def _ask(self, name: str) -> None:
        """Ask a peer, or ``ALL_PEERS``, for a table. Without a connection to send, the
        question is dropped: :meth:`start_sending` asks all peers."""
        if self._is_sending:
            self._outbox.ask[name] = None

    # Messages in

    def receive(self, message: Message[msgspec.Raw], now: float) -> list[Action]:
        """Note a message, and return the actions on pending claims.

        Every holder of the RabbitMQ password can send messages. The content of a
        message may therefore be arbitrary, within the format.
        """
        sender = message.sender
        if sender == self.name:
            return self._receive_echo(message, now)
        if sender not in self._peers and len(self._peers) >= MAX_PEERS:
            return [Refuse(sender, f'more than {MAX_PEERS} peers')]

        self._note_sender(message, now)
        if self.name in message.ask or ALL_PEERS in message.ask:
            self._outbox.is_table_due = True
        return [ApplyRows(sender, message.rows, message.whole)]

    def _receive_echo(self, message: Message[msgspec.Raw], now: float) -> list[Action]:
        actions: list[Action] = []
        # The heartbeats of this scheduler trigger the clean-up. When heartbeats do not
        # come back, the connection is broken, and the silence of peers means nothing.
        if now >= self._next_clean_up:
            self._next_clean_up = now + HEARTBEAT_INTERVAL_S
            actions.append(self._clean_up(now))

        self.echoed_at = now
        if not self._separation.missed:
            actions.append(Echo(message.rows))
        return actions

    def _note_sender(self, message: Message[msgspec.Raw], now: float) -> None:
        """Note the living sender, and check the number for lost messages."""
        sender = message.sender
        before = self._peers.get(sender)
        asked_at = None
        if before is None:
            is_missing = True
        else:
            asked_at = before.asked_at
            is_missing = message.number != before.number + bool(message.rows)

        if message.whole:
            # A table makes up for all messages before.
            asked_at = None
            missed = self._separation.missed
            is_connected = self._connected_since < math.inf
            if is_connected and sender in missed:
                missed.remove(sender)
                if not missed:
                    self._reunite()
        elif is_missing:
            if before is not None:
                self.missed += 1
            self._ask(sender)
            asked_at = now
        self._peers[sender] = Peer(message.number, now, asked_at)
        if before is None:
            self._count_schedulers()

    def _clean_up(self, now: float) -> CleanUp:
        """Forget silent peers, and repeat questions without an answer."""
        silent = []
        for name, peer in self._peers.items():
            if now - peer.received_at > PEER_TIMEOUT_S:
                silent.append(name)
        for name in silent:
            del self._peers[name]
        if silent:
            self._count_schedulers()

        is_late = now - self._connected_since > PEER_TIMEOUT_S
        if self._separation.missed and is_late:
            self._reunite()

        # A question may get lost, and a table, too.
        for name, peer in self._peers.items():
            if peer.asked_at is not None and now - peer.asked_at >= ANSWER_TIMEOUT_S:
                self._ask(name)
                self._peers[name] = replace(peer, asked_at=now)

        # After a reconnect, messages of living peers need time to arrive.
        alive = None
        if now - self._receiving_since > PEER_TIMEOUT_S:
            alive = frozenset(self._peers)
        return CleanUp(alive)

    def _count_schedulers(self) -> None:
        names = sorted([self.name, *self._peers])
        self.position = (names.index(self.name), len(names))
