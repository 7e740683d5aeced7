# SPDX-License-Identifier: Apache-2.0
"""The exchange of ours in the message broker in which schedulers share their pending claims.

No service of nova's knows it. Each process has a queue of its own there, which ends with its
connection, so that all hear all, themselves too. One thread speaks and one listens, each with a
connection of its own. ``peers.py`` has what they say.

Nothing here is needed for a decision: where the broker is away, schedulers decide by themselves.
"""

import contextlib
import itertools
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import oslo_messaging
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from oslo_config import cfg

from novasched.conf.redaction import hide
from novasched.rpc.peers import HEARTBEAT_INTERVAL_S, PeerSchedulers
from novasched.scheduler.pending_claims import PendingClaims

LOG = logging.getLogger(__name__)
RABBIT_PORT = 5672

EXCHANGE_NAME = 'novasched_claims_1'
"""With the version of what is said there."""
CONTENT_TYPE = 'application/msgpack'
MAX_MESSAGES, MESSAGE_TTL_S = 10_000, 60
"""What the broker keeps for a process that does not read."""

ECHO_TIMEOUT_S = 5.0
"""Seconds after which one that does not hear itself connects anew."""
COALESCE_S = 0.005
"""Seconds between messages; changes meanwhile go together."""
CONNECT_S, RETRY_S, MAX_RETRY_S = 5.0, 1.0, 5.0
"""Seconds that a try to connect takes at most, and between two: twice as long after each."""
CLOSE_S = 2.0
"""Seconds that the threads have to end."""


class ClaimsExchange:
    """Connects the :class:`~novasched.rpc.peers.PeerSchedulers` of all processes."""

    def __init__(
        self, connections: Sequence[Callable[[], Connection]], peers: PeerSchedulers
    ) -> None:
        """``connections`` make one to each broker of a cluster; all schedulers try them in the
        same order, since those of one broker hear things in one order."""
        self.peers = peers
        self._connections = connections
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
        """Share no more. What others have heard stays with them until it is over."""
        self._end.set()
        self.peers.wake()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _stay(self, work: Callable[[Connection], None]) -> None:
        """Do work with a connection, and with another one whenever that is lost."""
        pause, brokers = 0.0, itertools.cycle(self._connections)
        while not self._end.wait(pause):
            link, began = next(brokers)(), time.monotonic()
            try:
                with link:
                    link.connect()
                    self.peers.echoed_at = time.monotonic()
                    work(link)
            except Exception as error:  # a bug, too, costs what is shared meanwhile alone
                has_lasted = time.monotonic() - began > 2 * ECHO_TIMEOUT_S
                if not pause or has_lasted:
                    known = isinstance(error, (*link.connection_errors, *link.channel_errors))
                    why = hide(error) if known else type(error).__name__
                    LOG.warning(
                        'Pending claims are not shared for now: %s', why, exc_info=not known
                    )
                pause = RETRY_S if has_lasted else min(MAX_RETRY_S, 2 * pause or RETRY_S)

    def _goes_on(self) -> bool:
        """True until the end.

        :raises ConnectionError: this process does not hear itself, though nothing says that the
            connection is lost.
        """
        if time.monotonic() - self.peers.echoed_at > ECHO_TIMEOUT_S:
            raise ConnectionError('nothing comes from the broker')
        return not self._end.is_set()

    def _speak(self, link: Connection) -> None:
        producer = Producer(link.channel(), _exchange())
        how = {'content_type': CONTENT_TYPE, 'content_encoding': 'binary', 'delivery_mode': 1}
        with self.peers.speaking():
            while self._goes_on():
                for text in self.peers.announcements():
                    producer.publish(text, **how)
                self._end.wait(COALESCE_S)

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
            while self._goes_on():
                with contextlib.suppress(TimeoutError):
                    link.drain_events(timeout=HEARTBEAT_INTERVAL_S)


def _exchange() -> Exchange:
    return Exchange(EXCHANGE_NAME, 'fanout', durable=False, auto_delete=True)


def make_exchange(conf: cfg.ConfigOpts, claims: PendingClaims, host: str) -> ClaimsExchange | None:
    """That of the broker that ``transport_url`` names; None where it is no RabbitMQ."""
    url = oslo_messaging.TransportURL.parse(conf)
    if url.transport != 'rabbit' or not url.hosts:
        LOG.info('Pending claims are not shared: %s is no RabbitMQ', url.transport)
        return None
    hosts = sorted(url.hosts, key=lambda each: (each.hostname or '', each.port or 0))
    connections = [partial(connection, conf, each, url.virtual_host) for each in hosts]
    return ClaimsExchange(connections, PeerSchedulers(claims, host))


def connection(conf: cfg.ConfigOpts, host: Any, virtual_host: str | None) -> Connection:
    """The connection to a broker of the transport URL, made when it is used."""
    group = conf.oslo_messaging_rabbit
    return Connection(
        transport='pyamqp',
        hostname=host.hostname or 'localhost',
        port=host.port or RABBIT_PORT,
        userid=host.username or '',
        password=host.password or '',
        virtual_host=virtual_host or '/',
        login_method=group.rabbit_login_method,
        ssl=_tls(group),
        connect_timeout=CONNECT_S,
    )


def _tls(group: cfg.ConfigOpts.GroupAttr) -> dict[str, Any] | bool:
    """oslo.messaging's options of TLS, as kombu takes them."""
    if not group.ssl:
        return False
    files = {
        'keyfile': group.ssl_key_file,
        'certfile': group.ssl_cert_file,
        'ca_certs': group.ssl_ca_file,
    }
    wanted: dict[str, Any] = {name: path for name, path in files.items() if path}
    if group.ssl_ca_file:
        # Of no name kombu makes that of the host.
        wanted |= {'cert_reqs': ssl.CERT_REQUIRED, 'server_hostname': None}
    return wanted or True
