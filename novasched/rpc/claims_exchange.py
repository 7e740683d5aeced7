# SPDX-License-Identifier: Apache-2.0
"""The RabbitMQ exchange for announcements of pending claims among schedulers.

No service of nova reads the exchange. The exchange copies a message to the queues of
all schedulers, including the sender. The queue of a scheduler ends with the connection
of the scheduler. A sending and a receiving thread have a connection each.
oslo.messaging connects, so that all options of oslo.messaging apply (ADR 38).
``peers.py`` makes and handles the messages.

Decisions do not need the exchange: without the broker, a scheduler decides alone.
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
from oslo_config import cfg

from novasched.conf.redaction import hide
from novasched.rpc.oslo_messaging_internals import BROKER_ERRORS, broker_connection
from novasched.rpc.peer_protocol import HEARTBEAT_INTERVAL_S
from novasched.rpc.peers import PeerSchedulers

LOG = logging.getLogger(__name__)

EXCHANGE_NAME = 'novasched_claims_1'
"""The name ends with the version of the message format."""
CONTENT_TYPE = 'application/msgpack'
TRANSIENT = 1
"""The delivery mode of messages that the broker does not write to disk."""
MAX_MESSAGES = 10_000
"""Maximum number of messages in the queue of a scheduler that does not read."""
MESSAGE_TTL_S = 60
"""Seconds for which the broker keeps a message in a queue."""

ECHO_TIMEOUT_S = 5.0
"""Seconds without a message of this scheduler after which both threads reconnect."""
COALESCE_S = 0.005
"""Seconds between messages. Changes in between are sent in one message."""
CLOSE_S = 2.0
"""Seconds to wait for the end of a thread."""


class ClaimsExchange:
    """Sends and receives messages for :class:`~novasched.rpc.peers.PeerSchedulers`."""

    def __init__(self, transport: Any, peers: PeerSchedulers) -> None:
        """``transport``: the RPC transport. The exchange uses the same broker and
        options."""
        self.peers = peers
        self._transport = transport
        self._options = transport.conf.oslo_messaging_rabbit
        self._end = threading.Event()
        self._threads = [
            self._make_thread('peers-in', self._listen),
            self._make_thread('peers-out', self._speak),
        ]

    def _make_thread(
        self, name: str, work: Callable[[Connection], None]
    ) -> threading.Thread:
        return threading.Thread(
            target=self._stay_connected, args=(work,), name=name, daemon=True
        )

    def start(self) -> None:
        """Begin to share pending claims."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop sharing pending claims. Peers keep the announced claims until the usual
        end of a claim."""
        self._end.set()
        self.peers.wake()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _stay_connected(self, work: Callable[[Connection], None]) -> None:
        """Run ``work`` with a connection, again after every loss of the connection."""
        failures = 0
        # All schedulers try the brokers of a cluster in the same order, since only the
        # queues on one broker get all messages in the same order.
        endless_brokers = itertools.cycle(brokers(self._transport))
        while not self._end.wait(reconnect_pause(self._options, failures)):
            began = time.monotonic()
            try:
                with broker_connection(self._transport, next(endless_brokers)) as link:
                    self.peers.expect_echo()
                    work(link)
            except Exception as error:
                # A bug must not end the thread. It costs no more than a reconnect.
                if time.monotonic() - began > 2 * ECHO_TIMEOUT_S:
                    failures = 0
                failures += 1
                # The first failure is logged, not every attempt to reconnect.
                if failures == 1:
                    _log_failure(error)

    def _goes_on(self, link: Connection) -> bool:
        """False as soon as the exchange is closed.

        :raises ConnectionError: messages of this scheduler do not come back, though no
            error shows that the connection is lost.
        """
        if self.peers.seconds_without_echo() > ECHO_TIMEOUT_S:
            raise ConnectionError('no message comes back from the broker')
        link.heartbeat_check(self._options.heartbeat_rate)
        return not self._end.is_set()

    def _speak(self, link: Connection) -> None:
        # The broker need not confirm a message before the next message is sent.
        link.connection.confirm_publish = False
        producer = Producer(link.channel(), _exchange())
        with self.peers.sending():
            while self._goes_on(link):
                for text in self.peers.announcements():
                    producer.publish(
                        text,
                        content_type=CONTENT_TYPE,
                        content_encoding='binary',
                        delivery_mode=TRANSIENT,
                    )

                # Nothing arrives but the heartbeats of the broker, which have to be
                # read.
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
            self.peers.receive(bytes(message.body))

        consumer = Consumer(link.channel(), [queue], on_message=take, no_ack=True)
        with consumer, self.peers.receiving():
            while self._goes_on(link):
                with contextlib.suppress(TimeoutError):
                    link.drain_events(timeout=HEARTBEAT_INTERVAL_S)


def reconnect_pause(options: Any, failures: int) -> float:
    """Seconds before the next attempt to connect. oslo.messaging waits equally long by
    the same options of ``[oslo_messaging_rabbit]``.

    :param failures: the number of failed attempts in a row.
    """
    if not failures:
        return 0.0

    interval = options.rabbit_retry_interval
    interval += (failures - 1) * options.rabbit_retry_backoff
    pause = min(interval, options.rabbit_interval_max)
    pause += options.kombu_reconnect_delay
    # The splay keeps many schedulers from reconnecting at the same moment.
    return float(pause + random.uniform(0, options.kombu_reconnect_splay))


def _exchange() -> Exchange:
    return Exchange(EXCHANGE_NAME, 'fanout', durable=False, auto_delete=True)


def _log_failure(error: Exception) -> None:
    if isinstance(error, BROKER_ERRORS):
        LOG.warning('Pending claims are not shared for now: %s', hide(error))
    else:
        name = type(error).__name__
        LOG.warning('Pending claims are not shared for now: %s', name, exc_info=True)


def brokers(transport: Any, url: str | None = None) -> list[Any]:
    """The brokers of a URL, in the same order for all schedulers.

    :param url: the default is ``[DEFAULT] transport_url``.
    """
    parsed = oslo_messaging.TransportURL.parse(transport.conf, url)
    return sorted(parsed.hosts, key=lambda host: (host.hostname or '', host.port or 0))


def uses_rabbitmq(conf: cfg.ConfigOpts, url: str | None = None) -> bool:
    """True if a URL names RabbitMQ. Claims are shared over no other message broker.

    :param url: the default is ``[DEFAULT] transport_url``.
    """
    try:
        parsed = oslo_messaging.TransportURL.parse(conf, url)
    except (oslo_messaging.InvalidTransportURL, ValueError):
        # The RPC server refuses the URL, with an error that hides the password.
        return False
    return parsed.transport == 'rabbit' and bool(parsed.hosts)
