# SPDX-License-Identifier: Apache-2.0
"""The notification bus: what schedulers say there, and calls that make them say it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import oslo_messaging
from kombu.connection import Connection
from oslo_config import cfg

from novasched.rpc.server import make_transport

from .broker import TOPIC

Message = dict[str, Any]
PATIENCE = 60.0
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
    with Connection(amqp_url.replace('rabbit://', 'amqp://', 1), connect_timeout=10) as connection:
        bus = Bus(connection)
        bus.drain()
        yield bus


class Caller:
    """Calls schedulers by their host names, with arguments and a context that go out as
    they are."""

    def __init__(self, transport: Any) -> None:
        self._client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=TOPIC))

    def select(self, host: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """The answer, or the class of what is raised."""
        client = self._client.prepare(server=host, version='4.0', timeout=PATIENCE)
        try:
            return client.call(dict(context), 'select_destinations', **arguments)
        except oslo_messaging.RemoteError as error:
            return error.exc_type


@contextmanager
def calling(config: Path) -> Iterator[Caller]:
    """A caller at the broker of a nova.conf."""
    conf = cfg.ConfigOpts()
    conf([], project='nova', default_config_files=[str(config)], default_config_dirs=[])
    transport = make_transport(conf)
    try:
        yield Caller(transport)
    finally:
        transport.cleanup()
