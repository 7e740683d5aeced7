# SPDX-License-Identifier: Apache-2.0
"""The notification bus: what schedulers say there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kombu.connection import Connection

from .broker import connect

Message = dict[str, Any]
QUEUES = ('notifications.info', 'versioned_notifications.info')


class Bus:
    """The queues of both formats, which schedulers make when they say something."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def drain(self) -> list[Message]:
        """What came since the last time: each message with the queue that it was in. nova's
        services also tell of their rows in the database, which is not asked here."""
        found = []
        for queue in QUEUES:
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
def listening(amqp_url: str) -> Iterator[Bus]:
    """The bus at a broker, with nothing old on it."""
    with connect(amqp_url) as connection:
        bus = Bus(connection)
        bus.drain()
        yield bus
