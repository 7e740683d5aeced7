# SPDX-License-Identifier: Apache-2.0
"""The one file that uses private names of oslo.messaging, all of them in
``PRIVATE_NAMES``.

oslo.messaging acknowledges what it reads and reads all there is. Here a message is
acknowledged when a thread begins it, and its caller gets heartbeats from its arrival on
(ADR 13).

A release that lacks a name is refused at the start, by :func:`check_private_names`.
Then keep oslo.messaging below that release (``requirements.txt``), see in its history
what became of the name, and change this file; ``tests/functional/test_flood.py`` shows
that the rest still holds.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import oslo_messaging
from amqp.exceptions import AMQPError
from amqp.spec import Basic
from kombu.connection import Connection
from kombu.exceptions import KombuError
from oslo_config import cfg
from oslo_messaging.rpc.server import RPCServer

from novasched.conf.errors import ConfigError
from novasched.rpc.heartbeats import PendingCall, RpcHeartbeats
from novasched.rpc.versions import IGNORED_CASTS

try:
    from oslo_messaging._drivers.amqpdriver import AMQPIncomingMessage, AMQPListener
    from oslo_messaging._drivers.base import PollStyleListenerAdapter
    from oslo_messaging._drivers.common import PURPOSE_LISTEN, Timeout
    from oslo_messaging._drivers.impl_rabbit import Connection as RabbitConnection
except ImportError:  # check_private_names says which
    AMQPIncomingMessage = AMQPListener = PollStyleListenerAdapter = object
    RabbitConnection = object
    PURPOSE_LISTEN = 'listen'
    Timeout = Exception

# Operators search for what this logger writes.
LOG = logging.getLogger('nova.scheduler.manager')

PRIVATE_NAMES: Mapping[str, Sequence[str]] = {
    'oslo_messaging._drivers.amqp:_MsgIdCache': ['add'],
    'oslo_messaging._drivers.amqpdriver:AMQPIncomingMessage': [
        'client_timeout',
        'ctxt',
        'heartbeat',
        'message',
        'msg_id',
        'reply_q',
        'unique_id',
    ],
    'oslo_messaging._drivers.amqpdriver:AMQPListener': [
        'conn',
        'driver',
        'incoming',
        'msg_id_cache',
        '_obsolete_reply_queues',
        '_shutdown',
        '_shutoff',
    ],
    'oslo_messaging._drivers.amqpdriver:ObsoleteReplyQueuesCache': ['reply_q_valid'],
    'oslo_messaging._drivers.base:PollStyleListenerAdapter': [
        'batch_size',
        'batch_timeout',
        '_poll_style_listener',
    ],
    'oslo_messaging._drivers.common:PURPOSE_LISTEN': [],
    'oslo_messaging._drivers.common:Timeout': [],
    'oslo_messaging._drivers.impl_rabbit:Connection': [
        'channel',
        'close',
        'connection',
        'consume',
        'stop_consuming',
        '_consumers',
        '_new_tags',
    ],
    'oslo_messaging._drivers.impl_rabbit:Consumer': ['callback', 'cancel'],
    'oslo_messaging._drivers.impl_rabbit:RabbitMessage': [
        'acknowledge',
        '_raw_message',
    ],
    'oslo_messaging.rpc.server:RPCServer': [
        '_create_listener',
        '_on_incoming',
        '_process_incoming',
    ],
}
"""By class: the attributes that are used of it, or that oslo.messaging calls."""
# Options that oslo.messaging declares on the process's global configuration alone, but
# reads on the transport's: without them it drops every message. (module, group)
UNDECLARED_OPTIONS = (
    ('oslo_messaging._metrics.client', 'oslo_messaging_metrics'),
    ('oslo_messaging._tracing.client', 'oslo_messaging_tracing'),
)

BROKER_ERRORS = (AMQPError, KombuError, OSError)
"""Errors of a broker that does not answer, refuses the connection or breaks the
protocol."""

POLL_S = 1.0  # after which a listener looks for whether it is to stop
POLL_WHILE_WAITING_S = 0.02  # and, when messages wait, for a thread for the next
MAX_POLL_GAP_S = 2.5  # above it the process was kept from its work
RECOVER_TIMEOUT_S = 5.0
CLOCK_SKEW_S = 5.0
"""Seconds by which the clocks of the broker and of this machine may differ."""
PINGS = frozenset({'ping', 'oslo_rpc_server_ping'})
"""Methods by which health probes ask for a sign of life: nova's own and
oslo.messaging's."""


def check_private_names() -> None:
    """Check that oslo.messaging still has what is used of its inside.

    :raises ConfigError: the oslo.messaging that is installed lacks some of
        ``PRIVATE_NAMES``; the text names its version and the names.
    """
    missing = []
    for path, attributes in PRIVATE_NAMES.items():
        module, _, name = path.partition(':')
        try:
            owner = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            missing.append(f'{module}.{name}')
            continue
        missing += [
            f'{module}.{name}.{attr}' for attr in attributes if not _has(owner, attr)
        ]
    if missing:
        raise ConfigError(
            'oslo.messaging',
            importlib.metadata.version('oslo.messaging'),
            f'this release cannot be used, since it lacks {", ".join(missing)}; '
            'install the newest one that novasched is tested with',
        )


def _has(owner: type, name: str) -> bool:
    """True if the class has the attribute, or a constructor that sets it."""
    constructors = [vars(base).get('__init__') for base in owner.__mro__]
    codes = [getattr(init, '__code__', None) for init in constructors]
    return hasattr(owner, name) or any(name in code.co_names for code in codes if code)


def declare_undeclared_options(conf: cfg.ConfigOpts) -> None:
    """Declare what oslo.messaging forgets to declare on any but the global
    configuration."""
    for module, group in UNDECLARED_OPTIONS:
        with contextlib.suppress(
            ImportError, AttributeError
        ):  # not all releases have them
            conf.register_opts(getattr(importlib.import_module(module), group), group)


def delete_queue(transport: Any, queue: str) -> None:
    """Delete a queue; nothing where the driver has no broker.

    :raises Exception: amqp's error, of the driver's own choice.
    """
    # Only the driver knows how to connect, with TLS and several brokers.
    if connect := getattr(transport._driver, '_get_connection', None):
        # Not one for sending: its heartbeats would take the answer away.
        with connect(PURPOSE_LISTEN) as connection:
            connection.connection.channel.queue_delete(queue)


@contextlib.contextmanager
def broker_connection(transport: Any, host: Any) -> Iterator[Connection]:
    """Connect to one broker of ``transport_url``. All options of oslo.messaging for a
    connection hold, those in ``[oslo_messaging_rabbit]`` and those in the query of the
    URL. The connection is kombu's. oslo.messaging tries once, and does not reconnect.

    :param host: the broker, one of the ``hosts`` of the URL.
    :raises Exception: one of ``BROKER_ERRORS``.
    """
    url = oslo_messaging.TransportURL.parse(transport.conf)
    url.hosts = [host]
    # With PURPOSE_SEND, oslo.messaging would start a thread for heartbeats, which reads
    # from the same socket as the caller.
    connection = RabbitConnection(transport.conf, url, PURPOSE_LISTEN, retry=0)
    try:
        yield connection.connection
    finally:
        connection.close()


@dataclass(slots=True)
class MessageCounts:
    """Totals of messages.

    :ivar handled: casts that were begun.
    :ivar wait_seconds: how long each waited that was begun; by default none is kept.
    """

    handled: int = 0
    ignored: int = 0
    dropped: int = 0
    wait_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=0))


class AckOnStartListener(AMQPListener):  # type: ignore[misc]
    """A listener that acknowledges a message when there is a thread for it.

    The broker sends no more than ``rabbit_qos_prefetch_count`` messages that are not
    acknowledged, for each queue, and keeps the rest for other schedulers. Messages that
    wait here are still the broker's: it gives them to others when this process stops or
    dies.

    Everything but the heartbeats happens in the thread that polls, since a channel is
    not for several. Acknowledged is before begun, so that none is begun twice.

    :param has_free_thread: called with True for a ping, which has a thread kept for it.
    :param capacity: the number of messages that the broker sends before an
        acknowledgement; 0 means all messages.
    :param on_full: called repeatedly while ``capacity`` messages wait. The broker keeps
        the other messages, and their callers get no heartbeats.
    :ivar waiting: the messages that wait, pings first.
    :ivar connected_at: when it last looked for messages with a connection (monotonic
        seconds).
    """

    message_cls = AMQPIncomingMessage

    def __init__(
        self,
        driver: Any,
        conn: Any,
        heartbeats: RpcHeartbeats,
        has_free_thread: Callable[[bool], bool],
        counts: MessageCounts,
        capacity: int,
        on_full: Callable[[], object],
    ) -> None:
        super().__init__(driver, conn)
        self._capacity = capacity or math.inf
        self._on_full = on_full
        self._heartbeats = heartbeats
        self._has_free_thread = has_free_thread
        self._counts = counts
        self.waiting: deque[PendingCall] = deque()
        self._returned: dict[str, PendingCall] = {}
        self._tags = conn._new_tags
        self._last_poll = math.inf
        self.connected_at = time.monotonic()
        self._returning = False
        self._empty_at = -math.inf  # when the broker was last seen to have no message
        self._broker = conn.connection.connection  # oslo.messaging's is around kombu's
        self._errors = (*self._broker.connection_errors, *self._broker.channel_errors)

    def __call__(self, message: Any) -> None:
        """Take a message from the broker."""
        if self._returning:
            return  # it is the broker's again, and its delivery tag is void
        self._forget_after_reconnect()
        if message.get('_msg_id') is None and message.get('method') in IGNORED_CASTS:
            message.acknowledge()
            self._counts.ignored += 1
            return
        lifetime = _lifetime(message)
        in_broker = self._time_in_broker(message)
        redelivered = bool(message._raw_message.delivery_info.get('redelivered'))
        super().__call__(message)
        if (
            not self.incoming
        ):  # a duplicate: begun before, but the acknowledgement was lost
            message.acknowledge()
            return
        incoming = self.incoming.pop()
        earlier = self._returned.pop(incoming.msg_id, None)
        call = self._heartbeats.add(incoming, lifetime, earlier, in_broker, redelivered)
        add = self.waiting.appendleft if _is_ping(incoming) else self.waiting.append
        add(call)

    def poll(
        self,
        timeout: float | None = None,
        batch_size: int = 1,
        batch_timeout: float | None = None,
    ) -> list[Any]:
        """The next message, as soon as there is a thread for it; none at the end."""
        while not self._shutdown.is_set():
            if time.monotonic() - self._last_poll > MAX_POLL_GAP_S:
                # Messages may have expired meanwhile: the broker drops those, and sends
                # the others once more.
                self._return_waiting()
            self._last_poll = time.monotonic()
            if self._broker.connected:
                self.connected_at = self._last_poll
            if len(self.waiting) >= self._capacity:
                self._on_full()
            if (incoming := self._next()) is not None:
                return [incoming]
            # Only the socket can be waited for, so a free thread is looked for often.
            began = time.monotonic()
            try:
                self.conn.consume(
                    timeout=POLL_WHILE_WAITING_S if self.waiting else POLL_S
                )
            except Timeout:
                self._note_silence(began)
            self._forget_after_reconnect()
        self._shutoff.set()
        return []

    def _note_silence(self, began: float) -> None:
        """Note that the queue was empty at a moment: the broker could send a message,
        and has sent none since."""
        is_connected = self.conn._new_tags is self._tags and self._broker.connected
        if is_connected and len(self.waiting) < self._capacity:
            self._empty_at = began

    def _time_in_broker(self, message: Any) -> float:
        """The least number of seconds that the broker has had a message.

        The clock of the broker may be wrong. The result is therefore bounded by the
        time since the queue was last empty: no message in the queue is older.
        """
        try:
            sent_at = int(message._raw_message.properties['timestamp'])
        except (KeyError, TypeError, ValueError):
            return 0.0  # by default RabbitMQ adds no timestamp
        age = time.time() - sent_at - CLOCK_SKEW_S
        return max(0.0, min(age, time.monotonic() - self._empty_at))

    def stop(self) -> None:
        """Leave the queues, and all that is not begun, to others."""
        self._shutdown.set()
        self.conn.stop_consuming()
        self._shutoff.wait()
        try:
            for consumer, tag in list(self.conn._consumers.items()):
                consumer.cancel(tag)
        except self._errors as error:
            # It notices by itself when the connection is closed at last.
            LOG.warning('The broker cannot be told that this consumer stops: %s', error)
        self._return_waiting()

    def _return_waiting(self) -> None:
        """Return all that is not begun to the broker, which may send it anew."""
        channel = self.conn.channel
        self._returning = True
        try:
            if channel is not None:
                channel.basic_recover(requeue=True)
                if hasattr(
                    channel, 'wait'
                ):  # kombu's in-memory transport has no broker
                    channel.wait(Basic.RecoverOk, timeout=RECOVER_TIMEOUT_S)
        except self._errors as error:
            LOG.warning(
                'What waits goes back to the broker with the connection: %s', error
            )
        finally:
            self._returning = False
        self._forget_waiting()

    def _next(self) -> Any:
        """The message that has waited longest, if a thread is free; expired ones are
        dropped."""
        while self.waiting:
            call = self.waiting[0]
            expired = self._expired(call)
            if not expired and not self._has_free_thread(_is_ping(call.incoming)):
                break
            if not self._acknowledged(call):
                break
            self.waiting.popleft()
            waited = time.monotonic() - call.arrived
            if not expired:
                self._counts.handled += not call.incoming.reply_q  # a cast
                self._counts.wait_seconds.append(waited)
                return call.incoming
            self._counts.dropped += 1
            self._heartbeats.forget(call.incoming)
            LOG.info(
                'Request %s for instances %s is dropped, since %s; it has waited here'
                ' for %.0f s',
                call.incoming.ctxt.get('request_id'),
                _instance_uuids(call.incoming.message),
                expired,
                waited,
            )
        return None

    def _expired(self, call: PendingCall) -> str:
        """The reason why the answer would be read by no caller; empty if it may be."""
        if call.given_up(time.monotonic()):
            return 'its caller has given up'
        reply_queues = self._obsolete_reply_queues
        if not reply_queues.reply_q_valid(call.incoming.reply_q, call.incoming.msg_id):
            return 'the queue for its answer has been gone for long'
        return ''

    def _acknowledged(self, call: PendingCall) -> bool:
        try:
            call.incoming.message.acknowledge()
        except (
            Exception
        ) as error:  # whatever it is, the connection is not to be used further
            LOG.warning('What waits goes back to the broker: %s', error)
            self._forget_waiting()
            return False
        self.msg_id_cache.add(call.incoming.unique_id)
        return True

    def _forget_after_reconnect(self) -> None:
        """Forget what waits after a lost connection or channel: the broker sends it
        anew, and its delivery tags may be those of other messages now."""
        if self.conn._new_tags is not self._tags:
            self._tags = self.conn._new_tags
            self._forget_waiting()

    def _forget_waiting(self) -> None:
        for call in self.waiting:
            self._heartbeats.forget(call.incoming)
        self._returned = {call.incoming.msg_id: call for call in self.waiting}
        self.waiting.clear()


def _lifetime(message: Any) -> float:
    """Seconds that the caller waits at most, counted from when it has sent the
    message."""
    try:
        return (
            int(message._raw_message.properties['expiration']) / 1000
        )  # from milliseconds
    except (KeyError, TypeError, ValueError):
        return math.inf


def _is_ping(incoming: Any) -> bool:
    return incoming.message.get('method') in PINGS


def _instance_uuids(message: Any) -> Any:
    arguments = message.get('args')
    if isinstance(arguments, dict):
        return arguments.get('instance_uuids')
    return None


class RpcServer(RPCServer):  # type: ignore[misc]
    """oslo.messaging's server, with messages that wait for a thread in an
    :class:`AckOnStartListener`, and not in a queue without end.

    :ivar in_progress: the number of messages that have a thread.
    :ivar done: the number of messages that are done, without pings; ``moved`` is when
        one was last begun or done (monotonic seconds).
    """

    def __init__(
        self,
        transport: Any,
        target: Any,
        dispatcher: Any,
        heartbeats: RpcHeartbeats,
        counts: MessageCounts,
        on_full: Callable[[], object],
    ) -> None:
        super().__init__(transport, target, dispatcher)
        self._heartbeats = heartbeats
        self._on_full = on_full
        self.counts = counts
        self._listener: AckOnStartListener | None = None
        self.in_progress = 0
        self.done = 0
        self.moved = time.monotonic()
        self._changing = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of messages that wait for one."""
        if self._listener:
            return len(self._listener.waiting)
        return 0

    @property
    def connected_at(self) -> float | None:
        """See :class:`AckOnStartListener`; None if the driver does not tell."""
        if self._listener:
            return self._listener.connected_at
        return None

    def start(self, override_pool_size: int | None = None) -> None:
        """See oslo.messaging's. There is one thread more than the option says, for
        pings."""
        super().start((override_pool_size or self.threads) + 1)

    functools.update_wrapper(
        start, RPCServer.start
    )  # with its mark that it has an order

    def has_free_thread(self, ping: bool = False) -> bool:
        """True if a thread is free. The last one is kept for pings, so that a health
        probe hears of this process while requests take all the others."""
        return self.in_progress < self.threads + ping

    @property
    def threads(self) -> int:
        return int(self.conf.executor_thread_pool_size)

    def _note(self, incoming: Any, change: int) -> None:
        """Note that a message was begun (1) or done (-1)."""
        with self._changing:
            self.in_progress += change
            if not _is_ping(incoming):
                self.moved = time.monotonic()
                self.done += change < 0

    def _create_listener(self) -> Any:
        adapter = super()._create_listener()
        rabbit = getattr(adapter, '_poll_style_listener', None)
        if not isinstance(rabbit, AMQPListener):
            return adapter  # oslo.messaging's fake transport has no broker
        listener = self._listener = AckOnStartListener(
            rabbit.driver,
            rabbit.conn,
            self._heartbeats,
            self.has_free_thread,
            self.counts,
            self.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count,
            self._on_full,
        )
        for consumer in rabbit.conn._consumers:
            consumer.callback = listener
        return PollStyleListenerAdapter(
            listener, adapter.batch_size, adapter.batch_timeout
        )

    def _on_incoming(self, incoming: Any) -> None:
        self._note(incoming[0], 1)
        super()._on_incoming(incoming)

    def _process_incoming(self, incoming: Any) -> None:
        try:
            super()._process_incoming(incoming)
        finally:
            self._note(incoming[0], -1)
