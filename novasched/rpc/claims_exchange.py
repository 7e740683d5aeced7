# SPDX-License-Identifier: Apache-2.0
"""The exchange in RabbitMQ over which schedulers share their pending claims.

No service of nova reads it. Each process has a queue of its own there, which ends with
its connection, so that every process hears all processes, itself included. One thread
speaks and one listens, each with a connection of its own. oslo.messaging connects, so
that all its options hold (ADR 38). ``peers.py`` has the messages.

Nothing here is needed for a decision: without the broker, schedulers decide alone.
"""

import contextlib
import itertools
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import oslo_messaging
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer

from novasched.conf.redaction import hide
from novasched.rpc.oslo_messaging_internals import BROKER_ERRORS, broker_connection
from novasched.rpc.peers import HEARTBEAT_INTERVAL_S, PeerSchedulers
from novasched.scheduler.pending_claims import PendingClaims

LOG = logging.getLogger(__name__)

EXCHANGE_NAME = 'novasched_claims_1'
"""The name ends in the version of the messages."""
CONTENT_TYPE = 'application/msgpack'
MAX_MESSAGES = 10_000
"""Messages that the broker keeps for a process that does not read."""
MESSAGE_TTL_S = 60
"""Seconds for which the broker keeps a message for a process that does not read."""

ECHO_TIMEOUT_S = 5.0
"""Seconds after which a process that does not hear itself connects anew."""
COALESCE_S = 0.005
"""Seconds between messages; changes meanwhile go together."""
CLOSE_S = 2.0
"""Seconds that the threads have to end."""


class ClaimsExchange:
    """Connects the :class:`~novasched.rpc.peers.PeerSchedulers` of all processes."""

    def __init__(self, transport: Any, peers: PeerSchedulers) -> None:
        """``transport``: the RPC transport, whose broker and options are used."""
        self.peers = peers
        self._transport = transport
        self._options = transport.conf.oslo_messaging_rabbit
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._stay, args=(work,), name=name, daemon=True)
            for name, work in (('peers-in', self._listen), ('peers-out', self._speak))
        ]

    def start(self) -> None:
        """Begin to share."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop sharing. Claims that other schedulers have heard stay there until they
        end."""
        self._end.set()
        self.peers.wake()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _stay(self, work: Callable[[Connection], None]) -> None:
        """Do work with a connection, and with a new connection whenever one is lost.

        All schedulers try the brokers of a cluster in the same order, since only the
        queues of one broker get messages in one order.
        """
        failures = 0
        brokers = itertools.cycle(_brokers(self._transport))
        while not self._end.wait(reconnect_pause(self._options, failures)):
            began = time.monotonic()
            try:
                with broker_connection(self._transport, next(brokers)) as link:
                    self.peers.echoed_at = time.monotonic()
                    work(link)
            except Exception as error:  # a bug costs no more than a lost connection
                if time.monotonic() - began > 2 * ECHO_TIMEOUT_S:
                    failures = 0
                failures += 1
                if failures == 1:
                    _log_failure(error)

    def _goes_on(self, link: Connection) -> bool:
        """True until the end.

        :raises ConnectionError: this process does not hear itself, though no error says
            that the connection is lost.
        """
        if time.monotonic() - self.peers.echoed_at > ECHO_TIMEOUT_S:
            raise ConnectionError('nothing comes from the broker')
        link.heartbeat_check(self._options.heartbeat_rate)
        return not self._end.is_set()

    def _speak(self, link: Connection) -> None:
        # No announcement waits until the broker confirms the one before.
        link.connection.confirm_publish = False
        producer = Producer(link.channel(), _exchange())
        how = {
            'content_type': CONTENT_TYPE,
            'content_encoding': 'binary',
            'delivery_mode': 1,
        }
        with self.peers.speaking():
            while self._goes_on(link):
                for text in self.peers.announcements():
                    producer.publish(text, **how)
                # The broker's heartbeats are read meanwhile.
                with contextlib.suppress(TimeoutError):
                    link.drain_events(timeout=COALESCE_S)

    def _listen(self, link: Connection) -> None:
        queue = Queue(
            f'{EXCHANGE_NAME}_{self.peers.name}_{secrets.token_hex(4)}',
            _exchange(),
            exclusive=True,
            durable=False,
            auto_delete=True,
            message_ttl=MESSAGE_TTL_S,
            max_length=MAX_MESSAGES,
        )

        def take(message: Any) -> None:
            self.peers.hear(bytes(message.body))

        consumer = Consumer(link.channel(), [queue], on_message=take, no_ack=True)
        with consumer, self.peers.listening():
            while self._goes_on(link):
                with contextlib.suppress(TimeoutError):
                    link.drain_events(timeout=HEARTBEAT_INTERVAL_S)


def reconnect_pause(options: Any, failures: int) -> float:
    """Seconds before the next try to connect after that many failures. oslo.messaging
    waits equally long by the same options of ``[oslo_messaging_rabbit]``."""
    if not failures:
        return 0.0
    interval = options.rabbit_retry_interval
    interval += (failures - 1) * options.rabbit_retry_backoff
    pause = min(interval, options.rabbit_interval_max)
    pause += options.kombu_reconnect_delay
    return float(pause + random.uniform(0, options.kombu_reconnect_splay))


def _exchange() -> Exchange:
    return Exchange(EXCHANGE_NAME, 'fanout', durable=False, auto_delete=True)


def _log_failure(error: Exception) -> None:
    is_known = isinstance(error, BROKER_ERRORS)
    why = hide(error) if is_known else type(error).__name__
    LOG.warning('Pending claims are not shared for now: %s', why, exc_info=not is_known)


def _brokers(transport: Any) -> list[Any]:
    """The brokers of ``transport_url``, in one order for all schedulers."""
    url = oslo_messaging.TransportURL.parse(transport.conf)
    return sorted(url.hosts, key=lambda host: (host.hostname or '', host.port or 0))


def make_exchange(
    transport: Any,
    claims: PendingClaims,
    host: str,
) -> ClaimsExchange | None:
    """The exchange in the broker of the RPC transport; None if that is not RabbitMQ."""
    url = oslo_messaging.TransportURL.parse(transport.conf)
    if url.transport != 'rabbit' or not url.hosts:
        LOG.info('Pending claims are not shared: %s is not RabbitMQ', url.transport)
        return None
    return ClaimsExchange(transport, PeerSchedulers(claims, host))
