# SPDX-License-Identifier: Apache-2.0
"""Callers without number who all ask at once: what oslo.messaging's client sends and reads,
without a thread for each."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer

from tests.lab.wire import FLAVOR

from .broker import EXCHANGE, TOPIC, connect
from .client import new_uuids
from .processes import Failed
from .steady import CONTEXT, arguments_for

PATIENCE = 60
LIFETIME = 1800
HUGE = {**FLAVOR, 'nova_object.data': {**FLAVOR['nova_object.data'], 'vcpus': 10_000_000}}


class Crowd:
    """Callers on one connection. ``asked`` has the UUIDs of the servers that they asked for.
    ``hosts`` says where each is to go, with None for a refusal; ``answers`` and ``heartbeats``
    count what came for each."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        channel = connection.channel()
        self._reply_q = f'reply_{secrets.token_hex(16)}'
        queue = Queue(self._reply_q, durable=False, auto_delete=True)
        self._producer = Producer(channel)
        self._consumer = Consumer(channel, [queue], callbacks=[self._hear])
        self._consumer.consume()
        self.asked: list[str] = []
        self.hosts: dict[str, str | None] = {}
        self.answers: Counter[str] = Counter()
        self.heartbeats: Counter[str] = Counter()

    def ask(
        self,
        count: int,
        to: str = TOPIC,
        flavor: Any = FLAVOR,
        patience: int = PATIENCE,
        lifetime: float = LIFETIME,
    ) -> Sequence[str]:
        """So many more ask for a server each; the UUIDs of these."""
        servers = new_uuids(count)
        for server in servers:
            arguments = arguments_for(server, flavor=flavor)
            # The servers' UUIDs serve as the messages' as well.
            call = {'_msg_id': server, '_reply_q': self._reply_q, '_timeout': patience}
            self._publish('select_destinations', arguments, call, to, lifetime)
        self.asked += servers
        return servers

    def tell(self, count: int, method: str, arguments: Any) -> None:
        """So many cast the same to every scheduler."""
        for _ in range(count):
            self._publish(method, arguments, {}, None, None)

    def listen(self, until: Callable[[], bool], seconds: float, what: str) -> None:
        """Read what comes, until something holds."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise Failed(f'after {seconds} s still no {what}')
            try:
                self._connection.drain_events(timeout=0.1)
            except TimeoutError:
                continue

    def answered(self, servers: Sequence[str]) -> bool:
        return all(self.answers[server] for server in servers)

    def _publish(
        self, method: str, arguments: Any, call: Any, to: str | None, lifetime: float | None
    ) -> None:
        context = {f'_context_{key}': value for key, value in CONTEXT.items()}
        body = {
            'method': method, 'args': arguments, 'version': '4.5', 'namespace': None,
            '_unique_id': secrets.token_hex(16), **call, **context,
        }  # fmt: skip
        exchange = EXCHANGE if to else f'{TOPIC}_fanout'
        self._producer.publish(
            {'oslo.version': '2.0', 'oslo.message': json.dumps(body)},
            exchange=Exchange(exchange, type='topic' if to else 'fanout', passive=True),
            routing_key=to or '',
            serializer='json',
            expiration=lifetime,
        )

    def _hear(self, envelope: Any, message: Any) -> None:
        message.ack()
        body = json.loads(envelope['oslo.message'])
        server = body['_msg_id']
        if not body['ending']:
            self.heartbeats[server] += 1
            return
        self.answers[server] += 1
        if body['failure'] is None:
            [[chosen]] = body['result']
            self.hosts[server] = chosen['nova_object.data']['service_host']
        else:
            assert json.loads(body['failure'])['class'] == 'NoValidHost', body
            self.hosts[server] = None


@contextmanager
def crowd(amqp_url: str) -> Iterator[Crowd]:
    """Callers who ask and listen as long as the block lasts."""
    with connect(amqp_url) as connection:
        yield Crowd(connection)
