# SPDX-License-Identifier: Apache-2.0
"""Compare the queues that a broker has with the queues that oslo.messaging declares for
the RPC server and for notifications.

RabbitMQ refuses the declaration of an existing queue with other properties, such as a
quorum queue in place of a classic queue. For the RPC server, oslo.messaging would try
for ever; a notification is lost after one attempt.
"""

import re
from collections.abc import Sequence
from typing import Any

from amqp.exceptions import NotFound, PreconditionFailed
from kombu.entity import Exchange

from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide
from novasched.rpc.oslo_messaging_internals import (
    RABBIT,
    RabbitConnection,
    option_error,
    rabbit_connection,
)

QUEUE_OPTIONS = {
    'auto_delete': 'amqp_auto_delete',
    'durable': 'amqp_durable_queues',
    'x-delivery-limit': 'rabbit_quorum_delivery_limit',
    'x-expires': 'rabbit_transient_queues_ttl',
    'x-max-in-memory-bytes': 'rabbit_quorum_max_memory_bytes',
    'x-max-in-memory-length': 'rabbit_quorum_max_memory_length',
    'x-queue-type': 'rabbit_quorum_queue',
}
"""The option in ``[oslo_messaging_rabbit]`` by the property of a queue or exchange."""
FANOUT_OPTIONS = {
    'durable': 'rabbit_transient_quorum_queue',
    'x-queue-type': 'rabbit_stream_fanout',
}
"""Options of fanout queues that differ from ``QUEUE_OPTIONS``."""
_UNEQUAL = re.compile(r"inequivalent arg '([\w-]+)'")


class ExistingQueues(RabbitConnection):  # type: ignore[misc]
    """A connection that declares only queues and exchanges that the broker has, with
    oslo.messaging's own properties. It creates none, and consumes no message."""

    def declare_consumer(self, consumer: Any) -> None:
        """Compare the properties of a consumer's queue and exchange with the broker's.

        :raises ConfigError: the properties differ in a way that oslo.messaging does not
            accept.
        """
        has_exchange = self._exists('exchange_declare', consumer.exchange_name)
        if not has_exchange:
            # The default exchange, which is never declared.
            consumer.exchange = Exchange('')
            consumer.exchange_name = ''
        try:
            if self._exists('queue_declare', consumer.queue_name):
                # oslo.messaging accepts some differences; see its method.
                consumer.declare(self)
            elif has_exchange:
                self._declare_exchange(consumer)
        except PreconditionFailed as error:
            raise _queue_error(self.driver_conf, consumer, error) from None

    def _declare_exchange(self, consumer: Any) -> None:
        try:
            consumer.exchange.bind(self.connection.channel()).declare()
        except PreconditionFailed:
            # oslo.messaging uses a transient exchange in place of a durable exchange.
            if not consumer.durable:
                raise

    def _exists(self, method: str, name: str) -> bool:
        channel = self.connection.channel()
        arguments: dict[str, Any] = {'passive': True}
        if method == 'exchange_declare':
            # Ignored in a passive declaration, but amqp wants the argument.
            arguments['type'] = 'topic'
        try:
            getattr(channel, method)(name, **arguments)
        except NotFound:
            return False
        channel.close()
        return True


class ExistingNotificationQueues(ExistingQueues):
    """Compares the queues of notifications, which oslo.messaging declares when it
    publishes. A publisher accepts no difference."""

    def declare_consumer(self, consumer: Any) -> None:
        """Compare the properties of a queue and its exchange with the broker's.

        :param consumer: a publisher declares the queue and the exchange of a topic like
            a consumer.
        :raises ConfigError: the properties differ.
        """
        try:
            if self._exists('exchange_declare', consumer.exchange_name):
                consumer.exchange.bind(self.connection.channel()).declare()
            if self._exists('queue_declare', consumer.queue_name):
                self.connection.channel().queue_declare(
                    consumer.queue_name,
                    durable=consumer.durable,
                    auto_delete=consumer.queue_auto_delete,
                    arguments=consumer.queue_arguments,
                )
        except PreconditionFailed as error:
            raise _queue_error(self.driver_conf, consumer, error) from None


def check_queues(transport: Any, host: Any, topic: str, server: str) -> None:
    """Check that a broker's queues have the properties with which a server declares its
    queues. The broker refuses a server with other properties.

    :param host: the broker, an element of ``hosts`` of the URL.
    :raises ConfigError: the properties of a queue differ, or options of
        ``[oslo_messaging_rabbit]`` contradict each other.
    :raises Exception: an error in ``BROKER_ERRORS``.
    """
    conf = transport.conf
    exchange = conf.control_exchange
    try:
        with rabbit_connection(transport, host, ExistingQueues) as connection:
            connection.driver_conf = conf[RABBIT]
            connection.declare_topic_consumer(exchange, topic)
            connection.declare_topic_consumer(exchange, f'{topic}.{server}')
            connection.declare_fanout_consumer(topic, None)
    except RuntimeError as error:
        raise option_error(conf, error) from None


def check_notification_queues(
    transport: Any, host: Any, queues: Sequence[str], url: str | None
) -> None:
    """Check a broker's queues of notifications, like :func:`check_queues`.

    :param url: the URL of the broker; the default is ``[DEFAULT] transport_url``.
    """
    conf = transport.conf
    kind = ExistingNotificationQueues
    with rabbit_connection(transport, host, kind, url) as connection:
        connection.driver_conf = conf[RABBIT]
        for queue in queues:
            connection.declare_topic_consumer(conf.control_exchange, queue)


def _queue_error(options: Any, consumer: Any, error: Exception) -> ConfigError:
    """Return the error about the option that makes a queue differ from the broker's."""
    text = hide(error)
    unequal = _UNEQUAL.search(text)
    name = ''
    if unequal is not None:
        names = QUEUE_OPTIONS
        if consumer.type == 'fanout':
            names = {**QUEUE_OPTIONS, **FANOUT_OPTIONS}
        name = names.get(unequal[1], '')
    if name == 'amqp_durable_queues' and options.rabbit_quorum_queue:
        # Quorum queues are durable.
        name = 'rabbit_quorum_queue'
    name = name or 'rabbit_quorum_queue'

    why = (
        f'the broker has the queue with other properties ({text}); set '
        'amqp_durable_queues and rabbit_quorum_queue as in the other services of '
        'nova, or delete the queue'
    )
    return ConfigError(f'[{RABBIT}] {name}', options[name], why)
