# SPDX-License-Identifier: Apache-2.0
"""Access to the broker without oslo.messaging."""

import json
import secrets
from contextlib import closing, contextmanager

from amqp.exceptions import NotFound
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Producer
from kombu.simple import SimpleQueue

EXCHANGE = 'nova'
TOPIC = 'scheduler'
NOTIFICATIONS = ('notifications.info', 'versioned_notifications.info')


def consumers(amqp_url, queue):
    """The number of consumers of a queue; 0 without the queue."""
    state = _declared(amqp_url, queue)
    if state:
        return state.consumer_count
    return 0


def depth(amqp_url, queue=TOPIC):
    """The number of messages without a consumer, returned messages included."""
    state = _declared(amqp_url, queue)
    assert state, f'no queue {queue}'
    return state.message_count


def exists(amqp_url, queue):
    return _declared(amqp_url, queue) is not None


def _declared(amqp_url, queue):
    """The state of a queue at the broker; None without the queue."""
    with connect(amqp_url) as connection:
        try:
            return connection.channel().queue_declare(queue, passive=True)
        except NotFound:
            return None


def purge(amqp_url, queue=TOPIC):
    """Drop the messages that no consumer has taken."""
    with connect(amqp_url) as connection:
        connection.channel().queue_purge(queue)


def publish(amqp_url, body, routing_key=TOPIC):
    """Put a message of any content into the queue of the scheduler."""
    with connect(amqp_url) as connection:
        exchange = Exchange(EXCHANGE, type='topic', durable=False, passive=True)
        Producer(connection.channel(), exchange, auto_declare=False).publish(
            body,
            routing_key=routing_key,
            content_type='application/json',
            content_encoding='utf-8',
        )


def connect(amqp_url):
    """A connection that the block closes."""
    return Connection(amqp_url.replace('rabbit://', 'amqp://', 1), connect_timeout=10)


@contextmanager
def copied(amqp_url, routing_key=TOPIC):
    """A function that returns the decoded body of the next message with a routing key.
    The messages are copies from a new queue."""
    with connect(amqp_url) as connection:
        exchange = Exchange(EXCHANGE, type='topic', durable=False, passive=True)
        name = f'novasched-copy-{secrets.token_hex(4)}'
        queue = Queue(name, exchange, routing_key, durable=False, auto_delete=True)
        with closing(SimpleQueue(connection.channel(), queue)) as copies:

            def next_body():
                message = copies.get(timeout=10)
                message.ack()
                return message.payload

            yield next_body


class NotificationQueues:
    """The queues of notifications of both formats."""

    def __init__(self, connection):
        self._connection = connection

    def drain(self):
        """The notifications of schedulers since the last call, with their queues.
        Notifications of nova's services about their rows are left out."""
        notifications = []
        for queue in NOTIFICATIONS:
            channel = self._connection.channel()
            channel.queue_declare(queue, durable=False, auto_delete=False)
            while got := channel.basic_get(queue, no_ack=True):
                body = json.loads(got.body)
                # The envelope of the driver messagingv2.
                message = {'queue': queue, **json.loads(body['oslo.message'])}
                if message['event_type'].startswith('scheduler.'):
                    notifications.append(message)
            channel.close()
        return notifications


@contextmanager
def notification_queues(amqp_url):
    """The queues of notifications at a broker, without old messages."""
    with connect(amqp_url) as connection:
        queues = NotificationQueues(connection)
        queues.drain()
        yield queues
