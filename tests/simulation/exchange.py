# SPDX-License-Identifier: Apache-2.0
"""The broker's exchange for claims, in memory: every message goes to the queues of all
schedulers, in the same order."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial

import msgspec

from novasched.rpc.claims_exchange import COALESCE_S, ECHO_TIMEOUT_S
from novasched.rpc.peer_protocol import HEARTBEAT_INTERVAL_S
from novasched.rpc.peers import CATCH_UP_S, PeerSchedulers
from tests.simulation.loop import Loop, Wait

RECONNECT_S = 1.0
"""Seconds before a new connection."""
DELAYS_S = (0.01, 0.2)
"""The longest seconds that a message takes through the broker. Each broker has one of
these numbers, which are less than what schedulers wait for each other."""
assert max(DELAYS_S) < CATCH_UP_S


class Disconnected(Exception):
    """The connection to the broker is lost."""


class Release(Enum):
    """The release of a scheduler, which the rows of its messages show."""

    EARLIER = 'without the latest fields'
    PRESENT = 'as they are'
    LATER = 'with unknown fields'


class Broker:
    """The exchange.

    :ivar is_down: no connection can be made.
    :ivar lost: the probability that a queue does not get a message.
    :ivar twice: the probability that a queue gets a message twice.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.is_down = False
        self.lost = 0.0
        self.twice = 0.0
        self._delay_s = loop.random.choice(DELAYS_S)
        self._queues: list[Inbox] = []

    def connect(self) -> 'Inbox':
        """A new queue.

        :raises Disconnected: the broker is down.
        """
        if self.is_down:
            raise Disconnected()
        inbox = Inbox(self.loop, self._delay_s)
        self._queues.append(inbox)
        return inbox

    def publish(self, text: bytes) -> None:
        """Put a message in all queues.

        :raises Disconnected: the broker is down.
        """
        if self.is_down:
            raise Disconnected()
        random = self.loop.random
        for inbox in self._queues:
            if random.random() >= self.lost:
                inbox.put(text)
            if random.random() < self.twice:
                inbox.put(text)

    def stop(self) -> None:
        """Stop until ``is_down`` is reset."""
        self.is_down = True
        self.break_connections()

    def break_connections(self) -> None:
        """Lose all connections, and the queues with them."""
        for inbox in self._queues:
            inbox.close()
        self._queues = []


class Inbox:
    """The queue of a scheduler.

    :param delay_s: the longest seconds that a message takes.
    """

    def __init__(self, loop: Loop, delay_s: float) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._messages: deque[tuple[float, bytes]] = deque()
        self._reader: Wait | None = None
        self.is_closed = False

    def put(self, text: bytes) -> None:
        """Append a message, which arrives behind all earlier ones."""
        loop = self._loop
        arrives = loop.now + loop.random.uniform(0, self._delay_s)
        if self._messages:
            arrives = max(arrives, self._messages[-1][0])
        self._messages.append((arrives, text))
        self._wake()

    def close(self) -> None:
        """End the queue with its connection."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._loop.wake(self._reader)

    def take(self, seconds: float) -> bytes | None:
        """The next message; None if none arrives in time.

        :raises Disconnected: the connection is lost.
        """
        loop = self._loop
        end = loop.now + seconds
        while True:
            if self.is_closed:
                raise Disconnected()
            arrives = self._messages[0][0] if self._messages else end
            if self._messages and arrives <= loop.now:
                return self._messages.popleft()[1]
            if loop.now >= end:
                return None
            self._reader = loop.begin_wait()
            loop.suspend(self._reader, min(arrives, end) - loop.now)
            self._reader = None


class SimulatedExchange:
    """Carries the messages of a scheduler, as :class:`ClaimsExchange` does."""

    def __init__(
        self, loop: Loop, broker: Broker, peers: PeerSchedulers, release: Release
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._peers = peers
        self._release = release

    def start(self) -> None:
        """Begin to send and to receive, in tasks of the running process."""
        for work in (self._send, self._receive):
            self._loop.spawn(partial(self._stay_connected, work))

    def _stay_connected(self, work: Callable[[Inbox], None]) -> None:
        """Work with a connection, again after every loss of the connection."""
        while True:
            with suppress(Disconnected):
                inbox = self._broker.connect()
                self._peers.expect_echo()
                work(inbox)
            self._loop.sleep(RECONNECT_S)

    def _send(self, inbox: Inbox) -> None:
        with self._peers.sending():
            while not inbox.is_closed:
                self._check_echo()
                for text in self._peers.announcements():
                    self._broker.publish(_as_of(self._release, text))
                self._loop.sleep(COALESCE_S)

    def _receive(self, inbox: Inbox) -> None:
        with self._peers.receiving():
            while True:
                self._check_echo()
                text = inbox.take(HEARTBEAT_INTERVAL_S)
                if text is not None:
                    self._peers.receive(text)

    def _check_echo(self) -> None:
        if self._peers.seconds_without_echo() > ECHO_TIMEOUT_S:
            raise Disconnected()


def _as_of(release: Release, text: bytes) -> bytes:
    """A message as a release sends it."""
    if release is Release.PRESENT:
        return text
    message = msgspec.msgpack.decode(text)
    for row in message.get('rows', ()):
        if release is Release.LATER:
            row['later'] = [1, 2]
        else:
            row.pop('claimed_age', None)
    return msgspec.msgpack.encode(message)
