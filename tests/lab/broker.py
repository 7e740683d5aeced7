# SPDX-License-Identifier: Apache-2.0
"""What the tests ask the broker directly, past oslo.messaging."""

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
    """How many consume from a queue; none when there is no such queue."""
    found = _declared(amqp_url, queue)
    if found:
        return found.consumer_count
    return 0


def depth(amqp_url, queue=TOPIC):
    """How many messages nobody has been sent, or somebody has given back."""
    found = _declared(amqp_url, queue)
    assert found, f'no queue {queue}'
    return found.message_count


def exists(amqp_url, queue):
    return _declared(amqp_url, queue) is not None


def _declared(amqp_url, queue):
    """What the broker says of a queue; None where it has none."""
    with connect(amqp_url) as connection:
        try:
            return connection.channel().queue_declare(queue, passive=True)
        except NotFound:
            return None


def purge(amqp_url, queue=TOPIC):
    """Throw away what nobody has been sent."""
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
    """A queue of our own that gets what others get with a routing key; what is given
    returns the next body, decoded."""
    with connect(amqp_url) as connection:
        exchange = Exchange(EXCHANGE, type='topic', durable=False, passive=True)
        name = f'novasched-copy-{secrets.token_hex(4)}'
        queue = Queue(name, exchange, routing_key, durable=False, auto_delete=True)
        with closing(SimpleQueue(connection.channel(), queue)) as copies:

            def following():
                message = copies.get(timeout=10)
                message.ack()
                return message.payload

            yield following


class NotificationQueues:
    """The queues of both formats, which schedulers make when they say something."""

    def __init__(self, connection):
        self._connection = connection

    def drain(self):
        """What came since the last time: each message with the queue that it was in.
        nova's services also tell of their rows in the database, which is not asked
        here."""
        found = []
        for queue in NOTIFICATIONS:
            channel = self._connection.channel()
            channel.queue_declare(queue, durable=False, auto_delete=False)
            while got := channel.basic_get(queue, no_ack=True):
                body = json.loads(got.body)
                # The envelope of the driver messagingv2.
                message = {'queue': queue, **json.loads(body['oslo.message'])}
                if message['event_type'].startswith('scheduler.'):
                    found.append(message)
            channel.close()
        return found


@contextmanager
def notification_queues(amqp_url):
    """The bus at a broker, with nothing old on it."""
    with connect(amqp_url) as connection:
        queues = NotificationQueues(connection)
        queues.drain()
        yield queues
