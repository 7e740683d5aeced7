# SPDX-License-Identifier: Apache-2.0
"""Thousands of calls at once, as a crowd of conductors would send them, in oslo.messaging's
format: a thread for each caller would measure the threads."""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer

from tests.functional.broker import EXCHANGE, TOPIC
from tests.functional.client import new_uuids
from tests.functional.steady import CONTEXT, arguments_for

Reply = dict[str, Any]
IDLE = 1.0  # seconds between looks at the clock


class Crowd:
    """Callers who share a queue for their replies."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel = connection.channel()
        name = f'reply_{secrets.token_hex(16)}'
        self._replies = Queue(name, durable=False, auto_delete=False, channel=self._channel)
        self._replies.declare()
        self._of: dict[str, str] = {}

    def ask(self, count: int, expiration: float | None = None) -> Sequence[str]:
        """One call each for so many servers; their UUIDs.

        :param expiration: seconds after which the broker shall drop what it still has.
        """
        exchange = Exchange(EXCHANGE, type='topic', durable=False, passive=True)
        producer = Producer(self._channel, exchange, auto_declare=False)
        servers = new_uuids(count)
        for server in servers:
            call = secrets.token_hex(16)
            self._of[call] = server
            message = {
                'method': 'select_destinations',
                'args': arguments_for(server),
                'version': '4.5',
                '_msg_id': call,
                '_reply_q': self._replies.name,
                '_timeout': None,
                '_unique_id': secrets.token_hex(16),
                **{f'_context_{name}': value for name, value in CONTEXT.items()},
            }
            producer.publish(
                {'oslo.version': '2.0', 'oslo.message': json.dumps(message)},
                routing_key=TOPIC,
                serializer='json',
                expiration=expiration,
            )
        return servers

    def replies(self, count: int, seconds: float) -> Mapping[str, Sequence[Reply]]:
        """What came for each server, once there are so many replies or time is up."""
        found: dict[str, list[Reply]] = defaultdict(list)

        def take(body: Any, message: Any) -> None:
            message.ack()
            reply = json.loads(body['oslo.message'])
            if reply['ending']:
                found[self._of[reply['_msg_id']]].append(reply)

        deadline = time.monotonic() + seconds
        with Consumer(self._channel, [self._replies], callbacks=[take], accept=['json']):
            while len(found) < count and time.monotonic() < deadline:
                try:
                    self._connection.drain_events(timeout=IDLE)
                except TimeoutError:
                    self._connection.heartbeat_check()
        return found


@contextmanager
def crowd(amqp_url: str) -> Iterator[Crowd]:
    """A crowd at a broker."""
    with Connection(amqp_url.replace('rabbit://', 'amqp://', 1), connect_timeout=10) as connection:
        made = Crowd(connection)
        try:
            yield made
        finally:
            made._replies.delete()
