# SPDX-License-Identifier: Apache-2.0
"""What nova's services say on the notification bus, for one more listener.

The listener has a queue of its own, so that nobody else misses anything. nova's services
would fill it for ever, so it is deleted in the end.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging._drivers import common

from novasched.notify import sender
from novasched.rpc.server import EXCHANGE

EVENTS = r'(scheduler\.select_destinations|(compute\.)?instance\.create|compute_task)\.'
"""How the names begin of what is listened to."""


@dataclass(frozen=True, slots=True)
class Event:
    """A notification: who says what to whose request."""

    publisher: str
    name: str
    context: Mapping[str, Any]
    payload: Mapping[str, Any]


class Ear:
    """An endpoint of oslo.messaging: each method has the priority's name."""

    filter_rule = oslo_messaging.NotificationFilter(event_type=EVENTS)

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self._hear = hear

    def info(
        self, context: Any, publisher: str, name: str, payload: Any, metadata: Mapping[str, Any]
    ) -> None:
        """What goes as planned."""
        self._hear(Event(publisher, name, context, payload))

    error = info


@contextmanager
def listening(conf: cfg.ConfigOpts, hear: Callable[[Event], None]) -> Iterator[str]:
    """Hear what is said from now on; the value is the name of the queue.

    Where both formats are sent the versioned one is listened to, since it says more.

    :param hear: called for each event in turn, from a thread of its own.
    :raises ConfigError: the transport's URL cannot be used.
    """
    oslo_messaging.set_transport_defaults(EXCHANGE)
    sender.register(conf)
    transport = sender.make_transport(conf)
    queue = f'novasched-shadow-{socket.gethostname()}'
    topics = conf.notifications.versioned_notifications_topics
    if conf.notifications.notification_format == sender.LEGACY:
        topics = conf[sender.GROUP].topics
    targets = [oslo_messaging.Target(topic=topic) for topic in topics]
    listener = oslo_messaging.get_notification_listener(
        transport, targets, [Ear(hear)], executor='threading', pool=queue
    )
    # One thread hears everything in order.
    conf.set_override('executor_thread_pool_size', 1)
    _delete(transport, queue)  # what a listener before left that was killed
    listener.start()
    try:
        yield queue
    finally:
        listener.stop()
        listener.wait()
        _delete(transport, queue)
        transport.cleanup()


def _delete(transport: Any, queue: str) -> None:
    """Only the driver knows how to connect, with TLS and several brokers; it has no name of
    its own for this."""
    make = getattr(transport._driver, '_get_connection', None)
    if make is None:
        return  # no broker
    try:
        # Not one for sending: its heartbeats would take the answer away.
        with make(common.PURPOSE_LISTEN) as connection:
            connection.connection.channel.queue_delete(queue)
    except Exception as error:  # amqp's errors are those of the driver's own choice
        print(f'the queue {queue} is not deleted: {error}', file=sys.stderr)
