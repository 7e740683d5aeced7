# SPDX-License-Identifier: Apache-2.0
"""The private names of oslo.messaging that novasched uses. ``PRIVATE_NAMES`` lists all
such names; ``existing_queues.py`` is the only other module with such names.

oslo.messaging reads every message in the queue and acknowledges a message on arrival.
novasched acknowledges a message when a thread begins to handle the message, and sends
heartbeats to the caller from the arrival of the message on (ADR 13).

At the start, :func:`check_private_names` refuses a release of oslo.messaging that lacks
a name. In that case, keep oslo.messaging below that release (``requirements.txt``),
look up in the history of oslo.messaging how the name was replaced, and adapt this
module. ``tests/functional/test_flood.py`` shows that the behaviour is still correct.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import math
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import oslo_messaging
from amqp.exceptions import AMQPError
from amqp.spec import Basic
from kombu.connection import Connection
from kombu.exceptions import KombuError
from oslo_config import cfg
from oslo_messaging.rpc.server import RPCServer

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import hide
from novasched.rpc.heartbeats import PendingCall, RpcHeartbeats
from novasched.rpc.versions import IGNORED_CASTS
from novasched.rpc.waiting import WaitingMessages, is_ping

try:
    from oslo_messaging._drivers.amqpdriver import AMQPIncomingMessage, AMQPListener
    from oslo_messaging._drivers.base import PollStyleListenerAdapter
    from oslo_messaging._drivers.common import PURPOSE_LISTEN, Timeout
    from oslo_messaging._drivers.impl_rabbit import Connection as DriverConnection
except ImportError:
    # check_private_names() reports the missing names to the operator.
    AMQPIncomingMessage = AMQPListener = PollStyleListenerAdapter = object
    DriverConnection = object
    PURPOSE_LISTEN = 'listen'
    Timeout = Exception

RabbitConnection: Any = DriverConnection

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
        'declare_consumer',
        'declare_fanout_consumer',
        'declare_topic_consumer',
        'stop_consuming',
        '_consumers',
        '_new_tags',
    ],
    'oslo_messaging._drivers.impl_rabbit:Consumer': [
        'callback',
        'cancel',
        'declare',
        'durable',
        'exchange',
        'exchange_name',
        'queue_arguments',
        'queue_auto_delete',
        'queue_name',
        'type',
    ],
    'oslo_messaging._drivers.impl_rabbit:RabbitMessage': [
        'acknowledge',
        '_raw_message',
    ],
    'oslo_messaging.rpc.server:RPCServer': [
        '_create_listener',
        '_executor_cls',
        '_on_incoming',
        '_process_incoming',
    ],
}
"""Class to the attributes of the class that novasched uses or overrides."""

TRACING = 'oslo_messaging_tracing'
# oslo.messaging declares these options only on the global configuration of the process,
# but reads the options from the configuration of the transport. Without a declaration
# there, oslo.messaging drops every message. (module, group)
UNDECLARED_OPTIONS = (
    ('oslo_messaging._metrics.client', 'oslo_messaging_metrics'),
    ('oslo_messaging._tracing.client', TRACING),
)

RABBIT = 'oslo_messaging_rabbit'
BROKER_ERRORS = (AMQPError, KombuError, OSError)
"""Errors of a broker that does not answer, refuses the connection or breaks the
protocol."""

POLL_S = 1.0
"""Seconds between checks for a request to stop, while no message waits."""
POLL_WHILE_WAITING_S = 0.02
"""Seconds between checks for a free thread, while messages wait."""
MAX_POLL_GAP_S = 2.5
"""Seconds between two polls above which the process was frozen in between."""
RECOVER_TIMEOUT_S = 5.0
"""Seconds to wait until the broker confirms that messages were returned."""
CLOCK_SKEW_S = 5.0
"""Seconds by which the clocks of the broker and of this machine may differ."""


def check_private_names() -> None:
    """Check that the installed oslo.messaging has every name in ``PRIVATE_NAMES``.

    :raises ConfigError: names are missing. The text has the version of oslo.messaging
        and the names.
    """
    missing = []
    for path, attributes in PRIVATE_NAMES.items():
        module, _, class_name = path.partition(':')
        try:
            owner = getattr(importlib.import_module(module), class_name)
        except (ImportError, AttributeError):
            missing.append(f'{module}.{class_name}')
            continue

        for attribute in attributes:
            if not _has_attribute(owner, attribute):
                missing.append(f'{module}.{class_name}.{attribute}')

    if missing:
        raise ConfigError(
            'oslo.messaging',
            importlib.metadata.version('oslo.messaging'),
            f'this release lacks {", ".join(missing)}; '
            'install the latest release with which novasched is tested',
        )


def _has_attribute(owner: type, name: str) -> bool:
    """True if the class has the attribute, or has a constructor that sets it."""
    if hasattr(owner, name):
        return True

    # Attributes of instances do not exist before an instance is made. The code of a
    # constructor names the attributes that the constructor sets.
    for base in owner.__mro__:
        constructor = vars(base).get('__init__')
        code = getattr(constructor, '__code__', None)
        if code is not None and name in code.co_names:
            return True
    return False


def declare_undeclared_options(conf: cfg.ConfigOpts) -> None:
    """Declare ``UNDECLARED_OPTIONS`` on a configuration."""
    for module, group in UNDECLARED_OPTIONS:
        # Older releases of oslo.messaging do not have these modules.
        with contextlib.suppress(ImportError, AttributeError):
            options = getattr(importlib.import_module(module), group)
            conf.register_opts(options, group)


def tracing_options(conf: cfg.ConfigOpts) -> Any:
    """``[oslo_messaging_tracing]``; None if oslo.messaging does not trace messages."""
    declare_undeclared_options(conf)
    if TRACING in conf and conf[TRACING].tracing_enabled:
        return conf[TRACING]
    return None


def delete_queue(transport: Any, queue: str) -> None:
    """Delete a queue of the broker. Without a broker, do nothing.

    :raises Exception: an error of amqp. The driver chooses the class.
    """
    # Only the driver knows how to connect, with TLS and several brokers.
    connect = getattr(transport._driver, '_get_connection', None)
    if connect is None:
        return

    # The heartbeat thread of a connection for sending would read the broker's answer.
    with connect(PURPOSE_LISTEN) as connection:
        connection.connection.channel.queue_delete(queue)


@contextlib.contextmanager
def broker_connection(transport: Any, host: Any) -> Iterator[Connection]:
    """Connect to one broker of ``transport_url``.

    All options of oslo.messaging for connections apply: the options in
    ``[oslo_messaging_rabbit]`` and in the query of the URL. oslo.messaging tries once
    and does not reconnect.

    :param host: the broker, an element of ``hosts`` of the URL.
    :return: the connection of kombu.
    :raises Exception: an error in ``BROKER_ERRORS``.
    """
    with rabbit_connection(transport, host) as connection:
        yield connection.connection


@contextlib.contextmanager
def rabbit_connection(
    transport: Any, host: Any, kind: Any = RabbitConnection, url: str | None = None
) -> Iterator[Any]:
    """Connect like :func:`broker_connection`; the connection is oslo.messaging's.

    :param kind: the class of the connection.
    :param url: the URL of the broker; the default is ``[DEFAULT] transport_url``.
    :raises ConfigError: options of ``[oslo_messaging_rabbit]`` contradict each other.
    """
    broker_url = oslo_messaging.TransportURL.parse(transport.conf, url)
    broker_url.hosts = [host]
    # With PURPOSE_SEND, oslo.messaging would start a thread for heartbeats, which reads
    # from the same socket as the caller.
    try:
        connection = kind(transport.conf, broker_url, PURPOSE_LISTEN, retry=0)
    except RuntimeError as error:
        raise option_error(transport.conf, error) from None
    try:
        yield connection
    finally:
        connection.close()


def option_error(conf: cfg.ConfigOpts, error: Exception) -> ConfigError:
    """Return the error about the options in ``[oslo_messaging_rabbit]`` that the driver
    refuses. The driver names the options in its text, except for ``ssl_version``."""
    options = conf[RABBIT]
    for name in re.findall(r'\w+', str(error)):
        if name in options:
            return ConfigError(f'[{RABBIT}] {name}', options[name], hide(error))
    version = options.ssl_version
    return ConfigError(f'[{RABBIT}] ssl_version', version, hide(error))


@dataclass(slots=True)
class MessageCounts:
    """Totals of messages.

    :ivar handled: number of casts that a thread began to handle.
    :ivar ignored: number of casts in ``IGNORED_CASTS``.
    :ivar dropped: number of messages that were dropped because the caller gave up.
    :ivar wait_seconds: waiting times of handled messages. By default the deque keeps no
        element.
    """

    handled: int = 0
    ignored: int = 0
    dropped: int = 0
    wait_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=0))


class ListenerConnection:
    """The state of a listener's connection to the broker.

    Only the polling thread uses this object, except for ``connected_at``.

    :ivar connected_at: when the listener last polled with a connection (monotonic
        seconds).
    :ivar errors: errors that kombu raises when the connection or channel fails.
    """

    def __init__(self, conn: Any) -> None:
        """``conn``: the connection of oslo.messaging, around the connection of
        kombu."""
        self.connected_at = time.monotonic()
        self._conn = conn
        self._broker = conn.connection.connection
        self.errors = (*self._broker.connection_errors, *self._broker.channel_errors)
        # oslo.messaging replaces this object whenever it makes a new channel.
        self._tags = conn._new_tags
        # When the broker was last known to have no message in the queue.
        self._empty_at = -math.inf

    def note_poll(self, now: float) -> None:
        if self._broker.connected:
            self.connected_at = now

    def note_silence(self, began: float) -> None:
        """Note that the queue was empty at the moment ``began``: the broker could have
        sent a message and has sent none since."""
        if self._conn._new_tags is self._tags and self._broker.connected:
            self._empty_at = began

    def choose_broker(self) -> None:
        """Turn to any broker of ``transport_url``, if the last poll has reached none.

        A poll tries one broker. By their releases, oslo.messaging and kombu turn to the
        next broker one to three times in a poll: with three brokers, each poll would
        try the same broker, even if another one has long been back.
        """
        if self._broker.connected:
            return
        for _ in range(random.randrange(max(1, len(self._broker.alt)))):
            self._broker.maybe_switch_next()

    def was_replaced(self) -> bool:
        """True if the connection or channel was replaced since the last call."""
        if self._conn._new_tags is self._tags:
            return False
        self._tags = self._conn._new_tags
        return True

    def time_in_broker(self, message: Any) -> float:
        """The minimum number of seconds that the broker has had a message.

        The clock of the broker may be wrong. The result is therefore bounded by the
        time since the queue was last empty: no message in the queue is older.
        """
        try:
            sent_at = int(message._raw_message.properties['timestamp'])
        except (KeyError, TypeError, ValueError):
            # By default RabbitMQ adds no timestamp.
            return 0.0

        age = time.time() - sent_at - CLOCK_SKEW_S
        since_empty = time.monotonic() - self._empty_at
        return max(0.0, min(age, since_empty))

    def cancel_consumers(self) -> None:
        """Ask the broker to send no more messages.

        :raises Exception: an error in ``errors``.
        """
        for consumer, tag in list(self._conn._consumers.items()):
            consumer.cancel(tag)

    def return_messages(self) -> None:
        """Return all messages without acknowledgement to the broker. The broker sends
        the messages again, to this or another scheduler.

        :raises Exception: an error in ``errors``.
        """
        channel = self._conn.channel
        if channel is None:
            return

        channel.basic_recover(requeue=True)
        # kombu's in-memory transport has no broker to wait for.
        if hasattr(channel, 'wait'):
            channel.wait(Basic.RecoverOk, timeout=RECOVER_TIMEOUT_S)


class AckOnStartListener(AMQPListener):  # type: ignore[misc]
    """A listener that acknowledges a message when a thread is free for the message.

    For each queue, the broker sends at most ``rabbit_qos_prefetch_count`` messages
    ahead of their acknowledgement, and keeps the rest for other schedulers. Waiting
    messages still belong to the broker: when this process stops or dies, the broker
    sends the messages to other schedulers.

    Only the polling thread uses the channel, since a channel must not be shared by
    threads; ``stop`` waits for the end of that thread first. A message is acknowledged
    before a thread begins to handle it, so that no message is handled twice.

    :param has_free_thread: called with True for a ping, which has a reserved thread.
    :param capacity: the number of messages that the broker sends before an
        acknowledgement. 0 means all messages.
    :param on_full: called repeatedly while ``capacity`` messages wait. The broker keeps
        all further messages, and the callers of these messages get no heartbeats.
    :ivar waiting: the messages that wait for a thread.
    :ivar link: the state of the connection.
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
        self.waiting = WaitingMessages(heartbeats)
        self.link = ListenerConnection(conn)
        self._capacity = capacity or math.inf
        self._on_full = on_full
        self._has_free_thread = has_free_thread
        self._counts = counts
        self._last_poll = math.inf
        self._is_returning = False

    def __call__(self, message: Any) -> None:
        """Take a message from the broker."""
        if self._is_returning:
            # The message belongs to the broker again, and its delivery tag is void.
            return
        self._forget_after_reconnect()

        if message.get('_msg_id') is None and message.get('method') in IGNORED_CASTS:
            message.acknowledge()
            self._counts.ignored += 1
            return

        lifetime = _lifetime(message)
        in_broker = self.link.time_in_broker(message)
        redelivered = bool(message._raw_message.delivery_info.get('redelivered'))

        # oslo.messaging appends to ``incoming``, unless the message is a duplicate.
        super().__call__(message)
        if not self.incoming:
            # A thread has begun this message before, but the acknowledgement was lost.
            message.acknowledge()
            return
        self.waiting.add(self.incoming.pop(), lifetime, in_broker, redelivered)

    def poll(
        self,
        timeout: float | None = None,
        batch_size: int = 1,
        batch_timeout: float | None = None,
    ) -> list[Any]:
        """The next message, as soon as a thread is free; an empty list at the end."""
        while not self._shutdown.is_set():
            if time.monotonic() - self._last_poll > MAX_POLL_GAP_S:
                # Messages may have expired while the process was frozen. The broker
                # drops expired messages and sends the rest again.
                self._return_waiting()
            self._last_poll = time.monotonic()
            self.link.note_poll(self._last_poll)

            if self._is_full():
                self._on_full()
            incoming = self._next()
            if incoming is not None:
                return [incoming]

            # Only the socket can be waited for. A free thread has to be polled for.
            pause = POLL_WHILE_WAITING_S if self.waiting else POLL_S
            began = time.monotonic()
            try:
                self.conn.consume(timeout=pause)
            except Timeout:
                if not self._is_full():
                    self.link.note_silence(began)
                self.link.choose_broker()
            self._forget_after_reconnect()

        self._shutoff.set()
        return []

    def stop(self) -> None:
        """Stop to consume, and return all waiting messages to the broker."""
        self._shutdown.set()
        self.conn.stop_consuming()
        self._shutoff.wait()
        try:
            self.link.cancel_consumers()
        except self.link.errors as error:
            # The broker notices when the connection is closed at last.
            LOG.warning('Cannot cancel the consumer at the broker: %s', error)
        self._return_waiting()

    def _is_full(self) -> bool:
        return len(self.waiting) >= self._capacity

    def _return_waiting(self) -> None:
        # While the broker confirms, messages may still arrive, which are ignored.
        self._is_returning = True
        try:
            self.link.return_messages()
        except self.link.errors as error:
            LOG.warning(
                'Unstarted messages are requeued when the connection closes: %s', error
            )
        finally:
            self._is_returning = False
        self.waiting.forget_all()

    def _next(self) -> Any:
        """The message that has waited longest, if a thread is free for the message.
        Expired messages are dropped."""
        while (call := self.waiting.first) is not None:
            expired = self._expired(call)
            if not expired and not self._has_free_thread(is_ping(call.incoming)):
                break
            if not self._acknowledge(call):
                break

            self.waiting.remove_first()
            waited = time.monotonic() - call.arrived
            if not expired:
                # A message without a queue for the reply is a cast.
                self._counts.handled += not call.incoming.reply_q
                self._counts.wait_seconds.append(waited)
                return call.incoming

            self._counts.dropped += 1
            self.waiting.drop(call)
            LOG.info(
                'Request %s for instances %s dropped after %.0f s: %s',
                call.incoming.ctxt.get('request_id'),
                _instance_uuids(call.incoming.message),
                waited,
                expired,
            )
        return None

    def _expired(self, call: PendingCall) -> str:
        """The reason why no caller would read the answer. Empty if the caller may still
        wait."""
        if call.has_given_up(time.monotonic()):
            return 'the caller has given up'

        # oslo.messaging throws away an answer to a queue that it has found missing for
        # [oslo_messaging_rabbit] kombu_missing_consumer_retry_timeout.
        reply_queues = self._obsolete_reply_queues
        if not reply_queues.reply_q_valid(call.incoming.reply_q, call.incoming.msg_id):
            return 'the reply queue of the caller is gone'
        return ''

    def _acknowledge(self, call: PendingCall) -> bool:
        """Acknowledge a message. False if the connection has failed."""
        try:
            call.incoming.message.acknowledge()
        except Exception as error:
            # After any error the connection cannot be used further.
            LOG.warning('Requeueing unstarted messages: %s', error)
            self.waiting.forget_all()
            return False
        self.msg_id_cache.add(call.incoming.unique_id)
        return True

    def _forget_after_reconnect(self) -> None:
        """Forget the waiting messages after a new connection or channel.

        The broker sends the messages again, with new delivery tags. An old delivery tag
        may be the tag of another message now.
        """
        if self.link.was_replaced():
            self.waiting.forget_all()


def _lifetime(message: Any) -> float:
    """Seconds that the caller waits at most, counted from when the message was sent."""
    try:
        milliseconds = int(message._raw_message.properties['expiration'])
    except (KeyError, TypeError, ValueError):
        return math.inf
    return milliseconds / 1000


def _instance_uuids(message: Any) -> Any:
    arguments = message.get('args')
    if isinstance(arguments, dict):
        return arguments.get('instance_uuids')
    return None


class RpcServer(RPCServer):  # type: ignore[misc]
    """oslo.messaging's server, with an :class:`AckOnStartListener` in place of the
    unbounded queue of the thread pool.

    :ivar in_progress: the number of messages that a thread handles.
    :ivar done: the number of messages that were handled, without pings.
    :ivar moved: when a message was last begun or done (monotonic seconds).
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
        # The threads of futurist wake up once a second, each of them: half of the
        # processor time of a scheduler without requests.
        self._executor_cls = ThreadPoolExecutor
        self._heartbeats = heartbeats
        self._on_full = on_full
        self.counts = counts
        self._listener: AckOnStartListener | None = None
        self.in_progress = 0
        self.done = 0
        self.moved = time.monotonic()
        # Guards the three values above, which every thread of the pool changes.
        self._progress_lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of messages that wait for a thread."""
        if self._listener:
            return len(self._listener.waiting)
        return 0

    @property
    def connected_at(self) -> float | None:
        """When the listener last polled with a connection (monotonic seconds). None for
        a driver without a broker."""
        if self._listener:
            return self._listener.link.connected_at
        return None

    def start(self, override_pool_size: int | None = None) -> None:
        """Start the server with one thread more than the option says, for pings.

        :raises NovaschedError: the broker refuses the queues of the server.
        """
        try:
            super().start((override_pool_size or self.threads) + 1)
        except oslo_messaging.MessageDeliveryFailure as error:
            raise NovaschedError(hide(error)) from None
        except RuntimeError as error:
            raise option_error(self.conf, error) from None

    # oslo.messaging marks ``start`` as a method that has to be called in order.
    functools.update_wrapper(start, RPCServer.start)

    def has_free_thread(self, ping: bool = False) -> bool:
        """True if a thread is free. The last thread is reserved for pings, so that a
        health probe gets an answer while requests occupy all other threads."""
        return self.in_progress < self.threads + ping

    @property
    def threads(self) -> int:
        return int(self.conf.executor_thread_pool_size)

    def _note_progress(self, incoming: Any, change: int) -> None:
        """Note that a thread has begun (1) or finished (-1) a message."""
        with self._progress_lock:
            self.in_progress += change
            if not is_ping(incoming):
                self.moved = time.monotonic()
                self.done += change < 0

    def _create_listener(self) -> Any:
        adapter = super()._create_listener()
        rabbit = getattr(adapter, '_poll_style_listener', None)
        if not isinstance(rabbit, AMQPListener):
            # oslo.messaging's fake transport has no broker.
            return adapter

        listener = AckOnStartListener(
            rabbit.driver,
            rabbit.conn,
            self._heartbeats,
            self.has_free_thread,
            self.counts,
            self.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count,
            self._on_full,
        )
        self._listener = listener
        for consumer in rabbit.conn._consumers:
            consumer.callback = listener
        return PollStyleListenerAdapter(
            listener, adapter.batch_size, adapter.batch_timeout
        )

    def _on_incoming(self, incoming: Any) -> None:
        self._note_progress(incoming[0], 1)
        super()._on_incoming(incoming)

    def _process_incoming(self, incoming: Any) -> None:
        try:
            super()._process_incoming(incoming)
        finally:
            self._note_progress(incoming[0], -1)
